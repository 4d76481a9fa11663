"""Decisions on permission requests: who made which, and how they reach the agent.

The first decision counts. It is stored before it is delivered, and marked as delivered afterwards: a boss
that is killed in between delivers it again after a restart. A kept session gets it through its keeper, which
holds the agent's hook; any other through its own hook, which waits in a request to us (`hold`). The dialog is
on the terminal all the time: a user there may be first, and then nothing is delivered. Events report what
happened then, and the request keeps that as proof (`boss/attention/rules`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from remuda.agents import find_agent
from remuda.agents.permission import PermissionDecision, check_refusals
from remuda.errors import AlreadyAnswered, InvalidOptions, NotInQueue, NotSafe, RemudaError
from remuda.keeper.aclient import AsyncKeeperClient
from remuda.tasks import TaskSet

from ..attention.model import Approval, ApprovalState, BossSession, Event, EventKind, Reason, Source
from ..budgets import BUDGET_REFUSES
from ..service import APPROVAL_ENDED, BossService, only_at_terminal
from .decision import Answer, as_question, read_decision

log = logging.getLogger("remuda.boss.answers.approvals")

KEEPER_TIMEOUT = 10.0
MAX_HOLD = 24 * 3600.0

Output = dict[str, Any] | None


@dataclass(slots=True)
class WaitingHook:
    """A hook that waits. `output` becomes what it must print; None for no opinion."""

    output: asyncio.Future[Output]
    why: str = "open"


@dataclass(slots=True)
class Approvals:
    """An `Answerer`. Use from the service's loop, from `open` to `close`."""

    service: BossService
    folder: Path
    """The folder with the sockets of the keepers."""
    on_open: Callable[[Approval], Awaitable[None]] | None = None
    """Called with every request that can be decided: when it is reported, and when a hook begins to wait."""
    _waiting_hooks: dict[str, list[WaitingHook]] = field(default_factory=dict)
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)
    _tasks: TaskSet = field(default_factory=TaskSet)
    _announced: set[str] = field(default_factory=set)

    async def open(self) -> None:
        self._tasks.start(self._follow())
        for approval in self.service.open_approvals():
            self._opened(approval)

    async def close(self) -> None:
        """Waiting hooks are released: they ask the next boss."""
        for approval_id in list(self._waiting_hooks):
            self._release(approval_id, None, "closing")
        await self._tasks.aclose()

    # ── answering ──

    async def answer(self, approval_id: str, answer: Answer, by: str) -> Approval:
        """Raises `NotInQueue`, `AlreadyAnswered`, `InvalidOptions`; `NotSafe` if the decision cannot be
        delivered."""
        lock = self._locks.setdefault(approval_id, asyncio.Lock())
        try:
            async with lock:
                approval = self.service.open_approval(approval_id)
                deliver = self._channel(approval)
                decision = read_decision(approval, answer, self._session(approval).agent)
                now = self.service.clock()
                await self.service.change_approval(replace(approval, answer=dict(answer), by=by, at=now))
                return await self._deliver(approval_id, decision, deliver)
        finally:
            if not lock.locked():
                self._locks.pop(approval_id, None)

    async def _deliver(
        self,
        approval_id: str,
        decision: PermissionDecision,
        deliver: Callable[[PermissionDecision], Awaitable[None]],
    ) -> Approval:
        try:
            await deliver(decision)
        except AlreadyAnswered:
            await self._forget(approval_id, ApprovalState.ENDED)
            raise
        except RemudaError:
            await self._forget(approval_id, ApprovalState.OPEN)
            raise
        delivered = self.service.approval(approval_id)
        now = self.service.clock()
        delivered = replace(delivered, state=ApprovalState.ANSWERED, at=delivered.at or now, delivered_at=now)
        await self.service.change_approval(delivered)
        await self._report_end(delivered, "answered")
        log.info("request %s: %s by %s", approval_id, "allowed" if decision.allow else "denied", delivered.by)
        return self.service.approval(approval_id)

    async def _forget(self, approval_id: str, state: ApprovalState) -> None:
        """Remove a decision that was not delivered, as far as we know."""
        approval = replace(self.service.approval(approval_id), answer=None, by=None)
        if state is ApprovalState.ENDED:
            await self.service.change_approval(replace(approval, state=state, at=self.service.clock()))
            await self._report_end(approval, "answered at the terminal")
        elif approval.state is ApprovalState.OPEN:
            await self.service.change_approval(replace(approval, at=None))

    async def _report_end(self, approval: Approval, why: str) -> None:
        at = max(self.service.clock(), approval.asked_at)
        facts = {"ask": approval.id, "why": why}
        event = Event(
            EventKind.ASK_ENDED, approval.session_id, at, Source.PROCESS, f"answer:{approval.id}", facts
        )
        await self.service.take(event)

    # ── delivery ──

    def _channel(self, approval: Approval) -> Callable[[PermissionDecision], Awaitable[None]]:
        session = self._session(approval)
        if approval.reason is Reason.BUDGET:
            return lambda decision: self._to_budget(approval, decision)
        if approval.id in self._waiting_hooks:
            return lambda decision: self._to_hook(session, approval, decision)
        if session.name is not None:
            return lambda decision: self._to_keeper(session, approval, decision)
        raise only_at_terminal(session)

    def _session(self, approval: Approval) -> BossSession:
        return self.service.session(approval.session_id)

    async def _to_budget(self, approval: Approval, decision: PermissionDecision) -> None:
        if self.service.budgets is None:
            raise NotSafe("the boss does not count budgets", hint="'remuda boss status' says why")
        check_refusals(lambda _: BUDGET_REFUSES, as_question(approval), decision)
        await self.service.budgets.decide(approval, allow=decision.allow)

    async def _to_hook(self, session: BossSession, approval: Approval, decision: PermissionDecision) -> None:
        hooks = find_agent(session.agent).hooks
        if hooks is None:
            raise NotSafe(
                f"Remuda cannot answer requests of {session.agent}", hint="decide in the agent's terminal"
            )
        if not self._release(approval.id, hooks.decide(as_question(approval), decision), "answered"):
            raise NotSafe("the agent is no longer waiting for this decision")

    async def _to_keeper(
        self, session: BossSession, approval: Approval, decision: PermissionDecision
    ) -> None:
        assert session.name is not None
        client = await AsyncKeeperClient.connect(
            session.name, self.folder, lambda _event: None, lambda: None, timeout=KEEPER_TIMEOUT
        )
        try:
            asks = (await client.request("asks", within=KEEPER_TIMEOUT))["asks"]
            ask_id = find_same_ask(asks, approval)
            try:
                await client.request("answer", within=KEEPER_TIMEOUT, id=ask_id, **_arguments(decision))
            except InvalidOptions:
                if ask_id:
                    raise  # the agent cannot take this decision, and the keeper says why
                raise NotSafe(
                    f"session '{session.name}' takes decisions only in its terminal",
                    hint=f"go there with 'remuda attach {session.name}'",
                ) from None
            except AlreadyAnswered as error:
                raise AlreadyAnswered(APPROVAL_ENDED if not ask_id else error.message) from None
        finally:
            client.close()

    # ── hooks that wait ──

    async def hold(
        self, approval_id: str, wait: float, gone: Callable[[], Awaitable[None]] | None = None
    ) -> tuple[str, Output]:
        """Wait for the decision, for at most `wait` seconds, and only until `gone` returns.

        Returns why the wait ended ("answered", "ended", "open", "closing"), and what the hook must print.
        """
        hook = WaitingHook(asyncio.get_running_loop().create_future())
        self._waiting_hooks.setdefault(approval_id, []).append(hook)
        left = asyncio.ensure_future(gone()) if gone is not None else None
        try:
            approval = self.service.approval(approval_id)
            if approval.state is not ApprovalState.OPEN:
                return "ended", None
            until = self.service.clock() + min(wait, MAX_HOLD)
            await self.service.change_approval(replace(approval, expires_at=until))
            self._opened(self.service.approval(approval_id), again=True)
            waits: set[asyncio.Future[Any]] = {hook.output, *([left] if left else [])}
            await asyncio.wait(waits, timeout=min(wait, MAX_HOLD), return_when=asyncio.FIRST_COMPLETED)
            return hook.why, hook.output.result() if hook.output.done() else None
        finally:
            self._remove_hook(approval_id, hook)
            if left is not None:
                left.cancel()
                await asyncio.gather(left, return_exceptions=True)

    def _remove_hook(self, approval_id: str, hook: WaitingHook) -> None:
        if hook in (waiting := self._waiting_hooks.get(approval_id, [])):
            waiting.remove(hook)
        if not waiting:
            self._waiting_hooks.pop(approval_id, None)

    def _release(self, approval_id: str, output: Output, why: str) -> bool:
        """Return whether a hook was waiting."""
        waiting = [one for one in self._waiting_hooks.get(approval_id, ()) if not one.output.done()]
        for one in waiting:
            one.why = why
            one.output.set_result(output)
        return bool(waiting)

    # ── what happens ──

    async def _follow(self) -> None:
        watcher = self.service.feed.watch()
        try:
            async for change in watcher:
                if change.kind in ("approval", "reset"):
                    self._refresh()
        finally:
            watcher.close()

    def _refresh(self) -> None:
        """Release hooks whose dialog is over, and announce new requests."""
        for approval_id in list(self._waiting_hooks):
            try:
                state = self.service.approval(approval_id).state
            except NotInQueue:
                state = ApprovalState.ENDED
            if state is ApprovalState.ENDED:
                self._release(approval_id, None, "ended")
        for approval in self.service.open_approvals():
            if approval.id not in self._announced:
                self._opened(approval)
        self._announced &= {approval.id for approval in self.service.open_approvals()}

    def _opened(self, approval: Approval, *, again: bool = False) -> None:
        self._announced.add(approval.id)
        is_budget = approval.reason is Reason.BUDGET
        if approval.answer is not None and (again or is_budget or self._session(approval).name is not None):
            self._tasks.start(self._deliver_stored(approval.id))
        elif self.on_open is not None and not is_budget:  # no rule raises a budget
            self._tasks.start(self._announce(approval))

    async def _announce(self, approval: Approval) -> None:
        assert self.on_open is not None
        try:
            await self.on_open(approval)
        except RemudaError as error:
            log.info("request %s needs a human: %s", approval.id, error)

    async def _deliver_stored(self, approval_id: str) -> None:
        """Deliver what the boss before us stored, and may have delivered."""
        async with self._locks.setdefault(approval_id, asyncio.Lock()):
            approval = self.service.approval(approval_id)
            if approval.state is not ApprovalState.OPEN or approval.answer is None:
                return
            try:
                decision = read_decision(approval, approval.answer, self._session(approval).agent)
                await self._deliver(approval_id, decision, self._channel(approval))
            except RemudaError as error:
                log.info("request %s: cannot deliver the decision: %s", approval_id, error)


def find_same_ask(asks: list[Mapping[str, Any]], approval: Approval) -> str:
    """Return the keeper's id of the request; empty if it is closed."""
    for one in asks:
        if approval.tool_use_id is not None and one.get("tool_use_id") == approval.tool_use_id:
            return str(one["id"])
    for one in asks:  # if both name a call, and not the same one, it is another request like it
        both_named = approval.tool_use_id is not None and one.get("tool_use_id") is not None
        if not both_named and (one.get("tool"), one.get("input")) == (approval.tool, approval.input):
            return str(one["id"])
    return ""


def _arguments(decision: PermissionDecision) -> dict[str, Any]:
    if not decision.allow:
        return {"behavior": "deny", "message": decision.message, "interrupt": decision.interrupt}
    edited = {"input": dict(decision.input)} if decision.input is not None else {}
    return {"behavior": "allow", "always": decision.always, **edited}
