"""opencode: a warm request beside `opencode run`, a message to submitted, and the memory of a session."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.codex import WARM, report_session
from benchmarks.report import Report
from benchmarks.rivals import PROMPT, model_process
from benchmarks.scene import Scene, bounded, memory_bytes

from remuda.pool.client import Client
from remuda.testing.real_cli.opencode import OpencodeCli

_LIMIT = 900.0
_START_TIMEOUT = 150.0
_REQUESTS = 3
"""Of each kind in a round."""
_MESSAGES = 8
_MB = 1e6


def measure(scene: Scene, report: Report, rounds: int) -> None:
    with bounded(_LIMIT, "opencode"), model_process() as url:
        cli = OpencodeCli(scene.folder / "opencode", url)
        own = asyncio.run(_measure(report, cli, rounds * _REQUESTS)) * 1000
        report_session(scene, report, cli, "opencode", rounds * _MESSAGES, ("opencode run", own))


async def _measure(report: Report, cli: OpencodeCli, requests: int) -> float:
    """Return the seconds of `opencode run`."""
    report.title("A request on a warm pool of opencode")
    warm: list[float] = []
    own: list[float] = []
    options: dict[str, Any] = {"env": cli.env, "inherit_env": False, "cwd": str(cli.project)}
    async with Client(agent="opencode", pool_size=1, spawn_timeout=_START_TIMEOUT, **options) as client:
        began = time.monotonic()
        await client.run(PROMPT)
        report.add("first request, with the start", time.monotonic() - began, "s")
        for _ in range(requests):
            began = time.monotonic()
            await client.run(PROMPT)
            warm.append(time.monotonic() - began)
            own.append(await asyncio.to_thread(_run_once, cli))
        used = sum(memory_bytes(pid)[0] for pid in _processes(cli))
        report.add("memory, server and terminal", used / _MB, "MB", note="RSS, while a worker is ready")
    middle = report.median("warm request", warm, "s")
    rival = report.median("opencode run", own, "s")
    report.add("warm request / opencode run", middle / rival, "x", WARM)
    return rival


def _run_once(cli: OpencodeCli) -> float:
    began = time.monotonic()
    done = subprocess.run(
        [str(cli.binary), "run", "--format", "json", PROMPT],
        cwd=cli.project,
        env=cli.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    assert any(json.loads(line)["type"] == "text" for line in done.stdout.splitlines())
    return time.monotonic() - began


def _processes(cli: OpencodeCli) -> list[int]:
    """The server and the terminal of the worker: their keeper is not a child of ours."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            program = (entry / "cmdline").read_bytes().split(b"\0")[0]
        except OSError:  # ended by now, or another user's
            continue
        if f"HOME={cli.home}".encode() in environment and program.endswith(b"opencode"):
            found.append(int(entry.name))
    return found
