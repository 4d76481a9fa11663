"""remuda queue and remuda agents: the lists of the boss, printed once or kept on the screen"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Self

from remuda.boss.client import BossClient
from remuda.boss.navigator import Item, QueueNavigator, labels, reason
from remuda.duration import show_duration
from remuda.errors import BossDown, TmuxError
from remuda.keeper.elsewhere import own_host
from remuda.untrusted import one_line

from . import declare
from .common import (
    check_alone,
    coloured_state,
    format_option,
    json_option,
    limit_lines,
    print_formatted,
    short_path,
)
from .elsewhere import read_queue
from .output import can_move, complain, echo, json_line, print_json, table_lines
from .waiting import make_guide

Document = dict[str, Any]
"""An answer of the boss."""

_HEAD = ("WHO", "WHY", "SINCE", "WHERE", "WHAT")
_HISTORY_HEAD = ("WHO", "WHY", "WAITED", "ENDED", "THEN", "WHAT")


@declare.command("queue")
@declare.option(
    "-i", "--interactive", is_flag=True, help="Choose from the list and answer, in this terminal."
)
@declare.option("-a", "--all", "hidden", is_flag=True, help="Also list agents hidden by 'remuda later'.")
@declare.option("-w", "--watch", is_flag=True, help="Keep the list on the screen and update it.")
@declare.option("--local", is_flag=True, help="List only agents of this machine, not of your fleet.")
@declare.option("--history", is_flag=True, help="List resolved items instead, newest first.")
@declare.option(
    "-n",
    "--limit",
    type=declare.ClickType("IntRange", 1, 1000),
    metavar="N",
    help="With --history: list at most N items.  [default: 20]",
)
@json_option
@format_option("{reason} {session.cwd}")
def command(
    interactive: bool,
    hidden: bool,
    watch: bool,
    local: bool,
    history: bool,
    limit: int | None,
    as_json: bool,
    template: str | None,
) -> int | None:
    """List agents that are waiting for you, and why. The agent that has waited longest comes first.

    Exits with 0 also if no agent is waiting, and with 7 if the boss is not running. With --watch --json, each
    change of the list is one line. 'remuda ls' also lists agents that are working.

    On a machine that has joined a fleet, the queue has the agents of all hosts, as HOST/NAME.

    With -i you choose from the list and answer, as with 'remuda dash'.

    \b
    Examples:
      remuda queue
      remuda queue -i
      remuda queue --watch
      remuda queue --history -n 50
      remuda queue --format '{reason} {session.cwd}'
    """
    check_alone(template, json=as_json, watch=watch, interactive=interactive)
    if interactive and (hidden or watch or history or as_json):
        raise declare.usage_error("--interactive cannot be combined with --all, --watch, --history or --json")
    if history and watch:
        raise declare.usage_error("--watch cannot be combined with --history")
    if limit is not None and not history:
        raise declare.usage_error("--limit needs --history")
    if interactive:
        from .app import run

        return run(["dash", *(["--local"] if local else [])])
    if history:
        past = _getter(BossClient(), template, as_json)("queue", "history", limit=limit or 20)
        _print_list(past, "items", _history_lines, template, as_json=as_json)
        return None

    def ask(boss: BossClient) -> Any:
        get = _getter(boss, template, as_json)
        if local or (own := own_host()) is None:
            return get("queue", hidden=hidden or None)
        document = read_queue(get, (lambda _: None) if watch else complain, hidden=hidden, wait=True)
        return {**document, "items": [{"host": own, **one} for one in document["items"]]}

    def lines(document: Document) -> list[str]:
        return _lines(document, hidden=hidden)

    if watch:
        follow(ask, lines, as_json=as_json)
    else:
        _print_list(ask(BossClient()), "items", lines, template, as_json=as_json)
    return None


def _getter(boss: BossClient, template: str | None, as_json: bool) -> Callable[..., Any]:
    """Return what reads a list: with everything for programs, else the beginning of each text."""
    return boss.get if as_json or template is not None else boss.get_brief


def _print_list(
    document: Document,
    name: str,
    lines: Callable[[Document], list[str]],
    template: str | None,
    *,
    as_json: bool,
) -> None:
    """Print the list `name` of a document: by the template, as JSON, or as lines."""
    if template is not None:
        print_formatted(template, document[name])
    elif as_json:
        print_json(document)
    else:
        echo("\n".join(lines(document)))


def _lines(document: dict[str, Any], *, hidden: bool) -> list[str]:
    now = time.time()
    hidden_count = f"{document['hidden']} hidden" if document["hidden"] and not hidden else ""
    if document["items"]:
        lines = _table(document["items"], now)
        lines += [f"and {hidden_count}; 'remuda queue --all' lists them"] if hidden_count else []
    else:
        lines = ["no agent is waiting" + (f"; {hidden_count}" if hidden_count else "")]
    for account in document.get("limits", []):
        first, *rest = limit_lines(account, now)
        lines += [f"limited: {first}", *(f"  {line}" for line in rest)]
    return lines


def _history_lines(document: Document) -> list[str]:
    items: list[Item] = document["items"]
    if not items:
        return ["no agent has waited yet"]
    now = time.time()
    named = zip(labels(items), items, strict=True)
    return table_lines(_HISTORY_HEAD, [_history_row(who, item, now) for who, item in named])


def _history_row(who: str, item: Item, now: float) -> tuple[str, ...]:
    ended = item["resolved_at"]
    waited, ago = show_duration(ended - item["since"]), show_duration(now - ended)
    return who, reason(item), waited, f"{ago} ago", str(item["resolution"]).replace("_", " "), what(item)


def _table(items: list[Item], now: float) -> list[str]:
    guide = make_guide()
    return table_lines(
        _HEAD, [_row(guide, who, item, now) for who, item in zip(labels(items), items, strict=True)]
    )


def _row(guide: QueueNavigator, who: str, item: Item, now: float) -> tuple[str, ...]:
    since = show_duration(max(0.0, now - item["since"]))
    return who, why(item) + _put_off(item, now), since, where(guide, item), what(item)


_STATES = {
    "stopped": "idle",
    "permission": "waiting_permission",
    "question": "waiting_answer",
    "plan": "waiting_answer",
    "budget": "waiting_answer",
}
"""States of 'remuda ls' by reason; all other reasons are errors."""


def why(item: Item) -> str:
    return coloured_state(reason(item), _STATES.get(item["reason"], "error"))


def _put_off(item: Item, now: float) -> str:
    back = max(item.get("skip_until") or 0.0, item.get("snooze_until") or 0.0)
    return f" (hidden for {show_duration(back - now)})" if back > now else ""


def where(guide: QueueNavigator, item: Item) -> str:
    """Return `work:1.0`, as tmux writes it; without tmux the id of the pane, or the process."""
    session = item.get("session") or {}
    if not session.get("reachable", True):
        return f"unreachable for {show_duration(max(0.0, time.time() - session['unreachable_since']))}"
    try:
        target = guide.find(item)
    except TmuxError:
        target = None
    if target and target.pane:
        return target.pane.address
    if session.get("host"):
        return str(session["host"])
    if session.get("name"):
        return "kept"
    return str(session.get("pane") or (f"pid {session['pid']}" if session.get("pid") else "-"))


def what(item: Item) -> str:
    """Return what the agent asks, else its last message, on one line."""
    detail = item.get("detail") or {}
    text = str(item["message"] or detail.get("waiting_for") or "")
    asked, tool = detail.get("input"), f"{detail.get('tool')}: "
    if item["reason"] == "permission" and text.startswith(tool):
        text = text.removeprefix(tool)
    elif item["reason"] == "permission" and asked:
        values = [value for value in asked.values() if isinstance(value, str)]
        text = values[0] if len(asked) == 1 and values else json.dumps(asked, ensure_ascii=False)
    return one_line(f"answer it in its terminal: {text}" if detail.get("at_terminal") else text)


# ── remuda agents ──


_AGENTS_HEAD = ("WHO", "STATE", "WHY", "SINCE", "WHERE", "CWD", "WHAT")


@declare.command("agents")
@declare.option("-a", "--all", "ended", is_flag=True, help="Also list agents that have ended.")
@declare.option("-w", "--watch", is_flag=True, help="Keep the list on the screen and update it.")
@json_option
@format_option("{agent_state} {cwd}")
def agents_command(ended: bool, watch: bool, as_json: bool, template: str | None) -> None:
    """List the agents of this machine that its boss knows: what each is doing, since when, and where.

    These are sessions of 'remuda start', agents in tmux panes, background agents, and agents of scripts.
    Those of other hosts of a fleet are in 'remuda ls'. STATE has the words of 'remuda ls', WHY the reason why
    an agent waits for you. In JSON they are 'agent_state' and 'item.reason'; 'state' has older words.
    'remuda queue' lists only waiting agents.

    Exits with 7 if the boss is not running. With --watch --json, each change is one line.

    \b
    Examples:
      remuda agents
      remuda agents --watch
      remuda agents --json | jq -r '.sessions[] | select(.agent_state == "tool_use") | .cwd'
    """

    def ask(boss: BossClient) -> Any:
        return _get_agents(_getter(boss, template, as_json), ended=ended)

    check_alone(template, json=as_json, watch=watch)
    if watch:
        follow(ask, _agent_lines, as_json=as_json)
    else:
        _print_list(ask(BossClient()), "sessions", _agent_lines, template, as_json=as_json)


def _get_agents(get: Callable[..., Any], *, ended: bool) -> dict[str, Any]:
    """Return all sessions, each with its item in the queue."""
    items = {item["session_id"]: item for item in get("queue", hidden=True)["items"]}
    for item in items.values():
        del item["session"]
    document: dict[str, Any] = get("sessions", all=ended or None)
    sessions = [{**one, "item": items.get(one["id"])} for one in document["sessions"]]
    return {**document, "sessions": sessions}


def _agent_lines(document: Document) -> list[str]:
    # In order of arrival, so that with --watch a line stays where it was.
    sessions = sorted(document["sessions"], key=lambda one: (one["ended"] is not None, one["first_seen"]))
    if not sessions:
        return ["no agents; run 'remuda setup boss' so that Claude Code sessions report to the boss"]
    guide, now = make_guide(), time.time()
    named = labels([{"session_id": one["id"], "session": one} for one in sessions])
    return table_lines(
        _AGENTS_HEAD, [_agent_row(guide, who, one, now) for who, one in zip(named, sessions, strict=True)]
    )


def _agent_row(guide: QueueNavigator, who: str, session: dict[str, Any], now: float) -> tuple[str, ...]:
    item = session["item"] and {**session["item"], "session": session}
    state = str(session.get("agent_state") or "unknown")
    more = " (background work)" if session["state"] == "background" else ""
    since = session["ended"] or session["since"]
    return (
        who,
        coloured_state(f"{state}{more}", state),
        why(item) if item else "-",
        show_duration(max(0.0, now - since)) if since else "-",
        "-" if session["ended"] else where(guide, {"session": session}),
        short_path(one_line(session["cwd"] or "-")),
        what(item) if item else one_line(session["title"] or ""),
    )


# ── a list that stays on the screen ──


_REDRAW_INTERVAL = 1.0
"""Seconds between redraws, for the times that are shown, and between attempts to reach the boss."""
_MIN_INTERVAL = 0.1
"""Minimum seconds between two redraws."""


def follow(
    ask: Callable[[BossClient], Document], lines: Callable[[Document], list[str]], *, as_json: bool
) -> None:
    """Show what `ask` returns, again with every change, until Ctrl-C. Reconnects to a boss that ended.

    Raises `BossDown` if none runs at the beginning.
    """
    boss = BossClient()
    ask(boss)
    with _Appended(lines, as_json=as_json) if as_json or not can_move(sys.stdout) else _Drawn(lines) as shown:
        while True:
            try:
                with boss.changes() as news:
                    while True:
                        shown.show(ask(boss))
                        time.sleep(_MIN_INTERVAL)
                        news.wait(shown.lasts)
            except BossDown as error:
                shown.show_down(error)
                time.sleep(_REDRAW_INTERVAL)


class _Drawn:
    """One picture on a terminal."""

    lasts: float | None = _REDRAW_INTERVAL

    def __init__(self, lines: Callable[[Document], list[str]]) -> None:
        from .redraw import LiveScreen

        self._lines = lines
        self._screen = LiveScreen()

    def __enter__(self) -> Self:
        self._screen.__enter__()
        return self

    def __exit__(self, *error: Any) -> bool:
        return self._screen.__exit__(*error)

    def show(self, document: Document) -> None:
        self._screen.draw(self._lines(document))

    def show_down(self, error: BossDown) -> None:
        self._screen.draw([str(error), "waiting until the boss is back; Ctrl-C stops"])


class _Appended:
    """Each change appended to the last: for a pipe, and as JSON."""

    lasts: float | None = None

    def __init__(self, lines: Callable[[Document], list[str]], *, as_json: bool) -> None:
        self._lines = lines
        self._as_json = as_json
        self._last: Document | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is KeyboardInterrupt

    def show(self, document: Document) -> None:
        content = {name: value for name, value in document.items() if name != "last_event_id"}
        if content != self._last:
            self._last = content
            as_text = json_line(document) if self._as_json else None
            echo(as_text or "\n".join([*self._lines(document), ""]))

    def show_down(self, error: BossDown) -> None:
        pass
