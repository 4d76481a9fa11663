"""remuda return"""

from __future__ import annotations

import click

from .asking import elsewhere_option, make_guide
from .common import json_option
from .output import echo, print_json


@click.command("return")
@click.option("--client", metavar="NAME", help="tmux client to move.  [default: yours]")
@elsewhere_option
@json_option
def command(client: str | None, elsewhere: bool, as_json: bool) -> None:
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
