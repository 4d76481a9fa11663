"""What a request costs on a warm pool, on the real CLI with a model that answers at once.

Turn about with it, in the same run: `claude -p`, the Agent SDK's one-shot and its persistent client, the
CLI's stream of messages in the fewest lines, and a bare terminal from a paste to the agent's own Stop. Each
backend is measured in a group of its own: the agents of the other would be awake beside it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from benchmarks.report import Report, Target, mark
from benchmarks.rivals import PROMPT, BareTui, RawLoop, Sdk, check, claude_p, model_process
from benchmarks.scene import Scene, bounded, memory_bytes

from remuda.pool.client import Client
from remuda.pool.remote import RemoteClient
from remuda.proctree import descendants
from remuda.testing.real_cli import RealCli

Backend = Literal["terminal", "stream"]
Times = dict[str, list[float]]
_TURNS = 4
"""Times that each kind has its turn in a round."""
_IN_A_ROW = 6
_THROUGHPUT_REQUESTS = 40
_SESSIONS = 4
_REST = 2.0
"""Seconds until an agent is ready for the next request."""
_WARM = Target("<=", 1.5)
_MB = 1e6
_LIMIT = 900.0


def measure(scene: Scene, report: Report, rounds: int) -> None:
    with (
        bounded(_LIMIT, "the pool"),
        model_process() as url,
        RealCli(scene.folder / "cli", url) as cli,
    ):
        for backend in ("terminal", "stream"):
            asyncio.run(_Group(scene, report, cli, backend).measure(rounds * _TURNS))
            assert not (left := cli.settle()), left


class _Group:
    """One backend and its rivals."""

    def __init__(self, scene: Scene, report: Report, cli: RealCli, backend: Backend) -> None:
        self._scene, self._report, self._cli, self._backend = scene, report, cli, backend
        self._times: Times = {}
        self._home = scene.folder / f"pool-{backend}"
        self._home.mkdir(mode=0o700)
        # One environment for all: another would be another profile, which has no warm agent.
        self._env = {**cli.env, "PYTHONPATH": scene.env["PYTHONPATH"], "REMUDA_HOME": str(self._home)}

    async def measure(self, turns: int) -> None:
        self._report.title(f"A request on a warm pool, {self._backend} backend, real CLI")
        async with AsyncExitStack() as stack:
            weight = await self._weigh()
            rivals = await self._rivals(stack)
            four = await stack.enter_async_context(self._pool(_SESSIONS))
            one = await stack.enter_async_context(self._pool(1))
            remote = await stack.enter_async_context(self._served())
            kinds: dict[str, Callable[[], Awaitable[list[float]]]] = {
                **rivals,
                "pool of 4": lambda: _in_a_row(four, _IN_A_ROW),
                "pool of 4, served": lambda: _in_a_row(remote, _IN_A_ROW),
                "pool of 1, cleared": lambda: _in_a_row(one, 3, rested=True),
                "pool of 4, cleared, served": lambda: _in_a_row(remote, 3, rested=True),
                "pool of 1, back to back": lambda: _back_to_back(one),
                "remuda run": lambda: self._command("run", "--no-fallback"),
                "remuda ask": lambda: self._command("ask"),
            }
            for number in range(turns + 1):
                for name, take in kinds.items():
                    for pool in (four, one, remote):
                        await _at_rest(pool)
                    taken = await take()
                    if number:  # the first of each is colder
                        self._times.setdefault(name, []).extend(seconds * 1000 for seconds in taken)
            await _at_rest(four)
            rates = await self._throughput(four)
        for _ in range(turns // _TURNS):
            await self._first_requests()
        self._tell(weight, rates)

    # ── who takes part ──

    async def _rivals(self, stack: AsyncExitStack) -> dict[str, Callable[[], Awaitable[list[float]]]]:
        cli, sdk = self._cli, Sdk(self._cli)

        async def cold() -> list[float]:
            return [await asyncio.to_thread(claude_p, cli)]

        async def one_shot() -> list[float]:
            return [await sdk.query()]

        found: dict[str, Callable[[], Awaitable[list[float]]]] = {
            "claude -p": cold,
            "Agent SDK, query()": one_shot,
        }
        if self._backend == "terminal":
            tui = await asyncio.to_thread(BareTui, cli)
            stack.callback(tui.close)
            return {**found, "bare terminal, paste to Stop": lambda: asyncio.to_thread(_pasted, tui)}
        raw, cleared = RawLoop(cli), RawLoop(cli)
        stack.callback(raw.close)
        stack.callback(cleared.close)
        await sdk.open()
        stack.push_async_callback(sdk.close)
        return {
            **found,
            "Agent SDK, persistent client": lambda: _several(sdk.turn),
            "raw loop, one conversation": lambda: asyncio.to_thread(_raw, raw, clear=False),
            "raw loop, cleared before each": lambda: asyncio.to_thread(_raw, cleared, clear=True),
        }

    def _client(self, size: int) -> Client:
        return Client(
            pool_size=size,
            backend=self._backend,
            cwd=self._cli.project,
            env=self._cli.env,
            inherit_env=False,
            claude_binary=self._cli.binary,
            runtime_dir=self._scene.sessions,
            max_requests_per_session=None,
        )

    @asynccontextmanager
    async def _pool(self, size: int) -> AsyncIterator[Client]:
        async with self._client(size) as client:
            await client.prewarm(size)
            yield client

    @asynccontextmanager
    async def _served(self) -> AsyncIterator[_Remote]:
        path = str(self._home / "pool.sock")
        words = ["--backend", self._backend, "--size", str(_SESSIONS), "--socket", path, "--warm", "0"]
        words += ["--claude-binary", str(self._cli.binary), "--max-requests", "1000000"]
        env = {**self._scene.env, "HOME": str(self._cli.home)}
        server = await asyncio.to_thread(
            subprocess.Popen, [sys.executable, "-m", "remuda", "pool", "serve", *words], env=env, stdout=-1
        )
        assert server.stdout is not None
        try:
            await asyncio.to_thread(server.stdout.readline)
            remote = _Remote(path, self._cli, self._env)
            await remote.prewarm(_SESSIONS)
            yield remote
        finally:
            server.terminate()
            await asyncio.to_thread(server.communicate)

    async def _command(self, *words: str) -> list[float]:
        """From exec to exit, which is mostly Python's own start."""
        began = time.monotonic()
        check(await self._run(*words, PROMPT))
        return [time.monotonic() - began]

    async def _run(self, *words: str) -> str:
        argv, env = [sys.executable, "-m", "remuda", *words], self._env
        done = await asyncio.to_thread(
            subprocess.run, argv, cwd=self._cli.project, env=env, stdin=-3, capture_output=True, check=True
        )
        return done.stdout.decode()

    async def _first_requests(self) -> None:
        """The first request after `pool serve --detach`, with an agent that is ready and without."""
        for name, warm in (("warm", "1"), ("cold", "0")):
            words = ["--detach", "--backend", self._backend, "--size", "1", "--warm", warm]
            await self._run("pool", "serve", *words, "--claude-binary", str(self._cli.binary))
            kinds = [f"first request after pool serve, {name}", f"second request after pool serve, {name}"]
            for kind in kinds:
                (taken,) = await self._command("ask")
                self._times.setdefault(kind, []).append(taken * 1000)
                await asyncio.sleep(_REST)
            await self._run("pool", "stop")

    # ── what it weighs, how much it takes ──

    async def _weigh(self) -> tuple[float, float]:
        """(RSS, PSS) of what is ours of each warm session, when each has served."""
        before = set(descendants(os.getpid()))
        async with self._pool(2) as client:
            await asyncio.gather(*(client.run(PROMPT) for _ in range(4)))
            await _at_rest(client)
            ours = [pid for pid in set(descendants(os.getpid())) - before if _is_ours(pid)]
            weights = [memory_bytes(pid) for pid in ours]
        return sum(rss for rss, _ in weights) / 2 / _MB, sum(pss for _, pss in weights) / 2 / _MB

    async def _throughput(self, pool: Client) -> dict[str, float]:
        cold = await _rate(lambda: asyncio.to_thread(claude_p, self._cli), 12)
        warm = await _rate(lambda: _one(pool), _THROUGHPUT_REQUESTS)
        return {"claude -p, 4 at a time": cold, "pool of 4, 4 at a time": warm}

    # ── what came out ──

    def _tell(self, weight: tuple[float, float], rates: dict[str, float]) -> None:
        report = self._report
        found = {
            name: report.median(name, times, "ms", note=mark(times, 0.99))
            for name, times in self._times.items()
        }
        most = Target("<=", 0.35 if self._backend == "terminal" else 0.2)
        asked = found["remuda ask"] / found["claude -p"]
        report.add(f"remuda ask with a pool served, {self._backend} / claude -p", asked, "x", most)
        cold, rested, in_a_row = (found[name] for name in ("claude -p", "pool of 1, cleared", "pool of 4"))
        enough = Target(">=", 4 if self._backend == "terminal" else 12)
        report.add(f"claude -p / {self._backend} pool at rest", cold / rested, "x", enough)
        report.add(f"claude -p / {self._backend} pool of 4, in a row", cold / in_a_row, "x")
        if self._backend == "stream":
            # Like with like: the first turn of a conversation costs the CLI more than the next ones.
            floor = found["raw loop, cleared before each"]
            report.add("stream pool at rest / raw loop, cleared", rested / floor, "x", Target("<=", 1.5))
            report.add("claude -p / raw loop, cleared", cold / floor, "x")
            going_on = found["raw loop, one conversation"]
            report.add("stream pool at rest / raw loop, one conversation", rested / going_on, "x")
        else:
            floor = found["bare terminal, paste to Stop"]
            report.add("terminal pool at rest / bare terminal", rested / floor, "x")
        served = found["pool of 4, cleared, served"] - rested
        report.add(f"through pool serve, {self._backend}, beyond", served, "ms", Target("<=", 10))
        first, second = (found[f"{one} request after pool serve, warm"] for one in ("first", "second"))
        report.add(
            f"pool serve --warm 1, {self._backend}: first / second request", first / second, "x", _WARM
        )
        for name, rate in rates.items():
            report.add(name, rate, "requests/s")
        note = f"PSS {weight[1]:.1f}"
        report.add("RSS of ours per warm session", weight[0], "MB", Target("<=", 40), note=note)


