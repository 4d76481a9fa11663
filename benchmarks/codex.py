"""codex: a warm request beside `codex exec`, a message to submitted, and the memory of a kept session."""

from __future__ import annotations

import asyncio
import subprocess
import time
from typing import Any

from benchmarks.kept_agent import KeptAgent
from benchmarks.report import Report, Target, mark, percentile
from benchmarks.scene import Scene, bounded, memory_bytes

from remuda.pool.client import Client
from remuda.proctree import descendants
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from remuda.testing.real_cli.codex import RealCodex

_REQUESTS = 8
_RUNS = 2
_MESSAGES = 8
_PAUSE = 0.4
_MB = 1e6
_KEEPER = Target("<=", 40)
"""As with Claude Code."""
WARM = Target("<=", 0.5)
"""Of the agent's own way to run one prompt, which is the floor."""


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
        report.add("warm request, p50", whole, "ms", note=mark(warm, 0.9))
        report.add("warm request / codex exec", whole / floor, "x", WARM)
        report_session(scene, report, cli, "codex", rounds * _MESSAGES, ("codex exec", floor))


def report_session(
    scene: Scene, report: Report, cli: RealCli, agent: str, messages: int, own: tuple[str, float]
) -> None:
    """Measure messages to a kept session of this agent, and its memory.

    `own`: its own way to run one prompt, the floor, with its milliseconds.
    """
    kept = KeptAgent(scene, cli, agent)
    kept.send("the first one is slower")
    sent = []
    for number in range(messages):
        time.sleep(_PAUSE)
        sent.append(kept.send(f"message {number}") * 1000)
    paste, tmux = "a paste into its terminal, tmux send-keys", f"{agent} in tmux"
    report.add("message to submitted, p50", percentile(sent, 0.5), "ms", note=mark(sent, 0.9), instead=paste)
    name, floor = own
    report.add(f"message to submitted / {name}", percentile(sent, 0.5) / floor, "x", WARM, instead=paste)
    keeper, _ = memory_bytes(kept.keeper_pid)
    processes = sum(memory_bytes(pid)[1] for pid in descendants(kept.keeper_pid))
    report.add("kept session: keeper, RSS", keeper / _MB, "MB", _KEEPER, instead=tmux)
    report.add("kept session: agent and its server, PSS", processes / _MB, "MB", instead=tmux)
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
