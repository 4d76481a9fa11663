"""remuda screen"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from remuda.errors import SessionDead
from remuda.keeper.client import KeeperClient
from remuda.keeper.history_reader import last_screen
from remuda.paths import SessionPaths

from .common import find_folder, folder_option, json_option, pick_session, session_argument
from .last_screen import screen_document
from .output import complain, print_json, print_screen, wants_colour


@click.command("screen")
@session_argument
@click.option(
    "--styled/--plain", default=None, help="Print colours, or only text.  [default: colours on a terminal]"
)
@folder_option
@json_option
def command(name: str, styled: bool | None, folder: Path | None, as_json: bool) -> None:
    """Print the screen of a session, without attaching. For an ended session, print its last screen.

    The beginning of a NAME is enough.

    \b
    Examples:
      remuda screen work
      remuda screen work --plain | tail -5
      remuda screen work --json | jq .cursor
    """
    coloured = wants_colour(sys.stdout) if styled is None else styled
    where = find_folder(folder)
    shown = _shown(SessionPaths.of(pick_session(name, where), where), styled=coloured and not as_json)
    if as_json:
        print_json(shown)
        return
    print_screen(shown["lines"], coloured=coloured)


def _shown(paths: SessionPaths, *, styled: bool) -> dict[str, Any]:
    try:
        with KeeperClient.connect(paths.name, paths.folder, read_only=True) as client:
            return client.request("screen", styled=styled)
    except SessionDead as error:
        if (screen := last_screen(paths)) is None:
            raise
        complain(f"{error.message}; below is its last screen")
        return screen_document(screen, styled=styled)
