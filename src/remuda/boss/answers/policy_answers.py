"""Decide permission requests by the policy.

Its file is read again for each request. If it cannot be read or is not valid, a human is asked.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import replace

from remuda.agents import DEFAULT_AGENT
from remuda.errors import InvalidOptions, NotInQueue

from ..attention.model import Approval, BossSession
from ..folder import BossFolder
from .approvals import Approvals
from .permission_policy import Policy, PolicyDecision, PolicyVerdict, load_policy, policy_file
from .policy_request import make_request

log = logging.getLogger("remuda.boss.answers.permission_policy")

DENIED = "A rule of the user denies this. Continue without it, or say what you need."


class PolicyAnswers:
    """Delivers what the policy decides. Each decision is recorded with the name of its rule."""

    def __init__(self, approvals: Approvals, folder: BossFolder) -> None:
        self._approvals = approvals
        self._folder = folder

    async def consider(self, approval: Approval) -> None:
        try:
            session: BossSession | None = self._approvals.service.session(approval.session_id)
        except NotInQueue:
            session = None
        try:
            policy, verdict = await asyncio.to_thread(self._decide, approval, session)
        except InvalidOptions as error:
            log.warning("the policy is not applied: %s", error)
            return
        if verdict.rule is None:
            return
        if policy.dry_run:
            await self._note(approval, verdict)
        elif verdict.decision is not PolicyDecision.ASK:
            await self._answer(approval, verdict)

    def _decide(self, approval: Approval, session: BossSession | None) -> tuple[Policy, PolicyVerdict]:
        policy = load_policy(policy_file(self._folder, os.environ))
        if not policy.rules or approval.detail.get("hearsay"):
            return policy, PolicyVerdict(PolicyDecision.ASK)
        names = (approval.session_id, session.name if session else None)
        # Anyone who posts events may have moved the session: the request itself says where it is.
        cwd = approval.detail.get("cwd") or (session.cwd if session else None)
        request = make_request(
            approval.tool,
            approval.reason,
            approval.input,
            names,
            cwd,
            policy.command_tools,
            agent=session.agent if session else DEFAULT_AGENT,
        )
        return policy, policy.decide(request)

    async def _answer(self, approval: Approval, verdict: PolicyVerdict) -> None:
        answer = {"behavior": str(verdict.decision)}
        if verdict.decision is PolicyDecision.DENY:
            answer["message"] = (verdict.rule.message if verdict.rule else "") or DENIED
        await self._approvals.answer(approval.id, answer, f"policy: {verdict.name}")

    async def _note(self, approval: Approval, verdict: PolicyVerdict) -> None:
        service = self._approvals.service
        current = service.approval(approval.id)
        would = {"decision": str(verdict.decision), "rule": verdict.name, "dry_run": True}
        if current.detail.get("policy") != would:
            await service.change_approval(replace(current, detail={**current.detail, "policy": would}))
