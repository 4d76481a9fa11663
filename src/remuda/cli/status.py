"""remuda status"""

from __future__ import annotations

import time
from pathlib import Path

from remuda.agents.state import State
from remuda.duration import show_duration, show_moment

from . import declare
from .common import (
    coloured_state,
    complete_session,
    connect_to,
    folder_option,
    json_option,
    short_path,
)
from .output import echo, flat, print_fields, print_json

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from typing import Any


@declare.command("status")
@declare.argument("name", required=False, shell_complete=complete_session)
@declare.option("--explain", is_flag=True, help="Show all evidence for the state, and which piece decided.")
@folder_option
@json_option
def command(name: str | None, explain: bool, folder: Path | None, as_json: bool) -> None:
    """Show the state of a session, since when, and which evidence says so. Without a NAME, show the boss.

    The beginning of a NAME is enough. 'remuda show' also shows messages and the screen, and ended sessions.
    HOST/NAME is a session on another machine of your fleet.

    \b
    Examples:
      remuda status
      remuda status work
      remuda status work --explain
      remuda status work --json | jq -r .state
    """
    if name is None:
        from .boss import show_boss

        show_boss(as_json)
        return
    with connect_to(name, folder, read_only=True) as client:
        document = client.describe(explain=explain)
        other = client.other_version
    if client.tunnel is not None:
        document["host"] = client.name.partition("/")[0]
    if as_json:
        print_json(document)
        return
    print_fields(status_fields({**document, "name": client.name}, other_version=other))
    if explain and (votes := document.get("votes")):
        explain_votes(votes)


def status_fields(document: dict[str, Any], *, other_version: str | None) -> list[tuple[str, str]]:
    note = f"the keeper of this session has version {other_version}; what both versions know works"
    return [*_lines(document), *([("note", note)] if other_version else [])]


def _lines(document: dict[str, Any]) -> list[tuple[str, str]]:
    state = f"{coloured_state(str(document['state']))} for {show_duration(document.get('age', 0))}"
    source = document.get("source", "")
    detail = document.get("detail", "")
    lines = [
        ("session", str(document["name"])),
        ("state", f"{state} (by {source}{': ' + detail if detail else ''})"),
    ]
    if document.get("dissent"):
        lines.append(("disputed", f"{', '.join(document['dissent'])} says otherwise; see --explain"))
    if document["state"] != State.ASLEEP:
        lines.append(("pid", f"{document['pid']}{'' if document.get('alive') else ' (dead)'}"))
    lines.append(("output", f"{show_duration(document.get('idle', 0))} ago"))
    if "argv" in document:
        lines += _own_lines(document)
    return lines


def _own_lines(document: dict[str, Any]) -> list[tuple[str, str]]:
    import shlex

    size = (
        f"{document['cols']}x{document['rows']} ({document['size_policy']}), {document['clients']} watching"
    )
    lines = [
        ("agent", str(document["agent"])),
        ("command", shlex.join(document["argv"])),
        ("cwd", short_path(document["cwd"])),
        ("up", show_duration(document["uptime"])),
        ("terminal", size),
    ]
    if document.get("title"):
        lines.append(("title", document["title"]))
    if session_id := document.get("conversation", {}).get("session_id"):
        lines.append(("conversation", session_id))
    lines += _delivery_lines(document.get("delivery") or {})
    lines += _sleep_lines(document)
    if document.get("recording"):
        lines.append(("recording", document["recording"]))
    lines += [("degraded", reason) for reason in document.get("degraded", [])]
    return lines


def _delivery_lines(delivery: dict[str, Any]) -> list[tuple[str, str]]:
    lines = []
    if flight := delivery.get("in_flight"):
        since = show_duration(time.time() - flight["since"])
        lines.append(
            ("message", f"{flight['id']}: {flight['stage']} for {since}, attempt {flight['attempt']}")
        )
    if delivery.get("held"):
        until = delivery.get("limited_until")
        when = f" until {show_moment(until, time.time())}" if until else ""
        lines.append(("held", f"messages are waiting: {delivery['held']}{when}"))
    return lines


def _sleep_lines(document: dict[str, Any]) -> list[tuple[str, str]]:
    sleep = document.get("sleep") or {}
    if document["state"] == State.ASLEEP:
        note = f"a message, 'attach' or 'remuda wake {document['name']}' wakes it"
        failed = document.get("wake_error")
        return [("sleep", f"{failed}; 'remuda wake {document['name']}' tries again" if failed else note)]
    if not sleep.get("after"):
        return []
    why = sleep.get("awake_because")
    return [("sleep", f"after {show_duration(sleep['after'])} idle{f'; not now: {why}' if why else ''}")]


def explain_votes(votes: list[dict[str, Any]]) -> None:
    echo("\nevidence, the strongest source first:")
    for vote in votes:
        mark = "▶" if vote["decides"] else " " if vote["counts"] else "·"
        state = coloured_state(vote["state"].ljust(18), vote["state"])
        age = f"{show_duration(vote['age'], precise=True):>6} ago"
        echo(flat(f"  {mark} {vote['source']:<10} {state} {age}  {vote['detail']}"))
    echo("  ▶ decided; · does not count while stronger sources report")
