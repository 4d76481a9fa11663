"""remuda preview"""

from __future__ import annotations

import select
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from remuda.boss.client import RemoteBoss
from remuda.boss.navigator import QueueNavigator, way_to
from remuda.errors import NotInQueue, NoTmuxClient
from remuda.tmux.panes import capture, check_pane

from .common import json_option
from .output import can_move, echo, ours, print_json, print_screen, wants_colour
from .queue_steps import is_kept
from .waiting import find_session, make_guide, waiting_argument

_INTERVAL = 0.4


@click.command("preview")
@waiting_argument("target", required=False)
@click.option("--follow", is_flag=True, help="Keep it on the screen and update it.")
@click.option(
    "--history",
    type=click.IntRange(0),
    default=0,
    metavar="LINES",
    help="Also print LINES lines of history.  [default: 0]",
)
@click.option(
    "--styled/--plain",
    default=None,
    help="Print with colours, or only text.  [default: colours on a terminal]",
)
@json_option
def command(target: str | None, follow: bool, history: int, styled: bool | None, as_json: bool) -> None:
    """Print the screen of a waiting agent.

    TARGET is a name, folder, pane (%12) or the beginning of an id; without it, the first agent in the queue
    that can be shown. A pane of your own tmux server needs no boss.

    \b
    Examples:
      remuda preview
      remuda preview %12 --follow
      remuda preview work --plain | tail -5
    """
    coloured = (wants_colour(sys.stdout) if styled is None else styled) and not as_json
    where, look = _find(target, coloured, history)
    if as_json:
        print_json({**where, "lines": look()})
    elif follow:
        _follow(look, coloured)
    else:
        print_screen(look(), coloured=coloured)


ReadScreen = Callable[[], list[str]]


def _find(target: str | None, styled: bool, history: int) -> tuple[dict[str, Any], ReadScreen]:
    guide = make_guide()
    if target is not None and target.startswith("%"):
        tmux, pane = guide.tmux(guide.here), check_pane(target)
        return {"pane": pane}, lambda: capture(tmux, pane, history=history, styled=styled)
    session = _session(guide, target)
    place = guide.find({"session": session})
    if place is not None and place.pane is not None and session.get("pane") == place.pane.id:
        tmux, pane = place.tmux, place.pane.id
        return {"pane": pane}, lambda: capture(tmux, pane, history=history, styled=styled)
    if host := session.get("host"):
        return {"name": session["name"], "host": host}, lambda: _screen_elsewhere(host, session, styled)
    if session.get("name"):
        return {"name": session["name"]}, lambda: _screen(session["name"], styled)
    raise NoTmuxClient("its screen cannot be read from here", hint=way_to({"session": session}))


def _session(guide: QueueNavigator, target: str | None) -> Mapping[str, Any]:
    """Return the named session, else the first waiting one that can be shown."""
    if target is not None:
        session: Mapping[str, Any] = find_session(target)["session"]
        return session
    items = [item for item in guide.queue.waiting() if item["session"]]
    if not items:
        raise NotInQueue("no agent is waiting")
    seen = (item for item in items if guide.find(item) is not None or is_kept(item))
    first: Mapping[str, Any] = next(seen, items[0])["session"]
    return first


def _screen(name: str, styled: bool) -> list[str]:
    from remuda.keeper.client import KeeperClient

    from .common import find_folder

    with KeeperClient.connect(name, find_folder(None), read_only=True) as client:
        lines: list[str] = client.request("screen", styled=styled)["lines"]
    return lines


def _screen_elsewhere(host: str, session: Mapping[str, Any], styled: bool) -> list[str]:
    name = session.get("name") or str(session["id"]).removeprefix(f"{host}:")
    lines: list[str] = RemoteBoss(host).get("sessions", name, "screen", styled=styled or None)["lines"]
    return lines


def _follow(look: ReadScreen, coloured: bool) -> None:
    """Show it until Ctrl-C, or until it is gone."""
    before: list[str] | None = None
    try:
        while True:
            if (lines := look()) != before:
                before = lines
                echo(ours("\x1b[H\x1b[J" if can_move(sys.stdout) else "\f\n"), nl=False)
                print_screen(lines, coloured=coloured)
            select.select([], [], [], _INTERVAL)
    except KeyboardInterrupt:
        pass
