"""codex: a warm request beside `codex exec`, a message to submitted, and the memory of a kept session."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.report import Report, Target, percentile
from benchmarks.scene import Scene, bounded, memory_bytes

from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import follow
from remuda.keeper.environment import session_environment
from remuda.keeper.spec import SessionSpec
from remuda.keeper.start import Started, start_session
from remuda.paths import SessionPaths
from remuda.pool.client import Client
from remuda.proctree import descendants
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from remuda.testing.real_cli.codex import RealCodex

_REQUESTS = 8
_RUNS = 2
_MESSAGES = 8
_PAUSE = 0.4
_MESSAGE_LIMIT = 150.0
"""Seconds for a message. The first one waits for the start, which took opencode 45 s at load 20."""
_MB = 1e6


def measure(scene: Scene, report: Report, rounds: int) -> None:
    report.title("codex, on the real CLI")
    with (
        bounded(240.0, "codex"),
        LoopbackModel() as model,
        RealCodex(scene.folder / "codex", model.url) as cli,
    ):
        warm = asyncio.run(warm_requests(cli, "codex", rounds * _REQUESTS))
        cold = [_exec(cli) for _ in range(_RUNS)]
        floor, whole = percentile(cold, 0.5), percentile(warm, 0.5)
        report.add("codex exec, p50", floor, "ms")
        report.add("warm request, p50", whole, "ms", note=f"p90 {percentile(warm, 0.9):.3g}")
        report.add("warm request / codex exec", whole / floor, "x", Target("<=", 0.5))
        report_session(scene, report, cli, "codex", rounds * _MESSAGES)


def report_session(scene: Scene, report: Report, cli: RealCli, agent: str, messages: int) -> None:
    """Measure messages to a kept session of this agent, and its memory."""
    started, inbox = _keep(scene, cli, agent)
    sent = [_send(inbox, f"message {number}") for number in range(messages)]
    note = f"p90 {percentile(sent, 0.9):.3g}"
    report.add("message to submitted, p50", percentile(sent, 0.5), "ms", note=note)
    keeper, _ = memory_bytes(started[0])
    processes = sum(memory_bytes(pid)[1] for pid in descendants(started[0]))
    report.add("kept session: keeper, RSS", keeper / _MB, "MB")
    report.add("kept session: agent and its server, PSS", processes / _MB, "MB")
    scene.end_all()


async def warm_requests(cli: RealCli, agent: str, count: int) -> list[float]:
    """Return the milliseconds of requests to a warm worker."""
    settings: dict[str, Any] = {"agent": agent, "env": cli.env, "inherit_env": False}
    async with Client(**settings, cwd=str(cli.project)) as client:
        await client.run("the first one is slower")
        found = []
        for number in range(count):
            await asyncio.sleep(_PAUSE)  # the next conversation is ready
            began = time.monotonic()
            await client.run(f"request {number}")
            found.append((time.monotonic() - began) * 1000)
        return found


def _exec(cli: RealCodex) -> float:
    began = time.monotonic()
    words = cli.argv("exec", "--json", "--ephemeral", "hello")
    subprocess.run(words, cwd=cli.project, env=cli.env, capture_output=True, check=True, timeout=60)
    return (time.monotonic() - began) * 1000


def _keep(scene: Scene, cli: RealCli, agent: str) -> tuple[Started, Inbox]:
    name = scene.name("x")
    spec = SessionSpec(
        name=name,
        folder=str(scene.sessions),
        argv=cli.argv(),
        cwd=str(cli.project),
        env=session_environment({**cli.env, "REMUDA_HOME": str(scene.folder)}, name, "REMUDA_ID", {}),
        agent=agent,
        cols=100,
        rows=30,
        kill_grace=1.0,
    )
    paths = SessionPaths(Path(spec.folder), name)
    if isinstance(cli, RealCodex):
        cli.sockets.add(paths.scratch / "s")
    started = start_session(spec)
    inbox = Inbox(paths.inbox)
    _send(inbox, "the first one is slower")
    return started, inbox


def _send(inbox: Inbox, text: str) -> float:
    time.sleep(_PAUSE)
    began = time.time()
    message = inbox.put(text).id
    *_, last = follow(inbox.folder, message, _MESSAGE_LIMIT)
    return (next(float(step["at"]) for step in last.steps if step["stage"] == "submitted") - began) * 1000
