"""remuda queue"""

from __future__ import annotations

import json
import time
from typing import Any

import click

from remuda.boss.client import BossClient
from remuda.boss.guide import Guide, Item, labels, reason
from remuda.duration import show_duration
from remuda.errors import TmuxError

from .asking import make_guide
from .common import json_option, limit_lines, one_line, print_json, print_table, table_lines
from .live import follow

_HEAD = ("WHO", "WHY", "SINCE", "WHERE", "WHAT")
_PAST = ("WHO", "WHY", "WAITED", "ENDED", "THEN", "WHAT")


@click.command("queue")
@click.option("-a", "--all", "hidden", is_flag=True, help="Also what was skipped or snoozed.")
@click.option("-w", "--watch", is_flag=True, help="Keep the list on the screen, up to date.")
@click.option("--history", is_flag=True, help="What no longer waits instead, the newest first.")
@click.option("-n", "--limit", type=click.IntRange(1, 1000), help="With --history: so many.  [default: 20]")
@json_option
def command(hidden: bool, watch: bool, history: bool, limit: int | None, as_json: bool) -> None:
    """List who waits for you and why, the first to be answered first.

    Exits with 0 when nobody waits, and with 7 when the boss does not run. With --watch --json each change of
    the list is a line. 'remuda agents' lists those who work, too.

    \b
    Examples:
      remuda queue
      remuda queue --watch
      remuda queue --history -n 50
      remuda queue --json | jq -r '.items[] | [.reason, .session.cwd] | @tsv'
    """
    if history and watch:
        raise click.UsageError("--watch does not go with --history")
    if history:
        _tell_past(BossClient().get("queue", "history", limit=limit or 20), as_json=as_json)
        return
    if limit is not None:
        raise click.UsageError("--limit goes with --history")

    def ask(boss: BossClient) -> Any:
        return boss.get("queue", hidden=hidden or None)

    def lines(document: dict[str, Any]) -> list[str]:
        return _lines(document, hidden=hidden)

    if watch:
        follow(ask, lines, as_json=as_json)
    elif as_json:
        print_json(ask(BossClient()))
    else:
        click.echo("\n".join(lines(ask(BossClient()))))


def _lines(document: dict[str, Any], *, hidden: bool) -> list[str]:
    now = time.time()
    put_off = f"{document['hidden']} put off" if document["hidden"] and not hidden else ""
    if document["items"]:
        found = _table(document["items"], now)
        found += [f"and {put_off}; --all lists them"] if put_off else []
    else:
        found = ["nobody waits" + (f"; {put_off}" if put_off else "")]
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
        click.echo("nobody has waited yet")


def _past_row(who: str, item: Item, now: float) -> tuple[str, ...]:
    ended = item["resolved_at"]
    waited, ago = show_duration(ended - item["since"]), show_duration(now - ended)
    return who, reason(item), waited, f"{ago} ago", str(item["resolution"]).replace("_", " "), what(item)


def _table(items: list[Item], now: float) -> list[str]:
    guide = make_guide()
    return table_lines(
        _HEAD, [_row(guide, who, item, now) for who, item in zip(labels(items), items, strict=True)]
    )


def _row(guide: Guide, who: str, item: Item, now: float) -> tuple[str, ...]:
    since = show_duration(now - item["since"])
    return who, reason(item) + _put_off(item, now), since, where(guide, item), what(item)


def _put_off(item: Item, now: float) -> str:
    back = max(item.get("skip_until") or 0.0, item.get("snooze_until") or 0.0)
    return f" (put off, {show_duration(back - now)} more)" if back > now else ""


def where(guide: Guide, item: Item) -> str:
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
