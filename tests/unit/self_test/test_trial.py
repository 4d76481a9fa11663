"""How often a message ran, by what reached the model."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from remuda.agents import find_self_test
from remuda.errors import SpawnTimeout, WaitTimeout
from remuda.self_test.promises import PromiseResult, PromiseVerdict
from remuda.self_test.trial import Broken, OutOfTime, Trial, texts_sent
from remuda.testing.loopback_model import LoopbackModel
from support.messages import prompts


def judged(start: float, error: Exception, limit: float = 30.0) -> PromiseResult:
    """What is said of a step that fails with this error, where the start took so many seconds."""
    plan, found = find_self_test("opencode"), list[PromiseResult]()
    assert plan is not None
    with LoopbackModel() as model:
        trial = Trial("opencode", plan, [Path("/")], model, found.append, 3 * limit)
    trial.first_took = start

    def fail() -> str:
        raise error

    assert not trial.attempt("tool", fail)
    return found[0]


@pytest.mark.parametrize(
    "error", [OutOfTime("its work did not come"), WaitTimeout("not answered"), SpawnTimeout("not ready")]
)
def test_step_that_was_not_done_in_time_is_too_slow_where_the_start_was_slow_too(error: Exception) -> None:
    slow = judged(20.0, error)
    assert (slow.verdict, slow.detail) == (PromiseVerdict.SLOW, f"{error} (0 s, limit 30 s)")
    assert judged(2.0, error).verdict is PromiseVerdict.FAILS, "it had enough time"
    assert judged(0.0, error).verdict is PromiseVerdict.FAILS, "the start itself"


def test_what_was_seen_to_be_wrong_does_not_hold_on_a_slow_machine_either() -> None:
    assert judged(20.0, Broken("the answer was wrong")).verdict is PromiseVerdict.FAILS


_HELLO, _LAST = "hello, twice?", "after it"
_REMINDER = "<system-reminder>the date</system-reminder>"


class MadeUpAgent:
    """Talks to the model in one conversation, as an agent does."""

    def __init__(self, model: LoopbackModel) -> None:
        self.model = model
        self.messages: list[dict[str, Any]] = []

    def say(self, *texts: str) -> None:
        for text in texts:
            self.messages.append({"role": "user", "content": [{"type": "text", "text": text}]})
        self.ask()
        self.messages.append({"role": "assistant", "content": "an answer"})

    def ask(self) -> None:
        body = {"model": "made-up", "max_tokens": 9, "tools": [{"name": "Bash"}], "messages": self.messages}
        request = urllib.request.Request(f"{self.model.url}/v1/messages", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=10) as answer:
            answer.read()


def run_once(agent: MadeUpAgent) -> None:
    agent.say(_HELLO)


def run_once_after_a_failure(agent: MadeUpAgent) -> None:
    """The request is sent again, with a reminder beside it."""
    agent.messages.append({"role": "user", "content": [{"type": "text", "text": _HELLO}]})
    agent.ask()
    agent.messages[-1]["content"].append({"type": "text", "text": _REMINDER})
    agent.ask()


def run_twice(agent: MadeUpAgent) -> None:
    agent.say(_HELLO)
    agent.say(_HELLO)


def run_twice_in_one_request(agent: MadeUpAgent) -> None:
    agent.say(_HELLO, _HELLO)


def run_in_another_conversation_too(agent: MadeUpAgent) -> None:
    agent.say(_HELLO)
    MadeUpAgent(agent.model).say(_HELLO)


@pytest.mark.parametrize("begin", [run_once, run_once_after_a_failure])
def test_message_that_ran_once_is_seen_once(begin: Any) -> None:
    with LoopbackModel() as model:
        agent = MadeUpAgent(model)
        agent.say("first")
        begin(agent)
        agent.say(_LAST)
        assert texts_sent(model.main_requests, "twice?") == [_HELLO]
        assert prompts(model) == ["first", _HELLO, _LAST]


@pytest.mark.parametrize("begin", [run_twice, run_twice_in_one_request, run_in_another_conversation_too])
def test_message_that_ran_twice_is_seen_more_than_once(begin: Any) -> None:
    with LoopbackModel() as model:
        agent = MadeUpAgent(model)
        agent.say("first")
        begin(agent)
        agent.say(_LAST)
        assert len(texts_sent(model.main_requests, "twice?")) > 1
        if begin is not run_twice_in_one_request:
            assert prompts(model) == ["first", _HELLO, _HELLO, _LAST]
