"""remuda segment"""

from __future__ import annotations

import click

from remuda.boss.client import BossClient
from remuda.errors import RemudaError
from remuda.tmux.bindings import segment

from .common import json_option
from .output import echo, print_json

_TIMEOUT = 0.5


@click.command("segment")
@click.option("--plain", is_flag=True, help="Print without tmux styles.")
@json_option
def command(plain: bool, as_json: bool) -> None:
    """Print the queue for a status line: '✗ down' without a boss, nothing if no agent waits, else the count.

    Takes at most half a second and always exits with 0.

    \b
    Examples:
      remuda segment --plain
      set -ga status-right ' #(remuda segment)'      in tmux.conf; 'remuda setup tmux' writes it
    """
    waiting, age = _look()
    if as_json:
        print_json({"up": waiting is not None, "waiting": waiting, "age": age})
    else:
        echo(segment(waiting, age, styled=not plain))


def _look() -> tuple[int | None, float | None]:
    """How many wait, and for how long the first; None for a boss that is down, or as good as down."""
    try:
        found = BossClient(timeout=_TIMEOUT).get("segment")
    except (RemudaError, OSError):
        return None, None
    return found["waiting"], found["age"]
