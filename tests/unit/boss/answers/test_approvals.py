"""Answers to requests for permission: the first counts, and reaches a hook that waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remuda.agents.attention import digest
from remuda.boss.answers.approvals import Approvals
from remuda.boss.answers.decision import read_decision
from remuda.boss.attention.model import Approval, ApprovalState, Reason
from remuda.boss.service import BossService
from remuda.errors import AlreadyAnswered, InvalidOptions, NotInQueue, NotSafe, SessionNotFound
from support.boss import event, open_service

BASH = {"command": "touch x"}


class Bench:
    def __init__(self, service: BossService, approvals: Approvals) -> None:
        self.service = service
        self.approvals = approvals

    async def ask(self, **facts: Any) -> Approval:
        given = {"tool": "Bash", "input": BASH, "reason": "permission", "agent": "claude", **facts}
        asked = event("asked", 990.0, **given)
        await self.service.take(asked)
        found = self.service.approval_of(asked)
        assert found is not None
        return found

    async def hold(self, approval: Approval, gone: Any = None) -> asyncio.Task[tuple[str, Any]]:
        """A hook that waits."""
        task = asyncio.create_task(self.approvals.hold(approval.id, 60, gone))
        while self.service.approval(approval.id).expires_at is None:
            await asyncio.sleep(0)
        return task


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Bench]:
    async with open_service(folder) as service:
        approvals = Approvals(service, folder)
        await approvals.open()
        try:
            yield Bench(service, approvals)
        finally:
            await approvals.close()


def run(folder: Path, work: Callable[[Bench], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with opened(folder) as bench, asyncio.timeout(20):
            await work(bench)

    asyncio.run(whole())


def decision(output: Any) -> dict[str, Any]:
    found: dict[str, Any] = output["hookSpecificOutput"]["decision"]
    return found


# ── the answer ──


def test_answer_is_what_the_waiting_hook_says_and_is_in_the_ledger(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        approval = await bench.ask()
        hook = await bench.hold(approval)
        answer = {"behavior": "allow", "updated_input": {"command": "touch y"}}
        answered = await bench.approvals.answer(approval.id, answer, "me")
        assert (answered.state, answered.by, answered.answer) == (ApprovalState.ANSWERED, "me", answer)
        assert (answered.at, answered.delivered_at) == (1000.0, 1000.0)
        state, output = await hook
        assert state == "answered"
        assert decision(output) == {"behavior": "allow", "updatedInput": {"command": "touch y"}}
        assert bench.service.queue() == []

    run(tmp_path, work)


def test_second_answer_learns_who_was_first(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        approval = await bench.ask()
        hook = await bench.hold(approval)
        both = [
            bench.approvals.answer(approval.id, {"behavior": "deny", "message": "no"}, "first"),
            bench.approvals.answer(approval.id, {"behavior": "allow"}, "second"),
        ]
        one, other = await asyncio.gather(*both, return_exceptions=True)
        assert isinstance(one, Approval)
        assert isinstance(other, AlreadyAnswered)
        assert "first has already decided: deny" in str(other)
        assert decision((await hook)[1]) == {"behavior": "deny", "message": "no"}

    run(tmp_path, work)


def test_answer_that_no_one_waits_for_is_refused_and_leaves_it_open(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        approval = await bench.ask()
        with pytest.raises(NotSafe):
            await bench.approvals.answer(approval.id, {"behavior": "allow"}, "me")
        found = bench.service.approval(approval.id)
        assert (found.state, found.answer, found.by) == (ApprovalState.OPEN, None, None)

    run(tmp_path, work)


def test_answer_to_nothing_to_what_is_over_and_answer_that_is_none(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        with pytest.raises(NotInQueue):
            await bench.approvals.answer("none", {"behavior": "allow"}, "me")
        approval = await bench.ask()
        hook = await bench.hold(approval)
        with pytest.raises(InvalidOptions):
            await bench.approvals.answer(approval.id, {"behavior": "maybe"}, "me")
        await bench.service.take(event("interrupted", 995.0))
        assert await hook == ("ended", None)
        with pytest.raises(AlreadyAnswered):
            await bench.approvals.answer(approval.id, {"behavior": "allow"}, "me")

    run(tmp_path, work)


def test_answer_for_a_kept_session_that_is_gone_leaves_it_open(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        approval = await bench.ask(name="work", origin="kept")
        with pytest.raises(SessionNotFound):
            await bench.approvals.answer(approval.id, {"behavior": "allow"}, "me")
        assert bench.service.approval(approval.id).state is ApprovalState.OPEN
        assert bench.service.approval(approval.id).answer is None

    run(tmp_path, work)


def test_proof_says_that_the_tool_ran(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        began = event("tool_began", 989.0, tool="Bash", tool_use_id="t1", digest=digest("Bash", BASH))
        await bench.service.take(began)
        approval = await bench.ask()
        await bench.hold(approval)
        await bench.approvals.answer(approval.id, {"behavior": "allow"}, "me")
        await bench.service.take(event("tool_ran", 1001.0, tool="Bash", tool_use_id="t1", ok=True))
        found = bench.service.approval(approval.id)
        assert found.state is ApprovalState.ANSWERED
        assert found.proof == {"ran": True, "at": 1001.0, "by": "hook", "tool_use_id": "t1"}

    run(tmp_path, work)


# ── hooks that wait ──


def test_hook_that_went_away_is_not_answered(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        approval = await bench.ask()
        away = asyncio.Event()

        async def gone() -> None:
            await away.wait()

        hook = await bench.hold(approval, gone)
        away.set()
        assert await hook == ("open", None)
        with pytest.raises(NotSafe):
            await bench.approvals.answer(approval.id, {"behavior": "allow"}, "me")

    run(tmp_path, work)


def test_hook_waits_no_longer_than_it_said(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        approval = await bench.ask()
        assert await bench.approvals.hold(approval.id, 0.0) == ("open", None)
        assert bench.service.approval(approval.id).state is ApprovalState.OPEN

    run(tmp_path, work)


def test_boss_that_ends_lets_its_hooks_go(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        approval = await bench.ask()
        hook = await bench.hold(approval)
        await bench.approvals.close()
        assert await hook == ("closing", None)

    run(tmp_path, work)


def test_answer_that_a_killed_boss_had_written_is_given_to_the_hook_that_comes_back(tmp_path: Path) -> None:
    async def before(bench: Bench) -> None:
        approval = await bench.ask()
        intended = replace(approval, answer={"behavior": "deny", "message": "no"}, by="me", at=999.0)
        await bench.service.change_approval(intended)

    async def after(bench: Bench) -> None:
        (approval,) = bench.service.open_approvals()
        state, output = await bench.approvals.hold(approval.id, 60)
        assert (state, decision(output)) == ("answered", {"behavior": "deny", "message": "no"})

    run(tmp_path, before)
    run(tmp_path, after)

    async def then(bench: Bench) -> None:
        (approval,) = bench.service.store.approvals(10)
        assert (approval.state, approval.by) == (ApprovalState.ANSWERED, "me")

    run(tmp_path, then)


# ── what is said ──

QUESTIONS = {
    "questions": [
        {"question": "Which colour?", "header": "Colour", "options": [{"label": "Red"}, {"label": "Blue"}]},
        {"question": "How many?", "header": "Count", "options": []},
    ]
}


def asked_for(reason: Reason, given: dict[str, Any]) -> Approval:
    return Approval("a", "s", reason, "AskUserQuestion", given, 1.0)


@pytest.mark.parametrize(
    "answers",
    [
        {"Which colour?": "Red", "How many?": "2"},
        {"Colour": "Red", "Count": "2"},
        {"1": "Red", "2": "2"},
    ],
)
def test_questions_are_answered_by_text_header_or_number(answers: dict[str, str]) -> None:
    ruling = read_decision(
        asked_for(Reason.QUESTION, QUESTIONS), {"behavior": "allow", "answers": answers}, "claude"
    )
    assert ruling.input == {**QUESTIONS, "answers": {"Which colour?": "Red", "How many?": "2"}}


def test_several_answers_to_one_question() -> None:
    answers = {"1": ["Red", "Blue"], "2": "2"}
    ruling = read_decision(
        asked_for(Reason.QUESTION, QUESTIONS), {"behavior": "allow", "answers": answers}, "claude"
    )
    assert ruling.input is not None
    assert ruling.input["answers"]["Which colour?"] == "Red, Blue"


def test_budget_is_allowed_whatever_its_agent_can_take() -> None:
    approval = Approval("a", "s", Reason.BUDGET, "budget", {"used": 5}, 1.0)
    assert read_decision(approval, {"behavior": "allow"}, "acp").allow


def test_always_of_a_command_with_a_star_is_refused_with_the_reason() -> None:
    approval = Approval("a", "s", Reason.PERMISSION, "Bash", {"command": "chmod 600 a*"}, 1.0)
    with pytest.raises(InvalidOptions, match=r"'\*'.*allow it once"):
        read_decision(approval, {"behavior": "allow", "always": True}, "claude")
    assert read_decision(approval, {"behavior": "allow"}, "claude").allow
    plain = {"behavior": "allow", "always": True, "updated_input": {"command": "chmod 600 ab"}}
    assert read_decision(approval, plain, "claude").always


@pytest.mark.parametrize(
    ("reason", "answer"),
    [
        (Reason.QUESTION, {"behavior": "allow"}),
        (Reason.QUESTION, {"behavior": "allow", "answers": {"1": "Red"}}),
        (Reason.QUESTION, {"behavior": "allow", "answers": {"Which size?": "L", "1": "a", "2": "b"}}),
        (Reason.PERMISSION, {"behavior": "allow", "answers": {"1": "Red"}}),
        (Reason.PERMISSION, {"behavior": "allow", "message": "go"}),
        (Reason.PERMISSION, {"behavior": "deny", "updated_input": {"a": 1}}),
        (Reason.PERMISSION, {"behavior": "deny", "always": True}),
        (Reason.PERMISSION, {"behavior": "allow", "updated_input": "rm"}),
        (Reason.PERMISSION, {"behavior": "allow", "updated_input": {}}),
        (Reason.PERMISSION, {}),
    ],
)
def test_what_is_no_answer_is_refused(reason: Reason, answer: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptions):
        read_decision(asked_for(reason, QUESTIONS), answer, "claude")