class _Remote:
    """A served pool, asked as the bench's own user would."""

    def __init__(self, path: str, cli: RealCli, env: dict[str, str]) -> None:
        self._client = RemoteClient(path)
        away = {name: None for name in os.environ if name not in env}
        self._options: dict[str, Any] = {"cwd": str(cli.project), "env": {**away, **env}}

    async def run(self, prompt: str) -> Any:
        return await self._client.run(prompt, **self._options)

    async def prewarm(self, count: int) -> None:
        await self._client.prewarm(count, **self._options)

    async def sessions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self._client.stats())["pool"]["sessions"]
        return found


async def _sessions(pool: Client | _Remote) -> list[dict[str, Any]]:
    if isinstance(pool, _Remote):
        return await pool.sessions()
    found: Any = pool.stats()["sessions"]
    return list(found)


async def _at_rest(pool: Client | _Remote) -> None:
    """Until every session of it stands ready, with nothing to do."""
    while any(one["state"] != "idle" for one in await _sessions(pool)):  # noqa: ASYNC110  # no event reports
        await asyncio.sleep(0.005)


async def _one(pool: Client | _Remote) -> float:
    began = time.monotonic()
    result = await pool.run(PROMPT)
    taken = time.monotonic() - began
    check(result.text)
    return taken


