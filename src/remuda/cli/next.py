"""remuda next"""

from __future__ import annotations

import sys
from typing import Any

import click

from remuda.boss.client import BossClient
from remuda.boss.guide import Item, Went, label, reason, told
from remuda.errors import NotInQueue

from .asking import elsewhere_option, make_guide
from .common import configuration, find_folder, json_option
from .output import echo, print_json


@click.command("next")
@click.option("--client", metavar="NAME", help="tmux client to move.  [default: yours]")
@elsewhere_option
@click.option("--show", is_flag=True, help="Only print the first agent of the queue.")
@json_option
def command(client: str | None, elsewhere: bool, show: bool, as_json: bool) -> int | None:
    """Go to the first agent in the queue: moves your tmux client to its session, window and pane.

    If your client already shows a waiting agent, goes to the one after it. A session of 'remuda start' gets
    a new window, unless a pane shows it already. 'remuda return' goes back to where you were before.

    Outside tmux, attaches the first waiting session of 'remuda start' to this terminal, like 'remuda attach'.

    Exits with 3 if no agent is waiting, and with 7 if the boss is not running.

    \b
    Examples:
      remuda next
      remuda next --show --json | jq -r .item.message
    """
    if show:
        _show(BossClient(), as_json)
        return None
    guide = make_guide(client, elsewhere=elsewhere)
    if not guide.is_inside and not elsewhere and client is None and not as_json and is_terminal():
        kept = next((one for one in guide.queue.waiting() if is_kept(one)), None)
        if kept is not None:
            return attach_to(kept)
    went = guide.next()
    if as_json:
        print_json(document(went))
    else:
        echo(told(went))
    return None


def is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def is_kept(item: Item) -> bool:
    session = item.get("session") or {}
    return bool(session.get("name")) and session.get("ended") is None


def attach_to(item: Item) -> int:
    """Show a kept session on this terminal, until it is left."""
    from .attach import attach_here

    config = configuration(strict=False)
    return attach_here(str(item["session"]["name"]), find_folder(None, config), config)


def _show(boss: BossClient, as_json: bool) -> None:
    item = boss.get("queue", "next")["item"]
    if item is None:
        raise NotInQueue("no agent is waiting")
    if as_json:
        print_json({"item": item})
    else:
        echo(f"{label(item)} ({reason(item)})")


def document(went: Went) -> dict[str, Any]:
    return {
        "item": went.item,
        "client": went.jump.client,
        "pane": went.jump.pane.id,
        "address": went.jump.pane.address,
        "moved": went.jump.has_moved,
    }
