"""remuda segment"""

from __future__ import annotations

import click

from remuda.boss.client import BossClient
from remuda.errors import RemudaError
from remuda.tmux.segment import segment

from .common import json_option, print_json

_TIMEOUT = 0.5


@click.command("segment")
@click.option("--plain", is_flag=True, help="Without the styles of tmux.")
@json_option
def command(plain: bool, as_json: bool) -> None:
    """Print what a status line shows: '✗ down' without a boss, nothing when nobody waits, else how many.

    Takes half a second at most and exits with 0, whatever it finds.

    \b
    Examples:
      remuda segment --plain
      set -ga status-right ' #(remuda segment)'      in tmux.conf; 'remuda hooks install --tmux' writes it
    """
    waiting, age = _look()
    if as_json:
        print_json({"up": waiting is not None, "waiting": waiting, "age": age})
    else:
        click.echo(segment(waiting, age, styled=not plain))


def _look() -> tuple[int | None, float | None]:
    """How many wait, and for how long the first; None for a boss that is down, or as good as down."""
    try:
        found = BossClient(timeout=_TIMEOUT).get("segment")
    except (RemudaError, OSError):
        return None, None
    return found["waiting"], found["age"]
