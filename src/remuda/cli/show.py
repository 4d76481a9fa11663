"""remuda show"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from remuda.boss.client import RemoteBoss
from remuda.duration import show_duration
from remuda.errors import HostUnreachable, InvalidOptions, RemudaError, SessionDead
from remuda.inbox.catalog import Listed, list_messages, with_prompts
from remuda.keeper.client import KeeperClient
from remuda.keeper.elsewhere import split_host
from remuda.keeper.history_reader import last_screen
from remuda.keeper.listing import from_record
from remuda.keeper.record import SessionRecord
from remuda.paths import SessionPaths

from .common import (
    coloured_state,
    complete_session,
    find_folder,
    folder_option,
    json_option,
    pick_session,
    short_path,
)
from .elsewhere import list_elsewhere, session_document
from .logs import history_lines, history_lines_elsewhere, print_output, print_output_elsewhere
from .messages import print_messages
from .messages_elsewhere import listed_messages
from .output import cut, echo, print_fields, print_json, print_screen, style, terminal_width, wants_colour
from .outside import OutsideAgent, find_by_name
from .screen import screen_lines
from .status import explain_votes, status_fields

_MESSAGES = 5


class _AgentView(NamedTuple):
    document: dict[str, Any]
    fields: list[tuple[str, str]]
    screen: list[str] | None
    """None if the screen cannot be read from here."""
    paths: SessionPaths | None = None
    """None for an agent without a keeper."""
    note: str = ""


@click.command("show")
@click.argument("name", required=False, shell_complete=complete_session)
@click.option("--explain", is_flag=True, help="Show all evidence for the state, and which piece decided.")
@click.option("--history", is_flag=True, help="Print all kept output instead of the last screen.")
@folder_option
@json_option
def command(name: str | None, explain: bool, history: bool, folder: Path | None, as_json: bool) -> None:
    """Show what an agent is doing and how we know, its messages, and its screen.

    NAME is a session, running or ended, or an agent in a tmux pane that the boss knows: by its folder, pane
    (%12) or id. The beginning of a session's name is enough. Without a NAME it is the session started last.
    HOST/NAME is an agent on another machine of your fleet.

    \b
    Examples:
      remuda show work
      remuda show work --explain
      remuda show work --history | less -R
      remuda show %12
      remuda show build7/work
      remuda show work --json | jq -r '.screen[]'
    """
    styled = wants_colour(sys.stdout) and not as_json
    host, name = split_host(name) if name is not None and folder is None else (None, name)
    if host is not None:
        _show_elsewhere(host, str(name), history=history, styled=styled, as_json=as_json)
        return
    agent = find_by_name(name, folder) if name is not None else pick_session(None, find_folder(folder))
    if isinstance(agent, OutsideAgent):
        view = _outside(agent, styled=styled)
    else:
        view = _session(SessionPaths.of(agent, find_folder(folder)), explain=explain, styled=styled)
    if history and view.paths is None:
        raise InvalidOptions(
            f"the output of '{agent.name if isinstance(agent, OutsideAgent) else agent}' is not kept",
            hint="only sessions of 'remuda start' have --history",
        )
    if as_json:
        more = {"history": history_lines(view.paths)} if history and view.paths is not None else {}
        print_json({**view.document, "screen": view.screen, **more})
        return
    print_fields(view.fields)
    if explain and (votes := view.document.get("votes")):
        explain_votes(votes)
    _print_messages(view.paths)
    if history and view.paths is not None:
        _heading("output")
        print_output(view.paths)
    elif view.screen is not None:
        _heading(view.note or "screen")
        print_screen(list(_compact(view.screen)), coloured=styled)
    elif view.note:
        echo(f"\n{view.note}")


def _heading(text: str) -> None:
    echo(style(cut(f"\n── {text} " + "─" * 200, min(terminal_width(), 80)).removesuffix("…"), bold=True))


def _compact(lines: list[str]) -> Iterator[str]:
    """Replace several blank lines by one: most of an agent's screen may be empty."""
    before = ""
    for line in lines:
        if line.strip() or before.strip():
            yield line
        before = line


# ── sessions ──


def _session(paths: SessionPaths, *, explain: bool, styled: bool) -> _AgentView:
    try:
        with KeeperClient.connect(paths.name, paths.folder, read_only=True) as client:
            document = client.describe(explain=explain)
            lines = client.request("screen", styled=styled)["lines"] if client.speaks_ours else None
            other = client.other_version
    except SessionDead as error:
        return _ended(paths, error, styled=styled)
    fields = status_fields(document, other_version=other)
    note = "" if lines is not None else "another program keeps this session; 'remuda attach' shows its screen"
    return _AgentView(document, fields, lines, paths, note)


