"""How fast a program's output reaches those who watch it.

Everyone gets the same stream from the same producer on a raw 80x24 terminal; the clock runs from the line
that releases it to the last byte. A watcher that lags is painted the screen instead of what it missed, so
the share of bytes that really came is shown next to the rate.
"""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.peers import Dtach, Tmux, dtach_attach, dtach_push, read_until
from benchmarks.report import Report, Target
from benchmarks.scene import Scene, bounded, cpu_seconds
from benchmarks.stream import END
from benchmarks.watcher import Watcher, connect, watch_stream

from remuda.keeper.client import KeeperClient
from remuda.keeper.spec import DEFAULT_HISTORY_BYTES
from remuda.terminal.pty import Pty
from remuda.wire.connection import ClientConnection

_READ_BYTES = 65536
_ROUND_TIMEOUT = 60.0
_SETTLE = 0.2


@dataclass(frozen=True, slots=True)
class Run:
    """One stream to its end."""

    seconds: float
    share: float
    """Of the stream's bytes, what each watcher got in the mean."""
    least_share: float = 1.0
    cpu: float = 0.0
    """Seconds that the keeper used, or for the raw loop this process."""


def measure(scene: Scene, report: Report, rounds: int) -> None:
    kinds: dict[str, Callable[[Scene], Run]] = {
        "raw PTY loop": _raw,
        "remuda, screen model": lambda one: _kept(one, 1, screen=True),
        "remuda, screen model, no history": lambda one: _kept(one, 1, screen=True, history_bytes=0),
        "dtach attached": _dtach_attached,
        "remuda, no screen model": lambda one: _kept(one, 1, screen=False),
        "tmux attached": _tmux_attached,
        "dtach socket": _dtach_socket,
    }
    report.title(f"Throughput of {_megabytes(scene):.0f} MB, 1 subscriber, medians of {rounds}")
    rates = _interleaved(scene, report, kinds, rounds)
    ours, bare = rates["remuda, screen model"], rates["remuda, no screen model"]
    report.add("remuda / raw loop, screen model", ours / rates["raw PTY loop"], "x", Target(">=", 0.7))
    report.add("remuda / raw loop, no screen model", bare / rates["raw PTY loop"], "x", Target(">=", 0.8))
    report.add(
        "history on / off, screen model",
        ours / rates["remuda, screen model, no history"],
        "x",
    )
    report.add("remuda / dtach attached", ours / rates["dtach attached"], "x", Target(">=", 1.2))
    report.add("remuda / tmux attached", ours / rates["tmux attached"], "x", Target(">=", 1.5))
    report.add("remuda / dtach socket", ours / rates["dtach socket"], "x")
    for count, times in ((10, rounds), (100, max(1, rounds // 3))):
        report.title(f"Throughput, {count} subscribers, medians of {times}")
        many = _interleaved(scene, report, {f"remuda, {count} subscribers": _with(count)}, times)
        report.add(
            f"remuda / raw loop, {count} subscribers",
            many[f"remuda, {count} subscribers"] / rates["raw PTY loop"],
            "x",
        )


def _with(count: int) -> Callable[[Scene], Run]:
    return lambda scene: _kept(scene, count, screen=True)


def _megabytes(scene: Scene) -> float:
    return scene.stream_bytes / 1e6


def _interleaved(
    scene: Scene, report: Report, kinds: dict[str, Callable[[Scene], Run]], rounds: int
) -> dict[str, float]:
    runs: dict[str, list[Run]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, play in kinds.items():
            with bounded(_ROUND_TIMEOUT, name):
                runs[name].append(play(scene))
    size = _megabytes(scene)
    return {
        name: report.median(name, [size / run.seconds for run in some], "MB/s", _note(some))
        for name, some in runs.items()
    }


def _note(runs: list[Run]) -> str:
    share, least = statistics.fmean(run.share for run in runs), min(run.least_share for run in runs)
    note = f"got {share:.1%} of the bytes" + (f", the least lucky {least:.1%}" if least < 1 else "")
    cpu = statistics.median(run.cpu for run in runs)
    return note + (f", CPU {cpu:.2f} s" if cpu else "")


# ── the ways to read it ──


def _raw(scene: Scene) -> Run:
    pty = scene.on_terminal(scene.producer())
    read_until(pty, b"READY")
    left, fd, read = scene.stream_bytes, pty.fd, os.read
    cpu = _own_cpu()
    start = time.monotonic()
    os.write(fd, b"\n")
    while left > 0:
        left -= len(read(fd, _READ_BYTES))
    run = Run(time.monotonic() - start, 1.0, cpu=_own_cpu() - cpu)
    pty.close()
    scene.end(pty.pid)
    return run


def _own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _kept(scene: Scene, count: int, *, screen: bool, history_bytes: int = DEFAULT_HISTORY_BYTES) -> Run:
    kept = scene.keep(scene.producer(), screen=screen, history_bytes=history_bytes)
    with KeeperClient.connect(kept.name, kept.folder) as client:
        degraded = (client.welcome or {}).get("degraded", [])
        if any("no screen model" in reason for reason in degraded) is screen:
            raise RuntimeError(f"wanted a keeper with screen={screen}, it says: {degraded}")
    watchers = [Watcher(kept) for _ in range(count)]
    buffer = memoryview(bytearray(_READ_BYTES))
    for one in watchers:
        one.subscribed(buffer)
    time.sleep(_SETTLE)  # READY has come, and what it set in motion is over
    for one in watchers:
        one.sock.setblocking(False)
        _discard(one, buffer)
        one.output_bytes = one.repaints = 0
        one.sock.setblocking(count == 1)
    cpu = cpu_seconds(kept.keeper_pid)
    start = time.monotonic()
    watchers[0].sock.sendall(ClientConnection.input(b"\n"))
    end = watch_stream(watchers, scene.stream_bytes)
    cpu = cpu_seconds(kept.keeper_pid) - cpu
    shares = [one.output_bytes / scene.stream_bytes for one in watchers]
    for one in watchers:
        one.sock.close()
    scene.end(kept.keeper_pid)
    return Run(end - start, statistics.fmean(shares), min(shares), cpu)


def _discard(one: Watcher, buffer: memoryview) -> None:
    try:
        while True:
            one.take(buffer, one.sock.recv_into(buffer))
    except BlockingIOError:
        pass


def _dtach_attached(scene: Scene) -> Run:
    peer = Dtach(scene, scene.producer())
    return _on_terminal(scene, peer, peer.attach())


def _tmux_attached(scene: Scene) -> Run:
    peer = Tmux(scene, scene.producer())
    return _on_terminal(scene, peer, peer.attach())


def _on_terminal(scene: Scene, peer: Dtach | Tmux, pty: Pty) -> Run:
    """An attached client's terminal, read as fast as it can be until the end is shown on it."""
    time.sleep(_SETTLE)
    fd, read, tail, total = pty.fd, os.read, b"", 0
    start = time.monotonic()
    os.write(fd, b"\n")
    while END not in tail:
        piece = read(fd, _READ_BYTES)
        total += len(piece)
        tail = tail[-len(END) :] + piece
    run = Run(time.monotonic() - start, total / scene.stream_bytes)
    pty.close()
    scene.end(pty.pid)
    peer.end()
    return run


def _dtach_socket(scene: Scene) -> Run:
    peer = Dtach(scene, scene.producer())
    time.sleep(_SETTLE)
    buffer = memoryview(bytearray(_READ_BYTES))
    total, tail = 0, b""
    with connect(peer.socket) as sock:
        sock.sendall(dtach_attach())
        time.sleep(_SETTLE)
        start = time.monotonic()
        sock.sendall(dtach_push(b"\n"))
        while END not in tail:
            size = sock.recv_into(buffer)
            total += size
            tail = tail[-len(END) :] + bytes(buffer[:size])
        run = Run(time.monotonic() - start, total / scene.stream_bytes)
    peer.end()
    return run
