"""What two hundred sessions cost that do nothing."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.report import Report, Target
from benchmarks.scene import Kept, Scene, cpu_seconds, memory_bytes

SESSIONS = 200
_SETTLE = 4.0
"""Longer than the silence after which a session counts as idle: that look at the clock is not idleness."""
_INTERVAL = 8.0


def measure(scene: Scene, report: Report, _rounds: int) -> None:
    report.title(f"{SESSIONS} idle sessions")
    start = time.monotonic()
    pids = [one.keeper_pid for one in start_sessions(scene)]
    note = f"in {time.monotonic() - start:.1f} s"
    time.sleep(_SETTLE)
    before, at = [cpu_seconds(pid) for pid in pids], time.monotonic()
    time.sleep(_INTERVAL)
    used = sum(cpu_seconds(pid) for pid in pids) - sum(before)
    share = used / (time.monotonic() - at)
    weights = [memory_bytes(pid) for pid in pids]
    report.add("sessions started", len(pids), "", note=note)
    report.add("CPU of all keepers, of one core", 100 * share, "%", Target("<", 2), f"over {_INTERVAL:g} s")
    report.add("RSS of one", sum(rss for rss, _ in weights) / len(weights) / 1e6, "MB")
    report.add("PSS of all", sum(pss for _, pss in weights) / 1e6, "MB")
    start = time.monotonic()
    scene.end_all()
    report.add("ending all of them", time.monotonic() - start, "s")


def start_sessions(scene: Scene) -> list[Kept]:
    pool = ThreadPoolExecutor(os.cpu_count() or 2)
    try:
        return list(pool.map(lambda _: scene.keep(["cat"]), range(SESSIONS)))
    finally:
        # After Ctrl-C: those that are being started are waited for, so that the scene finds and ends them.
        pool.shutdown(wait=True, cancel_futures=True)
