"""What the inbox costs: a tick of the Stop hook, a drain, and a durable put, each beside its floor.

A tick's own work is measured with the inbox in memory, where an fsync costs nothing; the same on the disk
says what that disk takes for being sure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.report import Report, Target, mark, percentile
from benchmarks.scene import Scene

import remuda
from remuda.inbox import stop_hook
from remuda.inbox.journal import Inbox

_LENGTHS = (1, 1_000, 1_000_000)
_TICKS = 12
_LINE = b"x" * 99 + b"\n"
_DRAINED = 10_000
_PUTS = 150
_PROMPT = "x" * 80
_FLOOR = Target("<=", 1.2)
_DISK = Target("<=", 1.4)
_FLAT = Target("<=", 1.15)
_DURABLE = Target(">=", 0.7)
HOOK = Path(remuda.__file__).parent / "inbox" / "stop.py"


def measure(scene: Scene, report: Report, rounds: int) -> None:
    _ticks(scene, report, rounds)
    _drain(report)
    _puts(scene, report, rounds)


@contextmanager
def in_memory() -> Iterator[Path]:
    where = "/dev/shm" if os.path.isdir("/dev/shm") else None
    folder = Path(tempfile.mkdtemp(dir=where))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def inbox_of(folder: Path, entries: int) -> Path:
    folder.mkdir()
    inbox = folder / "inbox.jsonl"
    with inbox.open("wb") as file:
        for _ in range(max(1, entries // 1000)):
            file.write(_LINE * min(entries, 1000))
    return inbox


def _ticks(scene: Scene, report: Report, rounds: int) -> None:
    report.title(
        "A tick of the Stop hook, with the answer to one message and the next", "a Stop hook of your own"
    )
    python = [sys.executable, "-I", "-S"]
    with in_memory() as memory:
        commands = {"/bin/true": ["/bin/true"], "python -I -S -c pass": [*python, "-c", "pass"]}
        for entries in _LENGTHS:
            inbox = inbox_of(memory / str(entries), entries)
            commands[f"tick at {entries:,}"] = [*python, str(HOOK), "--inbox", str(inbox)]
        on_disk = inbox_of(scene.folder / "inbox-on-disk", _LENGTHS[1])
        commands["tick at 1,000, on the disk"] = [*python, str(HOOK), "--inbox", str(on_disk)]
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds * _TICKS):
            for name, command in commands.items():
                if name == "tick at 1":
                    _put_back(memory / "1")
                taken[name].append(_time(command, scene))
    medians = {name: report.median(name, some, "ms") for name, some in taken.items()}
    floor = medians["python -I -S -c pass"]
    for entries in _LENGTHS:
        name = f"tick at {entries:,}"
        report.add(f"{name} / interpreter", medians[name] / floor, "x", _FLOOR)
        report.add(f"{name} / true", medians[name] / medians["/bin/true"], "x")
    on_disk_time = medians["tick at 1,000, on the disk"]
    report.add("tick at 1,000, on the disk / interpreter", on_disk_time / floor, "x", _DISK)
    flat = medians["tick at 1,000,000"] / medians["tick at 1,000"]
    report.add("tick at 1,000,000 / tick at 1,000", flat, "x", _FLAT)


def _put_back(folder: Path) -> None:
    """One more message, so that each tick of the shortest inbox has one too."""
    with (folder / "inbox.jsonl").open("ab") as file:
        file.write(_LINE)


def _time(command: list[str], scene: Scene) -> float:
    start = time.perf_counter()
    subprocess.run(command, env=scene.env, input=b"{}", stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - start) * 1000


def _drain(report: Report) -> None:
    title = f"Drain of {_DRAINED:,} entries, tick by tick in one process, in memory"
    report.title(title, "a Stop hook of your own")
    with in_memory() as memory:
        files = stop_hook.Files(str(inbox_of(memory / "drain", _DRAINED)))
        halves = []
        start = time.perf_counter()
        for half in range(2):
            for _ in range(_DRAINED // 2):
                if stop_hook.tick(files, {}, stop_hook.ticks(), []).text is None:
                    raise RuntimeError(f"the drain ended early, in half {half}")
            halves.append(time.perf_counter())
    first, second = halves[0] - start, halves[1] - halves[0]
    report.add("drain", first + second, "s", note=f"{(first + second) / _DRAINED * 1e6:.0f} us a tick")
    report.add("second half / first half", second / first, "x")


def _puts(scene: Scene, report: Report, rounds: int) -> None:
    title = "A durable put, and a bare append and fsync of as many bytes, on the disk"
    report.title(title, "a file that is appended to")
    folder = scene.folder / "inbox-of-puts"
    inbox = Inbox(folder)
    inbox.put(_PROMPT)
    line = (folder / "inbox.jsonl").read_bytes()
    bare, ours = [], []
    fd = os.open(scene.folder / "bare", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for _ in range(rounds * _PUTS):  # turn about: the disk is not always as quick
            start = time.perf_counter()
            os.write(fd, line)
            os.fsync(fd)
            between = time.perf_counter()
            inbox.put(_PROMPT)
            ours.append((time.perf_counter() - between) * 1000)
            bare.append((between - start) * 1000)
    finally:
        os.close(fd)
    floor, whole = percentile(bare, 0.5), percentile(ours, 0.5)
    report.add("append and fsync, p50", floor, "ms", note=mark(bare, 0.9))
    report.add("put, p50", whole, "ms", note=mark(ours, 0.9))
    report.add("append and fsync / put", floor / whole, "x", _DURABLE)
