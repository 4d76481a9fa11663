"""A warm pool of the real CLI while its agents are killed, its requests aborted and timed out at random."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

import pytest

from remuda import Client
from remuda.errors import Aborted, RemudaError, SessionCrashed, SpawnFailed, WaitTimeout
from remuda.pool.types import BackendName
from remuda.testing.loopback_model import LoopbackModel, Request
from remuda.testing.real_cli import RealCli
from support import counts

SEED = 11
SIZE = 3
AT_ONCE = 5
REQUESTS_PER_KILL = 10
KINDS = ("plain", "plain", "plain", "tool", "aborted", "timed out")
WARM: tuple[BackendName, ...] = ("terminal", "stream")


class Chaos:
    """Requests of every kind, and someone who kills agents while they run."""

    def __init__(self, client: Client, cli: RealCli) -> None:
        self._client, self._cli = client, cli
        self._random = random.Random(SEED)
        self.ended: Counter[str] = Counter()
        self.kills = 0
        self.wrong: list[str] = []

    async def run(self, requests: int) -> None:
        room = asyncio.Semaphore(AT_ONCE)
        # As many of each: with few requests chance could leave one out.
        kinds = (list(KINDS) * requests)[: requests - SIZE]
        self._random.shuffle(kinds)

        async def one(number: int) -> None:
            async with room:
                await self._request(number, kinds[number])
                if self.ended.total() % REQUESTS_PER_KILL == 0:
                    await self._kill_one()

        await asyncio.gather(*(one(number) for number in range(requests - SIZE)))
        # Each session once more: of a kill at the end someone hears now.
        await asyncio.gather(*(self._request(number, "plain") for number in range(requests - SIZE, requests)))

    async def _request(self, number: int, kind: str) -> None:
        word = f"chaos-{number}"
        slow = f"SLOW 60 {word}"
        prompts = {"tool": f"RUNBASH echo {word}", "aborted": slow, "timed out": slow}
        gone = asyncio.Event()
        timeout = self._random.uniform(0.1, 1.5) if kind == "timed out" else 60.0
        if kind == "aborted":
            asyncio.get_running_loop().call_later(self._random.uniform(0.0, 1.0), gone.set)
        try:
            result = await self._client.run(
                prompts.get(kind, word), request_id=word, timeout=timeout, signal=gone
            )
            outcome = "answered"
            if not _is_right(kind, word, result.text):
                self.wrong.append(f"{word} ({kind}): {result.text!r}")
        except RemudaError as error:
            outcome = error.code
            if not isinstance(error, _allowed(kind)):
                self.wrong.append(f"{word} ({kind}): {error!r}")
        self.ended[outcome] += 1

    async def _kill_one(self) -> None:
        """The agent alone: what keeps it has to notice. It may serve, rest, start, be cleared or be ended."""
        agents: list[int] = []
        while not agents:
            await asyncio.sleep(self._random.uniform(0.0, 0.4))
            running = self._cli.running().items()
            agents = [pid for pid, words in running if words.startswith(str(self._cli.binary))]
        self.kills += 1
        with suppress(ProcessLookupError):
            os.kill(self._random.choice(agents), signal.SIGKILL)


def _allowed(kind: str) -> tuple[type[RemudaError], ...]:
    """An agent may be killed while it serves, and while it starts."""
    own = {"aborted": (Aborted,), "timed out": (WaitTimeout,)}.get(kind, ())
    return (*own, SessionCrashed, SpawnFailed)


def _is_right(kind: str, word: str, text: str) -> bool:
    """The first answer of a conversation, or the second behind a tool: a higher number is an old one's."""
    if kind == "tool":
        return text == f"REPLY#2 to: tool_result {word}"
    return kind == "plain" and text == f"REPLY#1 to: {word}"


def _mixed(requests: Sequence[Request]) -> list[set[bytes]]:
    """What the model was sent of two requests at once: of one that was given up, perhaps, in a later one."""
    found = [set(re.findall(rb"chaos-\d+", request.raw)) for request in requests]
    return [words for words in found if len(words) > 1]


@pytest.mark.soak
@pytest.mark.parametrize("backend", WARM)
def test_every_call_ends_rightly_while_agents_are_killed(
    backend: BackendName, cli: RealCli, model: LoopbackModel
) -> None:
    requests = counts.POOL_CHAOS

    async def serve() -> Chaos:
        client = Client(
            backend=backend,
            pool_size=SIZE,
            claude_binary=str(cli.binary),
            env=cli.env,
            cwd=str(cli.project),
            allowed_tools=["Bash"],
            runtime_dir=str(cli.folder / "sessions"),
        )
        most = 0

        def count(_event: object) -> None:
            nonlocal most
            most = max(most, len(client.stats()["sessions"]))  # type: ignore[arg-type]

        async with client:
            client.on("session.spawned", count)
            await client.prewarm()
            chaos = Chaos(client, cli)
            await chaos.run(requests)
            await client.prewarm()
            after = await asyncio.gather(*(client.run(f"after-{number}") for number in range(SIZE)))
            assert [result.text for result in after] == [f"REPLY#1 to: after-{n}" for n in range(SIZE)]
            assert most <= SIZE
            assert len(client.stats()["sessions"]) == SIZE  # type: ignore[arg-type]
        return chaos

    chaos = asyncio.run(serve())

    assert chaos.wrong == []
    assert _mixed(model.requests) == []
    assert chaos.ended.total() == requests
    assert chaos.kills == (requests - SIZE) // REQUESTS_PER_KILL
    assert chaos.ended["SESSION_CRASHED"] + chaos.ended["SPAWN_FAILED"] <= chaos.kills
    assert {"answered", "ABORTED", "TIMEOUT"} <= set(chaos.ended)


@pytest.mark.soak
@pytest.mark.parametrize("backend", WARM)
def test_idle_pool_asks_the_model_nothing(backend: BackendName, cli: RealCli, model: LoopbackModel) -> None:
    async def serve() -> int:
        client = Client(
            backend=backend,
            pool_size=2,
            claude_binary=str(cli.binary),
            env=cli.env,
            cwd=str(cli.project),
            runtime_dir=str(cli.folder / "sessions"),
        )
        async with client:
            await client.prewarm()
            await client.run("once")
            before = len(model.requests)
            await asyncio.sleep(counts.IDLE_POOL)
            assert len(model.requests) == before
            return before

    assert asyncio.run(serve()) >= 1
