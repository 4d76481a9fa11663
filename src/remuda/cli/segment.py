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
      set -g status-right '#(remuda segment) %H:%M'    tmux cuts the end of a long line
    """
    waiting, age = _poll()
    if as_json:
        print_json({"up": waiting is not None, "waiting": waiting, "age": age})
    else:
        echo(segment(waiting, age, styled=not plain))


def _poll() -> tuple[int | None, float | None]:
    """Return how many agents wait, and how long the first has; None if the boss does not answer in time."""
    try:
        queue = BossClient(timeout=_TIMEOUT).get("segment")
    except (RemudaError, OSError):
        return None, None
    return queue["waiting"], queue["age"]
