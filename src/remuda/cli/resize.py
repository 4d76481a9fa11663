"""remuda resize"""

from __future__ import annotations

import re
from pathlib import Path

import click

from remuda.errors import InvalidOptions
from remuda.keeper.client import KeeperClient

from .common import find_folder, folder_option, session_argument


@click.command("resize")
@session_argument
@click.argument("size", metavar="COLSxROWS")
@folder_option
def command(name: str, size: str, folder: Path | None) -> None:
    """Give a session's terminal another size.

    With the size policy 'latest' it holds until somebody types in a terminal of another size.

    \b
    Example:
      remuda resize work 120x40
    """
    found = re.fullmatch(r"(\d+)[xX](\d+)", size)
    if found is None:
        raise InvalidOptions(f"{size!r} is not a size", hint="write columns and rows, for example 120x40")
    with KeeperClient.connect(name, find_folder(folder)) as client:
        now = client.request("resize", cols=int(found[1]), rows=int(found[2]))
    click.echo(f"{name} is {now['cols']}x{now['rows']}")
