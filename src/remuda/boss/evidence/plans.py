"""Plans that an agent's hook does not report, from the agent's own record of the call.

Claude Code (2.1.325) reports a plan to hooks only if it has a plan file. Without one the input of the request
is empty, and only the call in the transcript has the plan. It may be written after the hook has run.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from remuda.errors import NotInQueue, NotSafe, RemudaError
from remuda.tasks import TaskSet

from ..attention.display import why_hidden
from ..attention.model import Approval, ApprovalState, BossSession, Reason
from ..conversation_page import read_page, reader_of, transcript_of
from ..service import BossService

log = logging.getLogger("remuda.boss.evidence.plans")

_PAUSES = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each look at the transcript."""
_ENTRIES = 50
_MOST_OPEN = 1000
_EARLIER = 30.0
"""Seconds by which a call can be older than its request: one that never ended can be of another day."""


class Plans:
    """Adds the plan to a request that has none, with `plan_from` in its details."""

    name = "plans"

    def __init__(self, service: BossService) -> None:
        self._service = service
        self._tasks = TaskSet()
        self._known: set[str] = set()

    async def start(self) -> None:
        self._tasks.start(self._follow())
        for approval in self._service.store.approvals(_MOST_OPEN, state=ApprovalState.OPEN):
            self._consider(approval)

    async def close(self) -> None:
        await self._tasks.aclose()

    async def _follow(self) -> None:
        watcher = self._service.feed.watch()
        try:
            async for change in watcher:
                if isinstance(change.value, Approval):
                    self._consider(change.value)
        finally:
            watcher.close()

    def _consider(self, approval: Approval) -> None:
        if _is_wanted(approval) and approval.id not in self._known:
            self._known.add(approval.id)
            self._tasks.start(self._find(approval))

    async def _find(self, approval: Approval) -> None:
        try:
            for pause in _PAUSES:
                await asyncio.sleep(pause)
                now = self._service.approval(approval.id)
                if not _is_wanted(now):
                    return
                session = self._service.session(now.session_id)
                if (plan := await asyncio.to_thread(_read_plan, session, now)) is not None:
                    await self._add(approval.id, plan)
                    return
        except (NotInQueue, NotSafe):  # it is over
            pass
        except (OSError, RemudaError) as error:
            log.info("cannot read the plan of %s: %s", approval.id, error)
        finally:
            self._known.discard(approval.id)

    async def _add(self, approval_id: str, plan: str) -> None:
        now = self._service.approval(approval_id)
        if _is_wanted(now):
            detail = {**now.detail, "plan_from": "transcript"}
            await self._service.change_approval(
                replace(now, input={**now.input, "plan": plan}, detail=detail)
            )


def _is_wanted(approval: Approval) -> bool:
    return (
        approval.reason is Reason.PLAN
        and approval.state is ApprovalState.OPEN
        and bool(approval.tool)
        and bool(why_hidden(approval.reason, approval.tool, approval.input))
    )


def _read_plan(session: BossSession, approval: Approval) -> str | None:
    """Return the plan of the only call that waits for this request; None if that is not certain. Blocks."""
    reader, path = reader_of(session), transcript_of(session)
    if reader is None or path is None:
        return None
    try:
        entries = read_page(reader, path, session.id, _ENTRIES, before=None, after=None).entries
    except FileNotFoundError:
        return None
    ended = {one["call"] for one in entries if one["kind"] == "tool_result"}
    calls = [
        one
        for one in entries
        if one["kind"] == "tool_call"
        and one["tool"] == approval.tool
        and one["call"] not in ended
        and not one["subagent"]
        and (one["at"] or 0.0) >= approval.asked_at - _EARLIER
        and approval.tool_use_id in (None, one["call"])
    ]
    if len(calls) != 1 or calls[0]["cut"]:
        return None
    plan = (calls[0]["input"] or {}).get("plan")
    return plan if isinstance(plan, str) and plan.strip() else None
