"""remuda dismiss"""

from __future__ import annotations

import click

from remuda.boss.client import BossClient
from remuda.boss.guide import label, reason

from .asking import item_of, make_guide, waiting_argument
from .common import json_option, print_json


@click.command("dismiss")
@waiting_argument(required=False)
@click.option("--client", metavar="NAME", help="Without SESSION: what this tmux client shows.")
@json_option
def command(session: str | None, client: str | None, as_json: bool) -> None:
    """Take one who waits out of the queue, until it waits for something new.

    The session itself is left alone: a permission that it asks for stays open in its terminal, and in
    'remuda approvals'. SESSION is a word of 'remuda queue': a name or folder, a pane, or the beginning of an
    id. Without it: the one that your tmux client shows, and no other.

    Exits with 3 when it does not wait, and with 7 when the boss does not run.

    \b
    Examples:
      remuda dismiss work
      remuda dismiss %12
      remuda queue --json | jq -r '.items[] | select(.reason == "dead").id' | xargs -n 1 remuda dismiss
    """
    boss = BossClient()
    item = item_of(boss, session) if session else make_guide(client).shown()
    found = boss.post("queue", str(item["id"]), "dismiss")
    if as_json:
        print_json({"dismissed": found})
    else:
        click.echo(f"dismissed {label(found)} ({reason(found)})")
