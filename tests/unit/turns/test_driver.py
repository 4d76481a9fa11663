"""The loop that delivers an inbox, on a session that is none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remuda.agents.claude.speech import ClaudeSpeech
from remuda.agents.speech import Past
from remuda.agents.state import State
from remuda.inbox.consumer import Consumer
from remuda.inbox.journal import Inbox
from remuda.turns.account import Account
from remuda.turns.driver import Driver
from remuda.turns.policy import Rules
from support.heimdall_client import PATIENCE


class Silent:
    """A session whose agent starts, and never gets any further."""

    state = State.STARTING
    agreed = True
    typed_at = output_at = 0.0
    conversation: Mapping[str, Any] = {}

    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.typed = b""

    def now(self) -> float:
        return time.monotonic()

    def type(self, data: bytes) -> None:
        self.typed += data

    def hold_typing(self) -> None:
        pass

    def release_typing(self) -> None:
        pass

    def lines(self) -> list[str] | None:
        return []

    def styled(self, y: int) -> bytes:
        return b""

    def shows_rest_since(self, at: float) -> bool:
        return False

    def has_read_all(self) -> bool:
        return False

    def tell(self, document: dict[str, Any]) -> None:
        if document["held"]:
            self.told.set()

    def announce(self, event: str, document: dict[str, Any]) -> None:
        pass

    async def may_trust(self) -> bool:
        return True

    def trusted(self) -> None:
        pass

    def handed_over(self) -> None:
        pass

    def last_word(self) -> bool:
        return False

    def past(self, prompt: str, since: float, facts: Mapping[str, Any]) -> Past:
        return Past()


def test_session_that_dies_as_something_changes_is_closed(tmp_path: Path) -> None:
    """On its death both are told at once: the driver wakes up and is ended in the same moment."""
    Inbox(tmp_path / "inbox").put("hello", ttl=3600.0)  # so that it waits for a time

    async def play() -> bytes:
        terminal = Silent()
        driver = Driver(
            terminal,
            ClaudeSpeech(),
            Consumer(tmp_path / "inbox", "a test"),
            Account(tmp_path, "account"),
            Rules(),
        )
        async with asyncio.timeout(PATIENCE):
            driver.start()
            await terminal.told.wait()
            driver.nudge()
            await driver.close("it died")
        return terminal.typed

    assert asyncio.run(play()) == b""
    assert [entry.text for entry in Inbox(tmp_path / "inbox").waiting()] == ["hello"]
