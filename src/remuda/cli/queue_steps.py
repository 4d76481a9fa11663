"""Going through the queue: remuda next and return, later, snooze, skip and dismiss"""

from __future__ import annotations

import sys
import time
from typing import Any

from remuda.boss.client import BossClient
from remuda.boss.navigator import Item, Navigation, label, navigation_text, reason
from remuda.duration import parse_moment, parse_time, show_duration, show_moment
from remuda.errors import InvalidOptions, NotInQueue
from remuda.keeper.elsewhere import own_host

from . import declare
from .common import configuration, find_folder, json_option, time_span
from .output import echo, print_json
from .waiting import elsewhere_option, item_of, make_guide, waiting_argument

# ── remuda next ──


@declare.command("next")
@declare.option("--client", metavar="NAME", help="tmux client to move.  [default: yours]")
@elsewhere_option
@declare.option("--show", is_flag=True, help="Only print the first agent of the queue.")
@json_option
def next_command(client: str | None, elsewhere: bool, show: bool, as_json: bool) -> int | None:
    """Go to the first agent in the queue: moves your tmux client to its session, window and pane.

    If your client already shows a waiting agent, goes to the one after it. A session of 'remuda start' gets
    a new window, unless a pane shows it already. 'remuda return' goes back to where you were before.

    Outside tmux, attaches the first waiting session of 'remuda start' to this terminal, like 'remuda attach'.

    Sessions of other machines of your fleet are attached as HOST/NAME. Passes agents there that have no
    session of 'remuda start', and machines that cannot be reached.

    Exits with 3 if no agent is waiting, and with 7 if the boss is not running.

    \b
    Examples:
      remuda next
      remuda next --show --json | jq -r .item.message
    """
    if show:
        _show_first(BossClient(), as_json)
        return None
    guide = make_guide(client, elsewhere=elsewhere)
    if not guide.is_inside and not elsewhere and client is None and not as_json and is_terminal():
        kept = next((one for one in guide.queue.waiting() if is_kept(one)), None)
        if kept is not None:
            return attach_to(kept)
    went = guide.next()
    if as_json:
        print_json(_step_document(went))
    else:
        echo(navigation_text(went))
    return None


def is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def is_kept(item: Item) -> bool:
    session = item.get("session") or {}
    here = session.get("ended") is None and session.get("reachable", True)
    return bool(session.get("name")) and here


def attach_to(item: Item) -> int:
    """Attach a kept session to this terminal, until the user detaches."""
    from .attach import attach_here

    config, host = configuration(strict=False), item["session"].get("host")
    folder = find_folder(None, config) if host is None else None
    return attach_here(str(item["session"]["name"]), folder, config, host=host)


def _show_first(boss: BossClient, as_json: bool) -> None:
    item = boss.get("queue", "next", hosts=own_host() is not None or None)["item"]
    if item is None:
        raise NotInQueue("no agent is waiting")
    if as_json:
        print_json({"item": item})
    else:
        echo(f"{label(item)} ({reason(item)})")


def _step_document(went: Navigation) -> dict[str, Any]:
    return {
        "item": went.item,
        "client": went.jump.client,
        "pane": went.jump.pane.id,
        "address": went.jump.pane.address,
        "moved": went.jump.has_moved,
    }


# ── remuda return ──


@declare.command("return")
@declare.option("--client", metavar="NAME", help="tmux client to move.  [default: yours]")
@elsewhere_option
@json_option
def return_command(client: str | None, elsewhere: bool, as_json: bool) -> None:
    """Go back to the pane where you were before 'remuda next'.

    After several 'remuda next' this is the pane where the first one began, unless you have changed panes by
    hand since. Needs no boss. Exits with 3 if no such pane is known.

    \b
    Example:
      remuda return
    """
    done = make_guide(client, elsewhere=elsewhere).back()
    if as_json:
        print_json(
            {
                "client": done.client,
                "pane": done.pane.id,
                "address": done.pane.address,
                "moved": done.has_moved,
            }
        )
    else:
        echo(f"back in {done.pane.address}")


# ── remuda later ──


_DEFAULT_TIME = "10m"


def _when(text: str) -> str | float:
    if text in ("end", "never"):
        return text
    try:
        return parse_time(text)
    except InvalidOptions as error:
        raise declare.bad_value(f"{error}, or 'end' or 'never'") from None


@declare.command("later")
@waiting_argument("name")
@declare.argument(
    "when",
    type=_when,
    default=_DEFAULT_TIME,
    metavar="[TIME|end|never]",
    shell_complete=lambda _ctx, _param, begun: [
        one for one in ("10m", "1h", "end", "never") if one.startswith(begun)
    ],
)
@json_option
def later_command(name: str, when: str | float, as_json: bool) -> None:
    """Postpone an agent in the queue, or remove it. The agent itself is not affected.

    \b
      TIME     Hide it for TIME (90, 45m, 2h30m; default 10m); 0 shows it again
      end      Hide it for 30 seconds, then list it last
      never    Remove it until it waits for something new

    A hidden agent keeps its place, and returns early if it waits for something new.

    NAME is a name, folder, pane (%12) or id, as in 'remuda queue', or HOST/NAME. Exits with 3 if the agent is
    not waiting, and with 7 if the boss is not running or its host cannot be reached.

    \b
    Examples:
      remuda later work
      remuda later work 2h30m
      remuda later %12 end
      remuda later work never
    """
    verb, body = _later_change(when)
    item = BossClient().post("queue", str(item_of(name)["id"]), verb, body=body)
    print_json({"item": item}) if as_json else echo(_later_text(item, when))


