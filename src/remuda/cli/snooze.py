"""remuda snooze"""

from __future__ import annotations

import time

import click

from remuda.boss.client import BossClient
from remuda.boss.navigator import label
from remuda.duration import parse_moment, show_duration, show_moment
from remuda.errors import InvalidOptions

from .asking import item_of, make_guide, waiting_argument
from .common import json_option, time_span
from .output import echo, print_json

_DEFAULT = 600.0


@click.command("snooze")
@waiting_argument(required=False)
@click.option(
    "--for", "span", type=time_span, metavar="TIME", help="Hide it for TIME (90, 45m, 2h30m).  [default: 10m]"
)
@click.option("--until", "moment", metavar="CLOCK", help="Hide it until 14:30, or '2026-02-03 09:00'.")
@click.option("--wake", is_flag=True, help="Show it again at once, also after 'skip'.")
@click.option("--client", metavar="NAME", help="Without SESSION: use what this tmux client shows.")
@json_option
def command(
    session: str | None,
    span: float | None,
    moment: str | None,
    wake: bool,
    client: str | None,
    as_json: bool,
) -> None:
    """Hide an agent from the queue for a while. The same as 'remuda later NAME TIME'.

    It keeps its place, and returns early if it waits for something new. 'remuda queue --all' also lists
    hidden agents.

    SESSION is a name, folder, pane (%12) or the beginning of an id, as in 'remuda queue'. Without it: the
    waiting agent that your tmux client shows, else the first in the queue.

    Exits with 3 if no agent is waiting, and with 7 if the boss is not running.

    \b
    Examples:
      remuda snooze work
      remuda snooze work --for 2h30m
      remuda snooze %12 --until 14:30
      remuda snooze work --wake
    """
    now = time.time()
    until = _until(span, moment, wake=wake, now=now)
    if wake and session is None:
        raise InvalidOptions("--wake needs a SESSION", hint="'remuda queue --all' lists hidden agents")
    boss = BossClient()
    item = item_of(boss, session) if session else make_guide(client).shown_or_first()
    found = boss.post("queue", str(item["id"]), "snooze", body={"until": until})
    if as_json:
        print_json({"snoozed": found})
    elif found["snooze_until"] is None:
        echo(f"{label(found)} is in the queue again")
    else:
        span_text, moment_text = show_duration(round(until - now, 3)), show_moment(until, now)
        echo(f"snoozed {label(found)} for {span_text}, until {moment_text}")


def _until(span: float | None, moment: str | None, *, wake: bool, now: float) -> float:
    if (span is not None) + (moment is not None) + wake > 1:
        raise InvalidOptions("--for, --until and --wake cannot be combined", hint="pass one of them")
    if moment is not None:
        return parse_moment(moment, now)
    return now + (0.0 if wake else _DEFAULT if span is None else span)
