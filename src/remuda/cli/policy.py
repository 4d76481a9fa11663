"""remuda policy"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from remuda.boss.answers.automatic import make_request
from remuda.boss.answers.policy import Policy, Verdict
from remuda.boss.answers.policy_file import load_policy, policy_file
from remuda.boss.attention.model import Reason
from remuda.boss.client import BossClient
from remuda.boss.folder import BossFolder
from remuda.errors import BossDown, InvalidOptions

from .common import complain, json_option, print_json, print_table, short_path
from .leave import outcome

_HEAD = ("ID", "TOOL", "WOULD BE", "BY", "WAS", "WHAT")


@click.group("policy")
def command() -> None:
    """Rules that answer requests for leave in your place; see docs/approvals.md.

    \b
    Examples:
      remuda policy check
      remuda policy check --dry-run
    """


@command.command("check")
@click.option(
    "--file", "given", type=click.Path(path_type=Path), help="Try this file.  [default: the boss's]"
)
@click.option("--dry-run", is_flag=True, help="What would be decided of all that was ever asked, too.")
@click.option(
    "-n", "limit", type=click.IntRange(1, 1000), default=100, help="So many at most.  [default: 100]"
)
@json_option
def check(given: Path | None, dry_run: bool, limit: int, as_json: bool) -> None:
    """Read the policy and say what is wrong with it, or what it would decide. Nothing is answered by this.

    \b
    Examples:
      remuda policy check
      remuda policy check --dry-run
      remuda policy check --file new.toml --dry-run --json | jq '.requests[] | select(.decision == "allow")'
    """
    path = given or policy_file(BossFolder.default(), os.environ)
    policy = load_policy(path)
    if given is not None and not path.exists():
        raise InvalidOptions(f"there is no {given}")
    requests = _requests(policy, None if dry_run else "open", limit)
    if as_json:
        rules = [{"name": rule.name, "decision": str(rule.decision)} for rule in policy.rules]
        found = {"file": str(path), "exists": path.exists(), "dry_run": policy.dry_run, "rules": rules}
        print_json(found | {"requests": [_document(*one) for one in requests]})
        return
    state = f"{len(policy.rules)} rules" if path.exists() else "not there: everything is asked"
    click.echo(f"{short_path(str(path))}: {state}{', dry run' if policy.dry_run else ''}")
    if requests:
        print_table(_HEAD, [_row(*one) for one in requests])


def _requests(policy: Policy, state: str | None, limit: int) -> list[tuple[dict[str, Any], Verdict]]:
    boss = BossClient()
    try:
        found = boss.get("approvals", state=state, limit=limit)["approvals"]
        sessions = {one["id"]: one for one in boss.get("sessions", all=True)["sessions"]}
    except BossDown:
        complain("the boss does not run: there is nothing to be tried")
        return []
    return [(one, _decide(policy, one, sessions.get(one["session_id"], {}))) for one in found]


def _decide(policy: Policy, approval: dict[str, Any], session: dict[str, Any]) -> Verdict:
    names = (approval["session_id"], session.get("name"))
    reason = Reason(approval["reason"])
    return policy.decide(make_request(approval["tool"], reason, approval["input"], names, session.get("cwd")))


def _document(approval: dict[str, Any], verdict: Verdict) -> dict[str, Any]:
    return {
        "id": approval["id"],
        "tool": approval["tool"],
        "input": approval["input"],
        "decision": str(verdict.decision),
        "rule": verdict.name or None,
        "why": verdict.why or None,
        "was": outcome(approval),
    }


def _row(approval: dict[str, Any], verdict: Verdict) -> tuple[str, ...]:
    message = str(approval["detail"].get("message", "")).removeprefix(f"{approval['tool']}: ")
    what = " ".join("".join(c if c.isprintable() else " " for c in message).split())
    by = verdict.name or verdict.why
    return approval["id"], approval["tool"], str(verdict.decision), by, outcome(approval), what
