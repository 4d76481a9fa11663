"""Permissions that clients may give: the first answer counts, and no one waits for what is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from remuda.agents.claude.hooks import answer_permission, read_hook
from remuda.agents.claude.registry import read_registry
from remuda.agents.claude.sources import ClaudeSources
from remuda.errors import AlreadyAnswered, InvalidOptions, LocalProtocolError
from remuda.keeper.asks import Asks, read_decision
from remuda.keeper.hooks import Answer

Told = list[dict[str, Any]]


def running(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())  # type: ignore[arg-type]

    run.__name__ = test.__name__
    return run


class Bench:
    def __init__(self) -> None:
        self.told: Told = []
        self.asks = Asks(
            answer_permission, self.told.append, lambda: 12.0, ClaudeSources.permissions.refusals
        )

    def ask(self, command: str = "touch x", call: str = "t1") -> tuple[str, asyncio.Future[Answer]]:
        given = {"tool_name": "Bash", "tool_input": {"command": command}}
        self.asks.take(read_hook({"hook_event_name": "PreToolUse", "tool_use_id": call, **given}))
        future = self.asks.take(read_hook({"hook_event_name": "PermissionRequest", **given}))
        assert future is not None
        return str(self.told[-1]["id"]), future

    def ended(self) -> list[str]:
        return [str(one["id"]) for one in self.told if one["event"] == "ask_ended"]


@running
async def test_ask_is_reported_whole_and_listed_until_it_is_answered() -> None:
    bench = Bench()
    number, future = bench.ask()
    [told] = bench.told
    assert told == {
        "event": "ask",
        "id": number,
        "tool": "Bash",
        "input": {"command": "touch x"},
        "suggestions": [],
        "tool_use_id": "t1",
        "reason": "permission",
        "cwd": None,
        "at": 12.0,
        "refuses": {},
    }
    assert [{"event": "ask", **one} for one in bench.asks.document()] == [told]
    assert bench.asks.answer({"id": number, "behavior": "allow"}) == {"id": number, "tool": "Bash"}
    assert (await future or {})["hookSpecificOutput"]["decision"] == {"behavior": "allow"}
    assert (bench.asks.document(), bench.ended()) == ([], [number])


@running
async def test_ask_says_which_decisions_its_agent_cannot_take() -> None:
    bench = Bench()
    bench.ask("rm *")
    [told] = bench.told
    assert "it has a '*'" in told["refuses"].pop("always")
    assert told["refuses"] == {}


@running
async def test_second_answer_is_refused_and_learns_who_was_first() -> None:
    bench = Bench()
    number, future = bench.ask()
    bench.asks.answer({"id": number, "behavior": "deny", "message": "no"})
    with pytest.raises(AlreadyAnswered, match="deny"):
        bench.asks.answer({"id": number, "behavior": "allow"})
    assert (await future or {})["hookSpecificOutput"]["decision"]["behavior"] == "deny"
    with pytest.raises(AlreadyAnswered, match="no permission request"):
        bench.asks.answer({"id": "a-unknown", "behavior": "allow"})


@running
async def test_human_at_the_terminal_who_is_first_ends_it_without_an_answer() -> None:
    bench = Bench()
    number, future = bench.ask()
    other, _ = bench.ask("touch y", "t2")
    bench.asks.take(read_hook({"hook_event_name": "PostToolUse", "tool_use_id": "t1"}))
    assert (await future, bench.ended()) == (None, [number])
    with pytest.raises(AlreadyAnswered, match="at the terminal"):
        bench.asks.answer({"id": number, "behavior": "allow"})
    assert [one["id"] for one in bench.asks.document()] == [other]


@running
async def test_dialog_that_was_seen_to_come_and_go_was_answered() -> None:
    bench = Bench()
    number, future = bench.ask()
    bench.asks.take(read_registry({"status": "waiting"}))
    assert bench.ended() == []
    bench.asks.take(read_registry({"status": "busy"}))
    assert (await future, bench.ended()) == (None, [number])


@running
async def test_dialog_of_the_call_before_that_goes_late_ends_nothing() -> None:
    bench = Bench()
    first, _ = bench.ask()
    bench.asks.take(read_registry({"status": "waiting"}))
    bench.asks.answer({"id": first, "behavior": "allow"})
    second, future = bench.ask("touch y", "t2")
    bench.asks.take(read_registry({"status": "busy"}))  # of the first
    assert not future.done()
    bench.asks.take(read_registry({"status": "waiting"}))
    bench.asks.take(read_registry({"status": "idle"}))
    assert (await future, bench.ended()) == (None, [first, second])


@running
async def test_agent_that_waits_no_longer_ends_it() -> None:
    bench = Bench()
    number, future = bench.ask()
    future.cancel()
    await asyncio.sleep(0)
    assert bench.ended() == [number]


@running
async def test_end_of_the_session_ends_all() -> None:
    bench = Bench()
    number, future = bench.ask()
    bench.asks.close()
    assert (await future, bench.ended()) == (None, [number])


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"behavior": "maybe"},
        {"behavior": "allow", "input": "text"},
        {"behavior": "allow", "message": "no"},
        {"behavior": "allow", "interrupt": True},
        {"behavior": "deny", "always": True},
        {"behavior": "deny", "input": {"a": 1}},
        {"behavior": "deny", "message": 5},
        {"behavior": "deny", "message": "x" * 300_000},
    ],
)
def test_what_is_no_answer_is_refused(args: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptions):
        read_decision(args)


@running
async def test_request_that_cannot_be_reported_is_left_to_the_terminal() -> None:
    told: Told = []

    def tell(document: dict[str, Any]) -> None:
        if document["event"] == "ask":
            raise LocalProtocolError("cannot be said in JSON")
        told.append(document)

    asks = Asks(answer_permission, tell, lambda: 12.0, ClaudeSources.permissions.refusals)
    given = {"hook_event_name": "PermissionRequest", "tool_name": "Bash", "tool_input": {"command": "ls"}}
    future = asks.take(read_hook(given))
    assert future is not None
    assert await future is None
    assert asks.document() == []
    assert [one["event"] for one in told] == ["ask_ended"]
