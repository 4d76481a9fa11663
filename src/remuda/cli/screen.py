"""remuda screen and remuda resize: the terminal of a session"""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from typing import Any

import click

from remuda.errors import InvalidOptions, RemudaError, SessionDead
from remuda.keeper.client import KeeperClient
from remuda.keeper.elsewhere import split_host
from remuda.keeper.history_reader import last_screen
from remuda.keeper.size import check_size
from remuda.paths import SessionPaths
from remuda.terminal.screen import Screen
from remuda.wire.connection import ClientConnection

from .common import connect_to, find_folder, folder_option, json_option, pick_session, session_argument
from .output import complain, echo, print_json, print_screen, wants_colour


@click.command("screen")
@session_argument
@click.option(
    "--styled/--plain", default=None, help="Print colours, or only text.  [default: colours on a terminal]"
)
@folder_option
@json_option
def command(name: str, styled: bool | None, folder: Path | None, as_json: bool) -> None:
    """Print the screen of a session, without attaching. For an ended session, print its last screen.

    The beginning of a NAME is enough. HOST/NAME is a session on another machine of your fleet.

    \b
    Examples:
      remuda screen work
      remuda screen work --plain | tail -5
      remuda screen work --json | jq .cursor
    """
    coloured = wants_colour(sys.stdout) if styled is None else styled
    document = _screen_document(name, folder, styled=coloured and not as_json)
    if as_json:
        print_json(document)
        return
    print_screen(document["lines"], coloured=coloured)


def _screen_document(name: str, folder: Path | None, *, styled: bool) -> dict[str, Any]:
    host, name = split_host(name) if folder is None else (None, name)
    if host is not None:
        from remuda.boss.client import RemoteBoss

        found: dict[str, Any] = RemoteBoss(host).get("sessions", name, "screen", styled=styled or None)
        if not found.get("alive", True):
            complain(f"session '{host}/{name}' has ended; below is its last screen")
        return found
    where = find_folder(folder)
    paths = SessionPaths.of(pick_session(name, where), where)
    try:
        with KeeperClient.connect(paths.name, paths.folder, read_only=True) as client:
            return client.request("screen", styled=styled)
    except SessionDead as error:
        if (screen := last_screen(paths)) is None:
            raise
        complain(f"{error.message}; below is its last screen")
        return screen_document(screen, styled=styled)


# ── the last screen of an ended session, from its history ──


def show_last_screen(paths: SessionPaths, *, err: bool = False) -> None:
    """Print the last screen of an ended session, if there is one."""
    screen = last_screen(paths)
    if screen is not None:
        print_screen(screen_lines(screen, styled=True), coloured=None, err=err)
        screen.close()


def show_last_screen_elsewhere(host: str, name: str) -> None:
    from remuda.boss.client import RemoteBoss

    with contextlib.suppress(RemudaError):
        print_screen(RemoteBoss(host).get("sessions", name, "screen", styled=True)["lines"], coloured=None)


def screen_lines(screen: Screen, *, styled: bool) -> list[str]:
    if not styled:
        return screen.lines()
    return [screen.styled_row(y, screen.cols).decode("utf-8", "replace") for y in range(screen.rows)]


def screen_document(screen: Screen, *, styled: bool) -> dict[str, Any]:
    """Return what a keeper returns for the screen of a running session."""
    cursor = screen.cursor
    return {
        "lines": screen_lines(screen, styled=styled),
        "cols": screen.cols,
        "rows": screen.rows,
        "cursor": {"x": cursor.x, "y": cursor.y, "visible": cursor.visible},
        "alternate": screen.alternate,
        "title": screen.title,
    }


# ── remuda resize ──


@click.command("resize")
@session_argument
@click.argument("size", metavar="COLSxROWS")
@folder_option
def resize_command(name: str, size: str, folder: Path | None) -> None:
    """Change the terminal size of a session.

    With the size policy 'latest', the size lasts until someone types in a terminal of another size. The
    beginning of a NAME is enough. HOST/NAME is a session on another machine of your fleet.

    \b
    Example:
      remuda resize work 120x40
    """
    match = re.fullmatch(r"(\d+)[xX](\d+)", size)
    if match is None:
        raise InvalidOptions(f"{size!r} is not a size", hint="write COLSxROWS, for example 120x40")
    with connect_to(name, folder) as client:
        cols, rows = _resized(client, *check_size(int(match[1]), int(match[2])))
    echo(f"{client.name} is {cols}x{rows}")


def _resized(client: KeeperClient, cols: int, rows: int) -> tuple[int, int]:
    if client.welcome is not None:
        now = client.request("resize", cols=cols, rows=rows)
        return now["cols"], now["rows"]
    client.send(ClientConnection.resize(cols, rows))
    client.status()  # a Heimdall supervisor answers only this, after the resize
    return cols, rows
