"""The loop that delivers an inbox, on a session that is none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from remuda.agents.claude.prompting import ClaudePrompts
from remuda.agents.state import State
from remuda.inbox.consumer import Consumer
from remuda.inbox.journal import Inbox
from remuda.turns.account import Account
from remuda.turns.driver import Driver
from remuda.turns.message_policy import Rules
from support.heimdall_client import PATIENCE
from support.still_session import StillSession


class Silent(StillSession):
    """A session whose agent starts, and never gets any further."""

    state = State.STARTING
    typed_at = 0.0
    rests = False

    def __init__(self) -> None:
        super().__init__()
        self.told = asyncio.Event()

    def tell(self, document: dict[str, Any]) -> None:
        if document["held"]:
            self.told.set()


def test_session_that_dies_as_something_changes_is_closed(tmp_path: Path) -> None:
    """On its death both are told at once: the driver wakes up and is ended in the same moment."""
    Inbox(tmp_path / "inbox").put("hello", ttl=3600.0)  # so that it waits for a time

    async def play() -> bytes:
        terminal = Silent()
        driver = Driver(
            terminal,
            ClaudePrompts(),
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
