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
@click.option("-m", "--message", metavar="TEXT", help="Reason for the agent. For a plan: what to change.")
@click.option("--interrupt", is_flag=True, help="Also end the agent's turn.")
@json_option
def command(word: str, message: str | None, interrupt: bool, as_json: bool) -> None:
    """Deny a permission request. The agent gets the reason and continues without it.

    The first decision counts: if someone decided before you, prints who it was and exits with 8.

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
