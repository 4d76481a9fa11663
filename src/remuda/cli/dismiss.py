"""remuda dismiss"""

from __future__ import annotations

import click

from remuda.boss.client import BossClient
from remuda.boss.navigator import label, reason

from .asking import item_of, make_guide, waiting_argument
from .common import json_option
from .output import echo, print_json


@click.command("dismiss")
@waiting_argument(required=False)
@click.option("--client", metavar="NAME", help="Without SESSION: use what this tmux client shows.")
@json_option
def command(session: str | None, client: str | None, as_json: bool) -> None:
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
    boss = BossClient()
    item = item_of(boss, session) if session else make_guide(client).shown()
    found = boss.post("queue", str(item["id"]), "dismiss")
    if as_json:
        print_json({"dismissed": found})
    else:
        echo(f"dismissed {label(found)} ({reason(found)})")
