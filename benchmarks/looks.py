"""The boss's look at all sessions, more often than it is taken in life, and what each of them cost.

Loaded by the boss of a benchmark, which names the file for the figures in its environment.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from remuda.boss.evidence.reconcile import Reconcile
from remuda.boss.evidence.watches import PollSettings
from remuda.boss.service import BossService

SOURCE = "benchmarks.looks:OftenReconcile"
FILE = "REMUDA_BENCH_LOOKS"
INTERVAL = 0.5
_DOCUMENT = json.dumps([{"number": number, "text": "well done " * 10} for number in range(10)])


class OftenReconcile(Reconcile):
    """Behind each look it writes down what this process has used so far.

    And what a piece of work that is always the same took just then: on a shared machine a processor is half
    as slow again in one minute as in the next. That work is not counted as the boss's.
    """

    def __init__(self, service: BossService) -> None:
        super().__init__(service, polling=PollSettings(interval=INTERVAL))
        self._measuring = 0.0
        self._figures = os.open(os.environ[FILE], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)

    async def _poll(self) -> None:
        began = time.thread_time()
        await super()._poll()
        look, cpu = time.thread_time() - began, time.process_time() - self._measuring
        same = _same_work()
        self._measuring += same
        figures = {**used(os.getpid()), "look": look, "cpu": cpu, "same": same}
        os.write(self._figures, json.dumps(figures).encode() + b"\n")


def _same_work() -> float:
    """Of the kind that a look does: reading JSON, and asking the system."""
    began = time.thread_time()
    for _ in range(100):
        json.loads(_DOCUMENT)
        os.stat("/proc/self/stat")
    return time.thread_time() - began


def used(pid: int) -> dict[str, int]:
    """Bytes that a process has read so far, and those it holds."""
    read = Path(f"/proc/{pid}/io").read_text().split()[1]
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return {"read": int(read), "rss": int(pages) * os.sysconf("SC_PAGE_SIZE")}


def written(path: Path) -> list[dict[str, Any]]:
    """All looks so far; the last line may be half written."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]