def _ended(paths: SessionPaths, error: SessionDead, *, styled: bool) -> _AgentView:
    record = SessionRecord.load(paths.record)
    if record is None:
        raise error
    screen = last_screen(paths)
    document = from_record(record)
    fields = [
        ("session", paths.name),
        ("state", coloured_state("dead")),
        ("ended", error.message.partition("has ended")[2].lstrip(": ")),
    ]
    fields += [("next", error.hint)] if error.hint else []
    fields += [("agent", record.agent), ("cwd", short_path(record.cwd))]
    return _AgentView(
        document,
        fields,
        None if screen is None else screen_lines(screen, styled=styled),
        paths,
        "last screen" if screen is not None else "no output was kept",
    )


def _print_messages(paths: SessionPaths | None) -> None:
    """Print the last messages of the session."""
    if paths is None or not paths.inbox.is_dir():
        return
    try:
        listed: list[Listed] = list_messages(paths.inbox)
    except RemudaError as error:
        echo(f"\nits messages cannot be read: {error}")
        return
    last = listed[-_MESSAGES:]
    if last:
        _heading(f"last {len(last)} of {len(listed)} messages" if len(listed) > len(last) else "messages")
        print_messages(with_prompts(last))


# ── other hosts ──


def _show_elsewhere(host: str, name: str, *, history: bool, styled: bool, as_json: bool) -> None:
    """Show what the boss of another host knows; if it cannot be reached, what is known of it here."""
    boss = RemoteBoss(host)
    try:
        found = boss.get("sessions", name)
    except HostUnreachable as error:
        _show_unreachable(host, name, error, as_json=as_json)
        return
    one = {"host": host, "reachable": True, "session": found["session"], "item": found["item"]}
    document = {**session_document(one), "votes": found["evidence"]}
    screen, note = None, ""
    try:
        screen = boss.get("sessions", name, "screen", styled=styled or None)["lines"]
    except HostUnreachable:
        raise
    except RemudaError as error:
        note = f"its screen cannot be read: {error}"
    if as_json:
        more = {"history": history_lines_elsewhere(host, name)} if history else {}
        print_json({**document, "screen": screen, **more})
        return
    print_fields(_elsewhere_fields(document))
    if document["kept"] and (messages := listed_messages(host, str(document["name"]), _MESSAGES)[1]):
        _heading("messages")
        print_messages(messages)
    if history:
        _heading("output")
        print_output_elsewhere(host, name)
    elif screen is not None:
        _heading("screen")
        print_screen(list(_compact(screen)), coloured=styled)
    else:
        echo(f"\n{note}")


def _show_unreachable(host: str, name: str, error: HostUnreachable, *, as_json: bool) -> None:
    known = [one for one in list_elsewhere() if one["host"] == host and one["session"].get("name") == name]
    if not known:
        raise error
    document = session_document({**known[0], "reachable": False, "unreachable_since": _last_seen(known[0])})
    if as_json:
        print_json({**document, "screen": None})
        return
    print_fields(_elsewhere_fields(document))
    echo(f"\n{error.message}; this is what was known of it before")


def _last_seen(one: dict[str, Any]) -> float:
    return float(one["unreachable_since"] or time.time())


def _elsewhere_fields(document: dict[str, Any]) -> list[tuple[str, str]]:
    age = f" for {show_duration(document['age'])}" if document["age"] is not None else ""
    detail = f" ({document['detail']})" if document["detail"] else ""
    before = f"; before that {document['last_state']}" if "last_state" in document else ""
    rows = [
        ("session", f"{document['host']}/{document['name']}"),
        ("state", f"{coloured_state(str(document['state'] or 'unknown'))}{age}{detail}{before}"),
        ("agent", document["agent"]),
        ("pane", document["pane"]),
        ("pid", document["pid"]),
        ("cwd", document["cwd"]),
        ("title", document["title"]),
        ("last words", document["last_message"]),
    ]
    return [(label, str(value)) for label, value in rows if value]


# ── agents outside of sessions ──


def _outside(found: OutsideAgent, *, styled: bool) -> _AgentView:
    document = found.document()
    age = f" for {show_duration(document['age'])}" if document["age"] is not None else ""
    detail = f": {document['detail']}" if document["detail"] else ""
    rows = [
        ("agent", f"{found.name} ({document['agent'] or 'unknown'})"),
        ("state", f"{coloured_state(str(document['state'] or 'unknown'))}{age} (by the boss{detail})"),
        ("pane", document["pane"]),
        ("pid", document["pid"]),
        ("cwd", document["cwd"]),
        ("title", document["title"]),
        ("conversation", document["conversation"]["session_id"]),
        ("last words", document["last_message"]),
    ]
    fields = [(label, str(value)) for label, value in rows if value]
    try:
        return _AgentView(document, fields, _pane_screen(found, styled=styled))
    except RemudaError as error:
        return _AgentView(document, fields, None, note=f"its screen cannot be read: {error}")


def _pane_screen(found: OutsideAgent, *, styled: bool) -> list[str] | None:
    from remuda.boss.navigator import QueueNavigator
    from remuda.tmux.panes import capture

    from .waiting import make_guide

    guide: QueueNavigator = make_guide()
    if (target := guide.find({"session": found.session})) is None or target.pane is None:
        return None
    return capture(target.tmux, target.pane.id, styled=styled)
