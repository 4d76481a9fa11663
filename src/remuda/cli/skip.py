"""remuda skip"""

from __future__ import annotations

import click

from remuda.boss.client import BossClient
from remuda.boss.guide import label, told

from .asking import item_of, make_guide, waiting_argument
from .common import json_option, print_json, time_span
from .next import document


@click.command("skip")
@waiting_argument(required=False)
@click.option("--cooldown", type=time_span, metavar="TIME", help="Out of sight for so long.  [default: 30s]")
@click.option("--next", "go_on", is_flag=True, help="Then go to the next, as 'remuda next' does.")
@click.option("--client", metavar="NAME", help="Show it to this tmux client.  [default: yours]")
@json_option
def command(
    session: str | None, cooldown: float | None, go_on: bool, client: str | None, as_json: bool
) -> None:
    """Put one who waits at the end of the queue, and out of sight for a moment.

    SESSION is a word of 'remuda queue': a name or folder, a pane, or the beginning of an id. Without it: the
    one that your tmux client shows, if that one waits, else the first.

    Exits with 3 when nobody waits, and with 7 when the boss does not run.

    \b
    Examples:
      remuda skip
      remuda skip --next
      remuda skip work --cooldown 10m
    """
    guide = make_guide(client)
    skipped = guide.skip(item_of(BossClient(), session) if session else None, cooldown)
    went = guide.next() if go_on else None
    if as_json:
        print_json({"skipped": skipped, "next": document(went) if went else None})
        return
    click.echo(f"skipped {label(skipped)}")
    if went:
        click.echo(told(went))
