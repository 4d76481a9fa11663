"""remuda resize"""

from __future__ import annotations

import re
from pathlib import Path

import click

from remuda.errors import InvalidOptions
from remuda.keeper.client import KeeperClient
from remuda.keeper.size import check_size
from remuda.wire.connection import ClientConnection

from .common import find_folder, folder_option, pick_session, session_argument
from .output import echo


@click.command("resize")
@session_argument
@click.argument("size", metavar="COLSxROWS")
@folder_option
def command(name: str, size: str, folder: Path | None) -> None:
    """Change the terminal size of a session.

    With the size policy 'latest', the size lasts until someone types in a terminal of another size. The
    beginning of a NAME is enough.

    \b
    Example:
      remuda resize work 120x40
    """
    found = re.fullmatch(r"(\d+)[xX](\d+)", size)
    if found is None:
        raise InvalidOptions(f"{size!r} is not a size", hint="write COLSxROWS, for example 120x40")
    where = find_folder(folder)
    name = pick_session(name, where)
    with KeeperClient.connect(name, where) as client:
        cols, rows = _resized(client, *check_size(int(found[1]), int(found[2])))
    echo(f"{name} is {cols}x{rows}")


def _resized(client: KeeperClient, cols: int, rows: int) -> tuple[int, int]:
    if client.welcome is not None:
        now = client.request("resize", cols=cols, rows=rows)
        return now["cols"], now["rows"]
    client.send(ClientConnection.resize(cols, rows))
    client.status()  # a Heimdall supervisor answers this after the other, which has no answer
    return cols, rows
