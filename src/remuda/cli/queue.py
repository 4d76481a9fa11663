"""remuda queue"""

from __future__ import annotations

import json
import time
from typing import Any

import click

from remuda.boss.client import BossClient
from remuda.boss.navigator import Item, QueueNavigator, labels, reason
from remuda.duration import show_duration
from remuda.errors import TmuxError
from remuda.untrusted import one_line

from .asking import make_guide
from .common import format_option, json_option, limit_lines
from .live import follow
from .output import echo, print_json, print_table, table_lines
from .template import check_alone, print_formatted

_HEAD = ("WHO", "WHY", "SINCE", "WHERE", "WHAT")
_PAST = ("WHO", "WHY", "WAITED", "ENDED", "THEN", "WHAT")


@click.command("queue")
@click.option("-i", "--interactive", is_flag=True, help="Choose from the list and answer, in this terminal.")
@click.option("-a", "--all", "hidden", is_flag=True, help="Also list agents hidden by 'remuda later'.")
@click.option("-w", "--watch", is_flag=True, help="Keep the list on the screen and update it.")
@click.option("--history", is_flag=True, help="List resolved items instead, newest first.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 1000),
    metavar="N",
    help="With --history: list at most N items.  [default: 20]",
)
@json_option
@format_option("{reason} {session.cwd}")
def command(
    interactive: bool,
    hidden: bool,
    watch: bool,
    history: bool,
    limit: int | None,
    as_json: bool,
    template: str | None,
) -> int | None:
    """List agents that are waiting for you, and why. The agent that has waited longest comes first.

    Exits with 0 also if no agent is waiting, and with 7 if the boss is not running. With --watch --json, each
    change of the list is one line. 'remuda ls' also lists agents that are working.

    With -i you choose from the list. Enter goes to the agent: to its tmux pane, or by attaching its session
    here. 'a' then 'y' allows a permission request, 'n' then 'y' denies it.

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
        raise click.UsageError("--interactive cannot be combined with --all, --watch, --history or --json")
    if history and watch:
        raise click.UsageError("--watch cannot be combined with --history")
    if limit is not None and not history:
        raise click.UsageError("--limit needs --history")
    if interactive:
        from .popup import choose

        return choose(make_guide())
    if history:
        past = BossClient().get("queue", "history", limit=limit or 20)
        if template is not None:
            print_formatted(template, past["items"])
        else:
            _tell_past(past, as_json=as_json)
        return None

    def ask(boss: BossClient) -> Any:
        return boss.get("queue", hidden=hidden or None)

    def lines(document: dict[str, Any]) -> list[str]:
        return _lines(document, hidden=hidden)

    if watch:
        follow(ask, lines, as_json=as_json)
    elif template is not None:
        print_formatted(template, ask(BossClient())["items"])
    elif as_json:
        print_json(ask(BossClient()))
    else:
        echo("\n".join(lines(ask(BossClient()))))
    return None


def _lines(document: dict[str, Any], *, hidden: bool) -> list[str]:
    now = time.time()
    put_off = f"{document['hidden']} hidden" if document["hidden"] and not hidden else ""
    if document["items"]:
        found = _table(document["items"], now)
        found += [f"and {put_off}; 'remuda queue --all' lists them"] if put_off else []
    else:
        found = ["no agent is waiting" + (f"; {put_off}" if put_off else "")]
    for account in document.get("limits", []):
        first, *rest = limit_lines(account, now)
        found += [f"limited: {first}", *(f"  {line}" for line in rest)]
    return found


def _tell_past(document: dict[str, Any], *, as_json: bool) -> None:
    items: list[Item] = document["items"]
    if as_json:
        print_json(document)
    elif items:
        now = time.time()
        named = zip(labels(items), items, strict=True)
        print_table(_PAST, [_past_row(who, item, now) for who, item in named])
    else:
        echo("no agent has waited yet")


def _past_row(who: str, item: Item, now: float) -> tuple[str, ...]:
    ended = item["resolved_at"]
    waited, ago = show_duration(ended - item["since"]), show_duration(now - ended)
    return who, reason(item), waited, f"{ago} ago", str(item["resolution"]).replace("_", " "), what(item)


def _table(items: list[Item], now: float) -> list[str]:
    guide = make_guide()
    return table_lines(
        _HEAD, [_row(guide, who, item, now) for who, item in zip(labels(items), items, strict=True)]
    )


def _row(guide: QueueNavigator, who: str, item: Item, now: float) -> tuple[str, ...]:
    since = show_duration(now - item["since"])
    return who, reason(item) + _put_off(item, now), since, where(guide, item), what(item)


def _put_off(item: Item, now: float) -> str:
    back = max(item.get("skip_until") or 0.0, item.get("snooze_until") or 0.0)
    return f" (hidden for {show_duration(back - now)})" if back > now else ""


def where(guide: QueueNavigator, item: Item) -> str:
    """`work:1.0`, as tmux writes it; without tmux the pane's id, or the process."""
    session = item.get("session") or {}
    try:
        found = guide.find(item)
    except TmuxError:
        found = None
    if found and found.pane:
        return found.pane.address
    if session.get("name"):
        return "kept"
    return str(session.get("pane") or (f"pid {session['pid']}" if session.get("pid") else "-"))


def what(item: Item) -> str:
    """What is asked, else the last that was said, on one line."""
    detail = item.get("detail") or {}
    text = str(item["message"] or detail.get("waiting_for") or "")
    asked, tool = detail.get("input"), f"{detail.get('tool')}: "
    if item["reason"] == "permission" and text.startswith(tool):
        text = text.removeprefix(tool)
    elif item["reason"] == "permission" and asked:
        values = [value for value in asked.values() if isinstance(value, str)]
        text = values[0] if len(asked) == 1 and values else json.dumps(asked, ensure_ascii=False)
    return one_line(text)
