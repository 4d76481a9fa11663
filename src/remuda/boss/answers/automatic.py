"""The policy's file, and requests for leave that it answers.

The file is looked at again for each request. One that cannot be read, or is not right, decides nothing: a
human is asked.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from remuda.agents.claude.asking import file_path, is_plain, shell_command
from remuda.errors import InvalidOptions, NotInQueue

from ..attention.model import Approval, Reason, Session
from ..folder import BossFolder
from .approvals import Approvals
from .policy import Decision, Policy, Request, Verdict
from .policy_file import load_policy, policy_file

log = logging.getLogger("remuda.boss.answers.policy")

DENIED = "A rule of the user's does not allow this. Go on without it, or say what you would need."


def make_request(
    tool: str, reason: Reason, given: Mapping[str, Any], names: Sequence[str | None], cwd: str | None
) -> Request:
    """Looks at the disk: what a path means is known when its symbolic links are."""
    asked = file_path(given)
    if asked is not None:
        asked = os.path.join(cwd or "", os.path.expanduser(asked))
    return Request(
        tool,
        reason,
        shell_command(tool, given),
        is_plain(tool, given),
        _real(asked),
        _real(cwd),
        tuple(name for name in names if name),
        _normal(asked),
        _normal(cwd),
    )


def _real(path: str | None) -> str | None:
    """As it is where nobody knows what it means."""
    if path is None or not os.path.isabs(path):
        return path
    try:
        return os.path.realpath(path)
    except ValueError:  # no path at all
        return ""


def _normal(path: str | None) -> str | None:
    if path is None or not os.path.isabs(path):
        return path
    return "/" + os.path.normpath(path).lstrip("/")


class Automatic:
    """Answers what the policy decides; every decision stands in the ledger with the name of its rule."""

    def __init__(self, approvals: Approvals, folder: BossFolder) -> None:
        self._approvals = approvals
        self._folder = folder

    async def consider(self, approval: Approval) -> None:
        try:
            session: Session | None = self._approvals.desk.session(approval.session_id)
        except NotInQueue:
            session = None
        try:
            policy, verdict = await asyncio.to_thread(self._decide, approval, session)
        except InvalidOptions as error:
            log.warning("the policy decides nothing: %s", error)
            return
        if verdict.rule is None:
            return
        if policy.dry_run:
            await self._note(approval, verdict)
        elif verdict.decision is not Decision.ASK:
            await self._answer(approval, verdict)

    def _decide(self, approval: Approval, session: Session | None) -> tuple[Policy, Verdict]:
        policy = load_policy(policy_file(self._folder, os.environ))
        if not policy.rules:
            return policy, Verdict(Decision.ASK)
        names = (approval.session_id, session.name if session else None)
        cwd = session.cwd if session else None
        return policy, policy.decide(make_request(approval.tool, approval.reason, approval.input, names, cwd))

    async def _answer(self, approval: Approval, verdict: Verdict) -> None:
        answer = {"behavior": str(verdict.decision)}
        if verdict.decision is Decision.DENY:
            answer["message"] = (verdict.rule.message if verdict.rule else "") or DENIED
        await self._approvals.answer(approval.id, answer, f"policy: {verdict.name}")

    async def _note(self, approval: Approval, verdict: Verdict) -> None:
        desk = self._approvals.desk
        current = desk.approval(approval.id)
        would = {"decision": str(verdict.decision), "rule": verdict.name, "dry_run": True}
        if current.detail.get("policy") != would:
            await desk.change_approval(replace(current, detail={**current.detail, "policy": would}))
