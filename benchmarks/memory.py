"""What a keeper with its screen model weighs after much traffic, and one of 50 after a screen of it."""

from __future__ import annotations

import statistics

from benchmarks.attach import await_end, one_screen
from benchmarks.report import Report, Target
from benchmarks.scene import Scene, bounded, memory_bytes
from benchmarks.watcher import Watcher, watch_stream

from remuda.keeper.spec import DEFAULT_COLS, DEFAULT_ROWS
from remuda.wire.connection import ClientConnection

_MB = 1e6
_MANY = 50


def measure(scene: Scene, report: Report, _rounds: int) -> None:
    report.title(f"Memory of a keeper, {DEFAULT_COLS}x{DEFAULT_ROWS}, decimal megabytes")
    scene.start_fork_server()
    kept = scene.keep(scene.producer(), cols=DEFAULT_COLS, rows=DEFAULT_ROWS)
    rss, pss = memory_bytes(kept.keeper_pid)
    report.add("RSS before traffic", rss / _MB, "MB", note=f"PSS {pss / _MB:.1f}")
    with bounded(60.0, "the stream"):
        watcher = Watcher(kept)
        watcher.subscribed(memoryview(bytearray(1 << 18)))
        watcher.sock.sendall(ClientConnection.input(b"\n"))
        watch_stream([watcher], scene.stream_bytes)
    rss, pss = memory_bytes(kept.keeper_pid)
    watcher.sock.close()
    report.add("RSS after the stream", rss / _MB, "MB", Target("<=", 40), note=f"PSS {pss / _MB:.1f}")
    scene.end(kept.keeper_pid)
    program = one_screen(scene)
    many = [scene.keep(program, cols=DEFAULT_COLS, rows=DEFAULT_ROWS) for _ in range(_MANY)]
    with bounded(120.0, "a screen in each session"):
        for one in many:
            await_end(one)
    weights = [memory_bytes(one.keeper_pid)[1] / _MB for one in many]
    mean, note = statistics.mean(weights), f"{min(weights):.1f} to {max(weights):.1f}"
    report.add(f"PSS of a keeper, {_MANY} sessions after a screen each", mean, "MB", Target("<=", 12), note)