def _later_change(when: str | float) -> tuple[str, dict[str, Any]]:
    if isinstance(when, float):
        return "snooze", {"until": time.time() + when}
    return ("skip" if when == "end" else "dismiss"), {}


def _later_text(item: dict[str, Any], when: str | float) -> str:
    who = label(item)
    if when == "end":
        hidden = round((item["skip_until"] or 0.0) - time.time())
        return f"{who} is hidden for {show_duration(hidden)}, then last in the queue"
    if when == "never":
        return f"{who} is removed from the queue until it waits for something new"
    if (until := item["snooze_until"]) is None:
        return f"{who} is in the queue again"
    span = show_duration(float(when), precise=True)
    return f"{who} is hidden for {span}, until {show_moment(until, time.time())}"


# ── remuda snooze ──


_DEFAULT_SNOOZE = 600.0


@declare.command("snooze")
@waiting_argument(required=False)
@declare.option(
    "--for", "span", type=time_span, metavar="TIME", help="Hide it for TIME (90, 45m, 2h30m).  [default: 10m]"
)
@declare.option("--until", "moment", metavar="CLOCK", help="Hide it until 14:30, or '2026-02-03 09:00'.")
@declare.option("--wake", is_flag=True, help="Show it again at once, also after 'skip'.")
@declare.option("--client", metavar="NAME", help="Without SESSION: use what this tmux client shows.")
@json_option
def snooze_command(
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
    item = item_of(session) if session else make_guide(client).shown_or_first()
    snoozed = BossClient().post("queue", str(item["id"]), "snooze", body={"until": until})
    if as_json:
        print_json({"snoozed": snoozed})
    elif snoozed["snooze_until"] is None:
        echo(f"{label(snoozed)} is in the queue again")
    else:
        span_text, moment_text = show_duration(round(until - now, 3), precise=True), show_moment(until, now)
        echo(f"snoozed {label(snoozed)} for {span_text}, until {moment_text}")


def _until(span: float | None, moment: str | None, *, wake: bool, now: float) -> float:
    if (span is not None) + (moment is not None) + wake > 1:
        raise InvalidOptions("--for, --until and --wake cannot be combined", hint="pass one of them")
    if moment is not None:
        return parse_moment(moment, now)
    return now + (0.0 if wake else _DEFAULT_SNOOZE if span is None else span)


# ── remuda skip ──


@declare.command("skip")
@waiting_argument(required=False)
@declare.option(
    "--cooldown", type=time_span, metavar="TIME", help="Hide it for TIME (90, 45m, 2h30m).  [default: 30s]"
)
@declare.option("--next", "go_on", is_flag=True, help="Then go to the next one, like 'remuda next'.")
@declare.option("--client", metavar="NAME", help="tmux client to move.  [default: yours]")
@elsewhere_option
@json_option
def skip_command(
    session: str | None,
    cooldown: float | None,
    go_on: bool,
    client: str | None,
    elsewhere: bool,
    as_json: bool,
) -> None:
    """Move an agent to the end of the queue, and hide it for a moment. The same as 'remuda later NAME end'.

    SESSION is a name, folder, pane (%12) or the beginning of an id, as in 'remuda queue'. Without it: the
    waiting agent that your tmux client shows, else the first in the queue.

    Exits with 3 if no agent is waiting, and with 7 if the boss is not running.

    \b
    Examples:
      remuda skip
      remuda skip --next
      remuda skip work --cooldown 10m
    """
    guide = make_guide(client, elsewhere=elsewhere)
    skipped = guide.skip(item_of(session) if session else None, cooldown)
    went = guide.next() if go_on else None
    if as_json:
        print_json({"skipped": skipped, "next": _step_document(went) if went else None})
        return
    echo(f"skipped {label(skipped)}")
    if went:
        echo(navigation_text(went))


# ── remuda dismiss ──


@declare.command("dismiss")
@waiting_argument(required=False)
@declare.option("--client", metavar="NAME", help="Without SESSION: use what this tmux client shows.")
@json_option
def dismiss_command(session: str | None, client: str | None, as_json: bool) -> None:
    """Remove an agent from the queue, until it waits for something new ('later NAME never').

    The agent itself is not affected: its permission request stays open in its terminal and in 'remuda
    approvals'. SESSION is a name, folder, pane (%12) or the beginning of an id, as in 'remuda queue'. Without
    it: the waiting agent that your tmux client shows, never another one.

    Exits with 3 if the agent is not waiting, and with 7 if the boss is not running.

    \b
    Examples:
      remuda dismiss work
      remuda dismiss %12
      remuda queue --json | jq -r '.items[] | select(.reason == "dead").id' | xargs -n 1 remuda dismiss
    """
    item = item_of(session) if session else make_guide(client).shown()
    dismissed = BossClient().post("queue", str(item["id"]), "dismiss")
    if as_json:
        print_json({"dismissed": dismissed})
    else:
        echo(f"dismissed {label(dismissed)} ({reason(dismissed)})")
