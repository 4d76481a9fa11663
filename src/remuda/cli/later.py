"""remuda later"""

from __future__ import annotations

import time
from typing import Any

import click

from remuda.boss.client import BossClient
from remuda.boss.navigator import label
from remuda.duration import show_duration, show_moment

from .asking import item_of, waiting_argument
from .common import json_option, time_span
from .output import echo, print_json

_DEFAULT = "10m"


def _when(text: str) -> str | float:
    try:
        return text if text in ("end", "never") else time_span(text)
    except click.BadParameter as error:
        raise click.BadParameter(f"{error.message}, or 'end' or 'never'") from None


@click.command("later")
@waiting_argument("name")
@click.argument("when", type=_when, default=_DEFAULT, metavar="[TIME|end|never]")
@json_option
def command(name: str, when: str | float, as_json: bool) -> None:
    """Postpone an agent in the queue, or remove it. The agent itself is not affected.

    \b
      TIME     Hide it for TIME (90, 45m, 2h30m; default 10m); 0 shows it again
      end      Hide it for 30 seconds, then list it last
      never    Remove it until it waits for something new

    A hidden agent keeps its place, and returns early if it waits for something new.

    NAME is a name, folder, pane (%12) or id, as in 'remuda queue'. Exits with 3 if the agent is not waiting,
    and with 7 if the boss is not running.

    \b
    Examples:
      remuda later work
      remuda later work 2h30m
      remuda later %12 end
      remuda later work never
    """
    boss = BossClient()
    verb, body = _change(when)
    item = boss.post("queue", str(item_of(boss, name)["id"]), verb, body=body)
    print_json({"item": item}) if as_json else echo(_said(item, when))


def _change(when: str | float) -> tuple[str, dict[str, Any]]:
    if isinstance(when, float):
        return "snooze", {"until": time.time() + when}
    return ("skip" if when == "end" else "dismiss"), {}


def _said(item: dict[str, Any], when: str | float) -> str:
    who = label(item)
    if when == "end":
        return f"{who} is now last in the queue"
    if when == "never":
        return f"{who} is removed from the queue until it waits for something new"
    if (until := item["snooze_until"]) is None:
        return f"{who} is in the queue again"
    return f"{who} is hidden for {show_duration(float(when))}, until {show_moment(until, time.time())}"