async def _in_a_row(pool: Client | _Remote, count: int, *, rested: bool = False) -> list[float]:
    times = []
    for number in range(count):
        if rested or number == 0:
            await _at_rest(pool)
        times.append(await _one(pool))
    return times


async def _back_to_back(pool: Client) -> list[float]:
    """But for the first, which found a session at rest."""
    return (await _in_a_row(pool, 3))[1:]


async def _several(turn: Callable[[], Awaitable[float]]) -> list[float]:
    return [await turn() for _ in range(_IN_A_ROW)]


def _raw(loop: RawLoop, *, clear: bool) -> list[float]:
    times = []
    for _ in range(_IN_A_ROW):
        if clear:
            loop.clear()
        times.append(loop.turn())
    return times


def _pasted(tui: BareTui) -> list[float]:
    times = []
    for _ in range(2):
        tui.clear()
        times.append(tui.turn())
    return times


async def _rate(take: Callable[[], Awaitable[object]], count: int) -> float:
    """Requests a second with four on their way at all times."""
    left = iter(range(count))

    async def worker() -> None:
        for _ in left:
            await take()

    began = time.monotonic()
    await asyncio.gather(*(worker() for _ in range(_SESSIONS)))
    return count / (time.monotonic() - began)


def _is_ours(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").resolve() == Path(sys.executable).resolve()
    except OSError:
        return False
