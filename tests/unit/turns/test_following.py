"""A prompt that was typed, until the agent takes it, on a clock that jumps."""

from __future__ import annotations

import asyncio
from pathlib import Path

from remuda.agents.claude.prompting import ClaudePaste, ClaudePrompts
from remuda.agents.events import PromptSubmitted, TurnInterrupted
from remuda.inbox.consumer import Leased
from remuda.testing.clock import run
from remuda.turns.account import Account
from remuda.turns.following import SUBMIT_TIMEOUT, InFlight
from remuda.turns.message_policy import Rules
from remuda.turns.preparation import Preparation
from remuda.turns.turn import Fact
from support.still_session import StillSession
from support.turns import OURS, made

RULE = "─" * 40


class LosesEnter(StillSession):
    """An agent that draws a prompt, and took nothing for its Enter. It reads everything, or nothing."""

    screen = (RULE, "❯\xa0do it", RULE)

    def __init__(self, *, reads: bool = True) -> None:
        super().__init__()
        self.rests = reads
        self.output_at = 0.1
        self.pressed_at: list[float] = []

    def styled(self, y: int) -> bytes:
        return self.screen[y].encode()

    def type(self, data: bytes) -> None:
        assert data == ClaudePrompts.enter
        self.pressed_at.append(self.now())


def follow(terminal: LosesEnter, folder: Path) -> list[float]:
    """Follow a prompt typed at 0 until the timeout has passed."""

    async def note(_leased: Leased, _facts: list[Fact]) -> None:
        pass

    async def wait(seconds: float | None) -> None:
        await asyncio.sleep(0.25 if seconds is None else min(0.25, seconds))

    async def play() -> list[float]:
        prompts, rules = ClaudePrompts(), Rules()
        flight = InFlight(
            Leased("m1", "do it", 1),
            made(),
            terminal=terminal,
            prompts=prompts,
            paste=ClaudePaste(),
            interrupt=lambda: None,
            preparation=Preparation(terminal, prompts, Account(folder, "account"), rules, wait),
            rules=rules,
            wait=wait,
            note=note,
        )
        loop = asyncio.get_running_loop()
        loop.call_later(SUBMIT_TIMEOUT + 5, flight.hear, PromptSubmitted("do it", OURS))
        loop.call_later(SUBMIT_TIMEOUT + 5.1, flight.hear, TurnInterrupted(OURS))
        await flight.to_its_end()
        return terminal.pressed_at

    return run(play())


def test_enter_that_was_lost_is_pressed_again_after_a_second_and_once(tmp_path: Path) -> None:
    (pressed,) = follow(LosesEnter(), tmp_path)
    assert 1.0 <= pressed <= 1.5


def test_enter_of_an_agent_that_reads_nothing_is_pressed_again_only_after_the_timeout(tmp_path: Path) -> None:
    (pressed,) = follow(LosesEnter(reads=False), tmp_path)
    assert pressed >= SUBMIT_TIMEOUT
