"""remuda show"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from remuda.boss.client import RemoteBoss
from remuda.boss.git_changes import find_changes
from remuda.duration import show_duration
from remuda.errors import HostUnreachable, InvalidOptions, RemudaError, SessionDead
from remuda.inbox.catalog import Listed, list_messages, with_prompts
from remuda.keeper.client import KeeperClient
from remuda.keeper.elsewhere import split_host
from remuda.keeper.history_reader import last_screen
from remuda.keeper.listing import from_record
from remuda.keeper.record import SessionRecord
from remuda.keeper.worktree import Worktree
from remuda.paths import SessionPaths
from remuda.self_test.results import find_standing
from remuda.untrusted import bounded

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
@click.option("--changes", is_flag=True, help="Print what it changed in its git folder, not its screen.")
@folder_option
@json_option
def command(
    name: str | None, explain: bool, history: bool, changes: bool, folder: Path | None, as_json: bool
) -> None:
    """Show what an agent is doing and how we know, its messages, and its screen.

    NAME is a session, running or ended, or an agent in a tmux pane that the boss knows: by its folder, pane
    (%12) or id. The beginning of a session's name is enough. Without a NAME it is the session started last.
    HOST/NAME is an agent on another machine of your fleet.

    \b
    Examples:
      remuda show work
      remuda show work --explain
      remuda show work --history | less -R
      remuda show work --changes
      remuda show %12
      remuda show build7/work
      remuda show work --json | jq -r '.screen[]'
    """
    styled = wants_colour(sys.stdout) and not as_json
    host, name = split_host(name) if name is not None and folder is None else (None, name)
    if host is not None:
        _show_elsewhere(host, str(name), history=history, changes=changes, styled=styled, as_json=as_json)
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
    found = _find_changes(view) if changes else None
    if as_json:
        more = {} if found is None else {"changes": found}
        _print_json(view, more, history=history)
        return
    print_fields(view.fields)
    if explain and (votes := view.document.get("votes")):
        explain_votes(votes)
    _print_messages(view.paths)
    if found is not None:
        print_changes(found)
    elif history and view.paths is not None:
        _heading("output")
        print_output(view.paths)
    elif view.screen is not None:
        _heading(view.note or "screen")
        print_screen(list(_compact(view.screen)), coloured=styled)
    elif view.note:
        echo(f"\n{view.note}")


def _print_json(view: _AgentView, more: dict[str, Any], *, history: bool) -> None:
    if history and view.paths is not None:
        more["history"] = history_lines(view.paths)
    print_json({**view.document, "screen": view.screen, **more})


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
    if (record := SessionRecord.load(paths.record)) is not None:
        fields += _worktree_row(record)
    if (tried := find_standing(str(document.get("agent", "")), document.get("argv", ()))) is not None:
        document = {**document, "self_test": tried.words}
        fields.append(("self-test", tried.words))
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
    fields += [("agent", record.agent), ("cwd", short_path(record.cwd)), *_worktree_row(record)]
    return _AgentView(
        document,
        fields,
        None if screen is None else screen_lines(screen, styled=styled),
        paths,
        "last screen" if screen is not None else "no output was kept",
    )


def _worktree_row(record: SessionRecord) -> list[tuple[str, str]]:
    made = Worktree.read(record.worktree)
    return [("worktree", f"{short_path(made.path)} on {made.branch}")] if made is not None else []


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


# ── changes ──


def _find_changes(view: _AgentView) -> dict[str, Any]:
    """Return what the agent changed: since its worktree was made, else since it started."""
    record = SessionRecord.load(view.paths.record) if view.paths is not None else None
    made = Worktree.read(record.worktree) if record is not None else None
    started = float(view.document.get("started_at") or time.time())
    where = made.path if made is not None else view.document.get("cwd")
    commit = made.commit if made is not None else None
    found: dict[str, Any] = bounded(find_changes(where, "start", started, commit))
    return found


def print_changes(found: dict[str, Any]) -> None:
    """Print the changed files, then their diffs."""
    files = found["files"]
    count = "1 file" if len(files) == 1 else f"{len(files)} files"
    on = f" on {found['branch']}" if found["branch"] else ""
    unread = found["note"] and not files  # there may be some
    _heading("changes" if unread else f"{count} changed{on}" + (", and more" if found["cut"] else ""))
    if found["note"]:
        echo(str(found["note"]))
    for one in files:
        counts = " ".join(f"{sign}{one[key]}" for sign, key in (("+", "added"), ("-", "removed")) if one[key])
        before = f" (was {one['old_path']})" if one["old_path"] else ""
        echo(f"{one['status']:<10} {one['path']}{before}  {'binary' if one['binary'] else counts}".rstrip())
    for one in files:
        if one["diff"]:
            _heading(str(one["path"]))
            for line in str(one["diff"]).splitlines():
                colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
                echo(style(line, fg=colour) if colour else line)
            if one["cut"]:
                echo("(cut here)")


# ── other hosts ──


def _show_elsewhere(
    host: str, name: str, *, history: bool, changes: bool, styled: bool, as_json: bool
) -> None:
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
    changed = boss.get("sessions", name, "changes") if changes else None
    try:
        screen = boss.get("sessions", name, "screen", styled=styled or None)["lines"]
    except HostUnreachable:
        raise
    except RemudaError as error:
        note = f"its screen cannot be read: {error}"
    if as_json:
        more: dict[str, Any] = {"history": history_lines_elsewhere(host, name)} if history else {}
        more |= {"changes": changed} if changed is not None else {}
        print_json({**document, "screen": screen, **more})
        return
    print_fields(_elsewhere_fields(document))
    if document["kept"] and (messages := listed_messages(host, str(document["name"]), _MESSAGES)[1]):
        _heading("messages")
        print_messages(messages)
    if changed is not None:
        print_changes(changed)
    elif history:
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
