"""remuda screen"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from remuda.keeper.client import KeeperClient

from .common import find_folder, folder_option, json_option, print_json, session_argument


@click.command("screen")
@session_argument
@click.option(
    "--styled/--plain", default=None, help="With colours, or text alone.  [default: colours on a terminal]"
)
@folder_option
@json_option
def command(name: str, styled: bool | None, folder: Path | None, as_json: bool) -> None:
    """Print what a session's terminal shows now, without attaching.

    \b
    Examples:
      remuda screen work
      remuda screen work --plain | tail -5
      remuda screen work --json | jq .cursor
    """
    coloured = sys.stdout.isatty() if styled is None else styled
    with KeeperClient.connect(name, find_folder(folder), read_only=True) as client:
        shown = client.request("screen", styled=coloured and not as_json)
    if as_json:
        print_json(shown)
        return
    lines = shown["lines"]
    while lines and not lines[-1].strip():
        lines.pop()
    # Bytes, so that click does not take the colours out again when asked for them in a pipe.
    sys.stdout.buffer.write("".join(f"{line}\n" for line in lines).encode())
    sys.stdout.buffer.flush()
