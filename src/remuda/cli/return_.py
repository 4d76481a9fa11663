"""remuda return"""

from __future__ import annotations

import click

from .asking import make_guide
from .common import json_option, print_json


@click.command("return")
@click.option("--client", metavar="NAME", help="Take this tmux client back.  [default: yours]")
@json_option
def command(client: str | None, as_json: bool) -> None:
    """Go back to where you were before 'remuda next' first took you elsewhere.

    However many panes were visited in between: it is the place where the first jump began, unless you have
    walked away by hand since. Needs no boss. Exits with 3 when there is no such place.

    \b
    Example:
      remuda return
    """
    done = make_guide(client).back()
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
        click.echo(f"back in {done.pane.address}")
