"""A prompt that is called: the driver with a caller whose answers are chosen, and what the receipt says."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from remuda.agents.events import (
    AgentEvent,
    MessageRecorded,
    PromptRecorded,
    PromptSubmitted,
    TurnRecorded,
    TurnStopped,
)
from remuda.agents.prompting import (
    CallRefused,
    Carried,
    ChannelLost,
    Composer,
    ComposerKind,
    Past,
    PromptCall,
)
from remuda.agents.state import State
from remuda.inbox.consumer import Consumer
from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import Trace, follow
from remuda.turns.account import Account
from remuda.turns.driver import Driver
from remuda.turns.message_policy import Rules
from remuda.turns.readiness import SessionSnapshot, Step, readiness
from remuda.turns.turn import End, Turn
from support.messages import stages, step
from support.mustang.agent import MustangPrompts, StableTransport
from support.still_session import StillSession

PATIENCE = 30.0
PROMPTS = MustangPrompts(StableTransport())
_IDLE = ["saddle> ", "ready"]


class Terminal(StillSession):
    conversation: Mapping[str, Any] = {"session_id": "trail"}
    screen = _IDLE


class Caller:
    """Answers each call with the next of these; an error is raised."""

    connected = True

    def __init__(self, *answers: str | Exception, pasts: tuple[Past | Exception, ...] = ()) -> None:
        self._answers, self._pasts = list(answers), list(pasts)
        self.calls: list[PromptCall] = []
        self.searched: list[PromptCall] = []
        self.driver: Driver | None = None
        self.before_answer: list[AgentEvent] = []

    async def submit(self, call: PromptCall) -> str:
        self.calls.append(call)
        assert self.driver is not None
        for event in self.before_answer:
            self.driver.hear(event)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        asyncio.get_running_loop().call_soon(self._run, call.prompt, answer)
        return answer

    def _run(self, prompt: str, turn: str) -> None:
        assert self.driver is not None
        for event in a_turn(prompt, turn):
            self.driver.hear(event)

    async def find(self, call: PromptCall) -> Past:
        self.searched.append(call)
        past = self._pasts.pop(0)
        if isinstance(past, Exception):
            raise past
        if past.submitted and not past.answered:
            asyncio.get_running_loop().call_soon(self._run, call.prompt, str(past.prompt_id))
        return past

    def interrupt(self, turn_id: str | None) -> None:
        pass


def a_turn(prompt: str, turn: str) -> list[AgentEvent]:
    return [
        PromptSubmitted(prompt, turn),
        PromptRecorded(prompt, turn, "trail"),
        MessageRecorded("m", {"output_tokens": 1}, f"to {prompt}", final=True),
        TurnStopped(f"to {prompt}", turn),
        TurnRecorded(),
    ]


def delivered(
    folder: Path, caller: Caller, heard: list[AgentEvent] | None = None, **rules: Any
) -> tuple[Trace, Terminal]:
    """Put one message into an inbox, and follow it to its end."""
    inbox = Inbox(folder / "inbox")
    message = inbox.put("hello").id

    async def play() -> tuple[Trace, Terminal]:
        terminal = Terminal()
        account, consumer = Account(folder, "account"), Consumer(folder / "inbox", "a test")
        driver = caller.driver = Driver(terminal, PROMPTS, consumer, account, Rules(**rules), caller)
        for event in heard or []:
            driver.hear(event)
        driver.start()
        found = await asyncio.to_thread(_last, folder / "inbox", message)
        await driver.close("the test is over")
        return found, terminal

    return asyncio.run(play())


def _last(folder: Path, message: str) -> Trace:
    *_, last = follow(folder, message, PATIENCE)
    return last


def test_prompt_is_called_and_nothing_is_typed(tmp_path: Path) -> None:
    caller = Caller("t1")
    found, terminal = delivered(tmp_path, caller)
    assert stages(found) == ["accepted", "written", "submitted", "recorded", "ended", "acked"]
    assert (step(found, "submitted")["prompt_id"], step(found, "written")["transport"]) == ("t1", "call")
    assert [(one.id, one.prompt) for one in caller.calls] == [(found.id, "hello")]
    assert (terminal.typed, terminal.held, caller.searched) == (b"", 0, [])


def test_reports_that_overtake_the_answer_to_the_call_are_not_lost(tmp_path: Path) -> None:
    """A server may report the whole turn before its answer to the call is read."""
    caller = Caller("t1")
    caller.before_answer = a_turn("hello", "t1")
    found, _ = delivered(tmp_path, caller)
    assert found.answer is not None
    assert found.answer["text"] == "to hello"


def test_answer_with_the_id_of_a_turn_that_ran_before_is_no_new_turn(tmp_path: Path) -> None:
    """As an agent answers that adds a prompt to the turn that runs: it is answered with that."""
    caller = Caller("t0")
    found, _ = delivered(tmp_path, caller, [PromptSubmitted("of a human", "t0")])
    assert step(found, "submitted")["merged"] is True
    assert step(found, "submitted")["prompt_id"] is None
    assert len(caller.calls) == 1


@pytest.mark.parametrize("lost", [ChannelLost("gone"), TimeoutError()])
def test_lost_answer_is_searched_and_the_turn_that_is_found_is_followed(
    tmp_path: Path, lost: Exception
) -> None:
    caller = Caller(lost, pasts=(ChannelLost("not yet"), Past(submitted=True, prompt_id="t1")))
    found, _ = delivered(tmp_path, caller)
    assert (found.stage, step(found, "submitted")["prompt_id"]) == ("acked", "t1")
    assert (len(caller.calls), len(caller.searched)) == (1, 2)
    assert caller.searched[0].conversation == "trail"


@pytest.mark.parametrize(
    ("usages", "doubt", "usage", "reasons"),
    [
        (({"output_tokens": 5}, {"output_tokens": 7}), "", {"output_tokens": 12}, []),
        ((), "", None, ["usage unknown"]),
        (({"output_tokens": 5},), "perhaps", {"output_tokens": 5}, ["perhaps"]),
    ],
)
def test_lost_answer_of_a_turn_that_has_ended_is_taken_from_the_search(
    tmp_path: Path,
    usages: tuple[dict[str, int], ...],
    doubt: str,
    usage: dict[str, int] | None,
    reasons: list[str],
) -> None:
    past = Past(submitted=True, answered=True, text="to hello", prompt_id="t1", usages=usages, doubt=doubt)
    found, _ = delivered(tmp_path, Caller(ChannelLost("gone"), pasts=(past,)))
    ended = step(found, "ended")
    assert (found.stage, ended["recovered"], ended["usage"]) == ("acked", True, usage)
    assert [reason.partition(":")[0] for reason in ended.get("degraded", [])] == reasons


def test_call_that_the_search_does_not_find_is_called_again(tmp_path: Path) -> None:
    caller = Caller(ChannelLost("gone"), "t1", pasts=(Past(),))
    found, _ = delivered(tmp_path, caller)
    assert (found.stage, [one.id for one in caller.calls]) == ("acked", [found.id] * 2)
    assert step(found, "nacked")["reason"] == "the call was lost before it was submitted"


def test_prompt_that_the_agent_has_and_does_not_run_is_not_called_again(tmp_path: Path) -> None:
    """It may go along with the next one."""
    caller = Caller(ChannelLost("gone"), pasts=(Past(stored=True),))
    found, _ = delivered(tmp_path, caller)
    assert (found.stage, step(found, "ended")["end"]) == ("dead", "unsubmitted")
    assert "started no turn" in found.reason
    assert step(found, "ended")["in_conversation"] is True
    assert len(caller.calls) == 1


@pytest.mark.parametrize(("keeps", "said"), [(True, True), (False, None)])
def test_prompt_without_an_answer_that_stays_in_the_conversation_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, keeps: bool, said: bool | None
) -> None:
    """The model sees it again with the next prompt."""
    monkeypatch.setattr(PROMPTS, "keeps_unanswered", keeps)
    caller = Caller(ChannelLost("gone"), pasts=(Past(submitted=True, interrupted=True),))
    found, _ = delivered(tmp_path, caller)
    ended = step(found, "ended")
    assert (found.stage, ended["end"], ended.get("in_conversation")) == ("dead", "interrupted", said)


def test_refused_call_is_dead_where_it_is_tried_once(tmp_path: Path) -> None:
    found, _ = delivered(tmp_path, Caller(CallRefused("too many flies")), once=True)
    assert (found.stage, found.reason) == ("dead", "the agent refused the call: too many flies")
    assert "in_conversation" not in step(found, "ended")


# ── a turn that was called ──


def make_turn() -> Turn:
    return Turn("hello", Carried(b"", "hello"), PROMPTS)


def test_own_report_of_a_called_turn_is_no_other_prompt() -> None:
    turn = make_turn()
    turn.called("t1", merged=False)
    for event in a_turn("hello", "t1"):
        turn.take(event)
    assert not turn.may_be_over
    turn.rest()
    assert turn.outcome is not None
    assert (turn.outcome.end, turn.outcome.text) == (End.ANSWERED, "to hello")


def test_called_turn_that_waited_for_the_turn_of_a_human_is_not_ended_by_it() -> None:
    turn = make_turn()
    turn.called("t2", merged=False)
    for event in (*a_turn("SLOW human", "t1"), *a_turn("hello", "t2")):
        turn.take(event)
    turn.rest()
    assert turn.outcome is not None
    assert (turn.outcome.end, turn.outcome.text) == (End.ANSWERED, "to hello")


# ── when it may be called ──


@pytest.mark.parametrize(
    ("look", "step_wanted", "why"),
    [
        ({"connected": False}, Step.WAIT, "the agent's server is not connected"),
        ({"composer": Composer(ComposerKind.DRAFT, "x")}, Step.TYPE, ""),
        ({"composer": Composer(ComposerKind.DRAFT, "x"), "since_typed": 5.0}, Step.WAIT, "a draft"),
        ({"composer": Composer(ComposerKind.ABSENT)}, Step.WAIT, "no composer"),
        ({"since_typed": 0.5}, Step.WAIT, "someone is typing"),
        ({"dialog": "kick"}, Step.WAIT, "a dialog is open: kick"),
        ({"state": State.THINKING}, Step.WAIT, "the session is thinking"),
    ],
)
def test_call_waits_for_the_same_as_typing_but_leaves_a_draft(
    look: dict[str, Any], step_wanted: Step, why: str
) -> None:
    given: dict[str, Any] = {
        "state": State.IDLE,
        "agreed": True,
        "composer": Composer(ComposerKind.EMPTY),
        **look,
    }
    found = readiness(SessionSnapshot(by_call=True, **given))
    assert (found.step, why in found.reason) == (step_wanted, True)
