"""remuda agents"""

from __future__ import annotations

import time
from typing import Any

import click

from remuda.boss.client import BossClient
from remuda.boss.navigator import QueueNavigator, labels, reason
from remuda.duration import show_duration
from remuda.untrusted import one_line

from .asking import make_guide
from .common import coloured_state, format_option, json_option, short_path
from .live import follow
from .output import echo, print_json, table_lines
from .queue import what, where
from .template import check_alone, print_formatted

_HEAD = ("WHO", "STATE", "WHY", "SINCE", "WHERE", "CWD", "WHAT")


@click.command("agents")
@click.option("-a", "--all", "ended", is_flag=True, help="Also list agents that have ended.")
@click.option("-w", "--watch", is_flag=True, help="Keep the list on the screen and update it.")
@json_option
@format_option("{agent_state} {cwd}")
def command(ended: bool, watch: bool, as_json: bool, template: str | None) -> None:
    """List the agents that the boss knows, wherever they run: what each is doing, since when, and where.

    These are sessions of 'remuda start', agents in tmux panes, background agents, and agents of scripts.
    STATE has the words of 'remuda ls', WHY the reason why an agent waits for you. In JSON they are
    'agent_state' and 'item.reason'; 'state' has older words. 'remuda queue' lists only waiting agents.

    Exits with 7 if the boss is not running. With --watch --json, each change is one line.

    \b
    Examples:
      remuda agents
      remuda agents --watch
      remuda agents --json | jq -r '.sessions[] | select(.agent_state == "tool_use") | .cwd'
    """

    def ask(boss: BossClient) -> Any:
        return _asked(boss, ended=ended)

    check_alone(template, json=as_json, watch=watch)
    if watch:
        follow(ask, _lines, as_json=as_json)
    elif template is not None:
        print_formatted(template, ask(BossClient())["sessions"])
    elif as_json:
        print_json(ask(BossClient()))
    else:
        echo("\n".join(_lines(ask(BossClient()))))


def _asked(boss: BossClient, *, ended: bool) -> dict[str, Any]:
    """All sessions, each with its place in the queue."""
    items = {item["session_id"]: item for item in boss.get("queue", hidden=True)["items"]}
    for item in items.values():
        del item["session"]
    document: dict[str, Any] = boss.get("sessions", all=ended or None)
    found = [{**one, "item": items.get(one["id"])} for one in document["sessions"]]
    return {**document, "sessions": found}


def _lines(document: dict[str, Any]) -> list[str]:
    # Those who came last stand last: who watches finds each where it was.
    sessions = sorted(document["sessions"], key=lambda one: (one["ended"] is not None, one["first_seen"]))
    if not sessions:
        return ["no agents; run 'remuda setup boss' so that Claude Code sessions report to the boss"]
    guide, now = make_guide(), time.time()
    named = labels([{"session_id": one["id"], "session": one} for one in sessions])
    return table_lines(_HEAD, [_row(guide, who, one, now) for who, one in zip(named, sessions, strict=True)])


def _row(guide: QueueNavigator, who: str, session: dict[str, Any], now: float) -> tuple[str, ...]:
    item = session["item"] and {**session["item"], "session": session}
    state = str(session.get("agent_state") or "unknown")
    more = " (background work)" if session["state"] == "background" else ""
    since = session["ended"] or session["since"]
    return (
        who,
        coloured_state(f"{state}{more}", state),
        reason(item) if item else "-",
        show_duration(max(0.0, now - since)) if since else "-",
        "-" if session["ended"] else where(guide, {"session": session}),
        short_path(one_line(session["cwd"] or "-")),
        what(item) if item else one_line(session["title"] or ""),
    )
