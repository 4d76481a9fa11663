"""remuda next"""

from __future__ import annotations

from typing import Any

import click

from remuda.boss.client import BossClient
from remuda.boss.guide import Went, label, reason, told
from remuda.errors import NotInQueue

from .asking import make_guide
from .common import json_option, print_json


@click.command("next")
@click.option("--client", metavar="NAME", help="Show it to this tmux client.  [default: yours]")
@click.option("--show", is_flag=True, help="Only say who is first; go nowhere.")
@json_option
def command(client: str | None, show: bool, as_json: bool) -> None:
    """Go to the first that waits: your tmux client is taken to its session, window and pane.

    From one that waits it goes to the one behind it. A kept session is opened in a window, unless a pane
    shows it already. 'remuda return' takes you back to where you were before the first of these jumps.

    Exits with 3 when nobody waits, and with 7 when the boss does not run.

    \b
    Examples:
      remuda next
      remuda next --show --json | jq -r .item.message
    """
    if show:
        _show(BossClient(), as_json)
        return
    went = make_guide(client).next()
    if as_json:
        print_json(document(went))
    else:
        click.echo(told(went))


def _show(boss: BossClient, as_json: bool) -> None:
    item = boss.get("queue", "next")["item"]
    if item is None:
        raise NotInQueue("nobody waits")
    if as_json:
        print_json({"item": item})
    else:
        click.echo(f"{label(item)} ({reason(item)})")


def document(went: Went) -> dict[str, Any]:
    return {
        "item": went.item,
        "client": went.jump.client,
        "pane": went.jump.pane.id,
        "address": went.jump.pane.address,
        "moved": went.jump.has_moved,
    }
