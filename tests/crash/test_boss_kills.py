"""The boss is killed while hooks post to it: who was answered lost nothing, and nothing doubles."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import counts
from support.boss import RunningBoss
from support.heimdall_client import PATIENCE

SENDERS = 6
EVENTS = 60


class Sender:
    """Tells the story of one session, each event until it is acknowledged: as our hooks do."""

    def __init__(self, number: int) -> None:
        self.session = f"session-{number}"
        self.pane = f"%{number}"
        self.acknowledged = 0
        self.tries = 0

    async def run(self, boss: RunningBoss) -> None:
        while self.acknowledged < EVENTS:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", boss.port)
            except ConnectionError:
                await asyncio.sleep(0.01)
                continue
            try:
                await self._tell(boss, reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

    async def _tell(
        self, boss: RunningBoss, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while self.acknowledged < EVENTS:
            self.tries += 1
            writer.write(self._request(boss))
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
            assert head.startswith(b"HTTP/1.1 200"), head
            self.acknowledged += 1

    def _request(self, boss: RunningBoss) -> bytes:
        number = self.acknowledged
        payload: dict[str, Any] = {
            "session_id": self.session,
            "hook_event_name": "Stop" if number % 2 else "UserPromptSubmit",
            "last_assistant_message": f"{self.session} {number}",
        }
        body = {
            "payload": payload,
            "id": f"{self.session}:{number}",
            "at": 1000.0 + number,
            "env": {"TMUX_PANE": self.pane},
        }
        data = json.dumps(body).encode()
        head = f"POST /t/{boss.token}/v1/hooks HTTP/1.1\r\nHost: 127.0.0.1:{boss.port}\r\n"
        return f"{head}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


async def _kill_now_and_then(boss: RunningBoss, senders: list[Sender], kills: Iterator[int]) -> None:
    """At moments that are counted in events, and start it again on the same port."""
    for at in kills:
        while sum(sender.acknowledged for sender in senders) < at:
            await asyncio.sleep(0.001)
        port = boss.port
        boss.end(signal.SIGKILL)
        await asyncio.to_thread(boss.start, port)


async def _whole(boss: RunningBoss, senders: list[Sender]) -> None:
    chance = random.Random(11)
    moments = sorted(chance.randrange(SENDERS * EVENTS * 9 // 10) for _ in range(counts.BOSS_KILLS // 2))
    async with asyncio.timeout(PATIENCE * (2 + len(moments))):
        await asyncio.gather(
            _kill_now_and_then(boss, senders, iter(moments)), *(sender.run(boss) for sender in senders)
        )


@pytest.mark.soak
def test_boss_killed_while_hooks_post_has_everything_once(home: Path) -> None:
    boss = RunningBoss(home)
    boss.start()
    senders = [Sender(number) for number in range(SENDERS)]
    try:
        asyncio.run(_whole(boss, senders))
        boss.restart(signal.SIGKILL)
        waiting = {item["session_id"]: item for item in boss.waiting()}
        assert len(boss.waiting()) == SENDERS
        for sender in senders:
            item = waiting[sender.session]
            assert item["message"] == f"{sender.session} {EVENTS - 1}"
            assert item["session"]["pane"] == sender.pane
        resolved = boss.client.get("queue", "history", limit=1000)["items"]
        assert sorted(one["message"] for one in resolved) == sorted(
            f"{sender.session} {number}" for sender in senders for number in range(1, EVENTS - 2, 2)
        )
    finally:
        boss.close()
