"""remuda deny"""

from __future__ import annotations

from typing import Any

import click

from remuda.boss.client import BossClient

from .asking import waiting_argument
from .common import json_option
from .leave import answer, find_approval


@click.command("deny")
@waiting_argument("word", metavar="ID|SESSION")
@click.option(
    "-m", "--message", metavar="TEXT", help="Why, for the agent. For a plan: what is to be planned anew."
)
@click.option("--interrupt", is_flag=True, help="End the agent's turn, too.")
@json_option
def command(word: str, message: str | None, interrupt: bool, as_json: bool) -> None:
    """Refuse what an agent asks leave for. It is told why, and goes on without it.

    The first answer counts: when somebody else was first you are told who, and the exit code is 8.

    \b
    Examples:
      remuda deny work --message "use the staging database"
      remuda deny 3f9a1c02de --interrupt
    """
    boss = BossClient()
    approval = find_approval(boss, word)
    body: dict[str, Any] = {"behavior": "deny"}
    if message:
        body["message"] = message
    if interrupt:
        body["interrupt"] = True
    answer(boss, approval, body, as_json=as_json)
