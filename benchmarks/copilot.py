"""copilot: a warm request beside `copilot -p`, a message to submitted, and the memory of a kept session."""

from __future__ import annotations

import asyncio
import subprocess
import time

from benchmarks.codex import WARM, report_session, warm_requests
from benchmarks.report import Report, mark, percentile
from benchmarks.scene import Scene, bounded

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli.copilot import RealCopilot

_REQUESTS = 8
_RUNS = 3
_MESSAGES = 8


def measure(scene: Scene, report: Report, rounds: int) -> None:
    report.title("copilot, on the real CLI")
    with (
        bounded(300.0, "copilot"),
        LoopbackModel() as model,
        RealCopilot(scene.folder / "copilot", model.url) as cli,
    ):
        warm = asyncio.run(warm_requests(cli, "copilot", rounds * _REQUESTS))
        cold = [_run_once(cli) for _ in range(_RUNS)]
        own, whole = percentile(cold, 0.5), percentile(warm, 0.5)
        report.add("copilot -p, p50", own, "ms")
        report.add("warm request, p50", whole, "ms", note=mark(warm, 0.9))
        report.add("warm request / copilot -p", whole / own, "x", WARM)
        report_session(scene, report, cli, "copilot", rounds * _MESSAGES, ("copilot -p", own))


def _run_once(cli: RealCopilot) -> float:
    began = time.monotonic()
    words = cli.argv("-p", "hello", "--output-format", "json")
    subprocess.run(words, cwd=cli.project, env=cli.env, capture_output=True, check=True, timeout=60)
    return (time.monotonic() - began) * 1000
