"""An inbox with its sender and its Stop hook, in the process of the test."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from remuda.inbox import stop_hook
from remuda.inbox.compaction import compact
from remuda.inbox.consumer import Consumer
from remuda.inbox.journal import Inbox
from remuda.inbox.stop_hook import Files

OLD_ID = "m1a1e500a39e-086fc294ca"
OLD = f'{{"remuda": 1, "id": "{OLD_ID}", "at": 1764000000.123, "prompt": "/clear", "command": true}}\n'
"""As version 76f0a55 wrote it."""
DAY = 24 * 3600.0


class Box:
    """An inbox, its sender, and the Stop hook's ticks on it, in this process."""

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self.folder = folder
        self.inbox = folder / "inbox.jsonl"
        self.files = Files(str(self.inbox), durable=durable)
        self.journal = Inbox(folder, durable=durable)
        self.notices: list[str] = []

    def write(self, text: str) -> None:
        with self.inbox.open("a") as inbox:
            inbox.write(text)

    def tick(self) -> str | None:
        payload = {"session_id": "s", "last_assistant_message": "done"}
        return stop_hook.tick(self.files, payload, stop_hook.ticks(), self.notices).text

    def drain(self) -> list[str]:
        handed = []
        while (text := self.tick()) is not None:
            handed.append(text)
        return handed

    def leased(self) -> Any:
        consumer = Consumer(self.folder, "a test")
        consumer.open()
        try:
            return consumer.lease("test")
        finally:
            consumer.close()

    def lines(self) -> list[str]:
        return self.inbox.read_text().splitlines(keepends=True)

    def forget_receipts(self) -> None:
        """As in eight days."""
        compact(str(self.folder), time.time() + 8 * DAY, small=0)

    def receipts(self) -> list[dict[str, Any]]:
        path = self.folder / "receipts.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def dead(self) -> list[str]:
        return [str(one["reason"]) for one in self.journal.dead_letters()]
