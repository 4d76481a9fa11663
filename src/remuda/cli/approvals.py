"""remuda approvals"""

from __future__ import annotations

import time
from typing import Any

import click

from remuda.boss.attention.display import distinct, label
from remuda.boss.client import BossClient
from remuda.duration import show_duration
from remuda.untrusted import one_line

from .asking import waiting_argument
from .common import format_option, json_option
from .leave import find_approval, outcome, session_of, show
from .output import echo, print_json, print_table
from .template import check_alone, print_formatted

_HEAD = ("ID", "WHO", "TOOL", "AGE", "STATE", "WHAT")


@click.command("approvals")
@waiting_argument("word", required=False, metavar="[ID|SESSION]")
@click.option("-a", "--all", "everything", is_flag=True, help="Also list decided requests, newest first.")
@click.option(
    "-n",
    "limit",
    type=click.IntRange(1, 1000),
    metavar="N",
    default=100,
    help="List at most N.  [default: 100]",
)
@json_option
@format_option("{id} {tool}")
def command(word: str | None, everything: bool, limit: int, as_json: bool, template: str | None) -> None:
    """List open permission requests, or show one: its input, a diff, who decided, and what happened then.

    \b
    Examples:
      remuda approvals
      remuda approvals work
      remuda approvals --all --json | jq '.approvals[] | select(.by == "policy: docs")'
    """
    check_alone(template, json=as_json)
    if template is not None and word is not None:
        raise click.UsageError("--format is for lists")
    boss = BossClient()
    if word is not None:
        found = find_approval(boss, word)
        print_json(found) if as_json else show(found, session_of(boss, found))
        return
    document = boss.get("approvals", state=None if everything else "open", limit=limit)
    if as_json:
        print_json(document)
        return
    if template is not None:
        print_formatted(template, document["approvals"])
        return
    if not document["approvals"]:
        echo("no permission requests yet" if everything else "no open permission requests")
        return
    names = _names(boss, {one["session_id"] for one in document["approvals"]})
    print_table(_HEAD, [_row(one, names) for one in document["approvals"]])


def _names(boss: BossClient, wanted: set[str]) -> dict[str, str]:
    found = [one for one in boss.get("sessions", all=True)["sessions"] if one["id"] in wanted]
    return distinct({one["id"]: label(one["name"], one["repo"] or one["cwd"], one["id"]) for one in found})


def _row(approval: dict[str, Any], names: dict[str, str]) -> tuple[str, ...]:
    message = str(approval["detail"].get("message", "")).removeprefix(f"{approval['tool']}: ")
    return (
        approval["id"],
        names.get(approval["session_id"], approval["session_id"][:8]),
        approval["tool"],
        show_duration(max(0.0, time.time() - approval["asked_at"])),
        outcome(approval),
        one_line(message),
    )
