"""remuda skip"""

from __future__ import annotations

import click

from remuda.boss.client import BossClient
from remuda.boss.navigator import label, navigation_text

from .asking import elsewhere_option, item_of, make_guide, waiting_argument
from .common import json_option, time_span
from .next import document
from .output import echo, print_json


@click.command("skip")
@waiting_argument(required=False)
@click.option(
    "--cooldown", type=time_span, metavar="TIME", help="Hide it for TIME (90, 45m, 2h30m).  [default: 30s]"
)
@click.option("--next", "go_on", is_flag=True, help="Then go to the next one, like 'remuda next'.")
@click.option("--client", metavar="NAME", help="tmux client to move.  [default: yours]")
@elsewhere_option
@json_option
def command(
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
    skipped = guide.skip(item_of(BossClient(), session) if session else None, cooldown)
    went = guide.next() if go_on else None
    if as_json:
        print_json({"skipped": skipped, "next": document(went) if went else None})
        return
    echo(f"skipped {label(skipped)}")
    if went:
        echo(navigation_text(went))
