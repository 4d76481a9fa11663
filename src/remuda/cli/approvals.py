"""remuda approvals"""

from __future__ import annotations

import time
from typing import Any

import click

from remuda.boss.attention.naming import distinct, label
from remuda.boss.client import BossClient
from remuda.duration import show_duration

from .asking import waiting_argument
from .common import json_option, print_json, print_table
from .leave import find_approval, outcome, session_of, show

_HEAD = ("ID", "WHO", "TOOL", "ASKED", "STATE", "WHAT")


@click.command("approvals")
@waiting_argument("word", required=False, metavar="[ID|SESSION]")
@click.option("-a", "--all", "everything", is_flag=True, help="The whole ledger, the newest first.")
@click.option(
    "-n", "limit", type=click.IntRange(1, 1000), default=100, help="So many at most.  [default: 100]"
)
@json_option
def command(word: str | None, everything: bool, limit: int, as_json: bool) -> None:
    """List what agents ask leave for, or show one request whole: its input, a diff, who answered, what then.

    \b
    Examples:
      remuda approvals
      remuda approvals work
      remuda approvals --all --json | jq '.approvals[] | select(.by == "policy: docs")'
    """
    boss = BossClient()
    if word is not None:
        found = find_approval(boss, word)
        print_json(found) if as_json else show(found, session_of(boss, found))
        return
    document = boss.get("approvals", state=None if everything else "open", limit=limit)
    if as_json:
        print_json(document)
        return
    if not document["approvals"]:
        click.echo("nothing was ever asked" if everything else "nothing is asked")
        return
    names = _names(boss, {one["session_id"] for one in document["approvals"]})
    print_table(_HEAD, [_row(one, names) for one in document["approvals"]])


def _names(boss: BossClient, wanted: set[str]) -> dict[str, str]:
    found = [one for one in boss.get("sessions", all=True)["sessions"] if one["id"] in wanted]
    return distinct({one["id"]: label(one["name"], one["repo"] or one["cwd"], one["id"]) for one in found})


def _row(approval: dict[str, Any], names: dict[str, str]) -> tuple[str, ...]:
    message = str(approval["detail"].get("message", "")).removeprefix(f"{approval['tool']}: ")
    # It comes from an agent: no control characters on the user's terminal.
    what = " ".join("".join(c if c.isprintable() else " " for c in message).split())
    return (
        approval["id"],
        names.get(approval["session_id"], approval["session_id"][:8]),
        approval["tool"],
        show_duration(max(0.0, time.time() - approval["asked_at"])),
        outcome(approval),
        what,
    )
