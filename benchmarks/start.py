"""How long from asking for a session to one that answers."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable

from benchmarks.peers import Tmux, await_path, dtach_push
from benchmarks.report import Report, Target
from benchmarks.scene import Scene, bounded
from benchmarks.watcher import connect

from remuda.wire.connection import ClientConnection

_TIMES = 4


def measure(scene: Scene, report: Report, rounds: int) -> None:
    report.title("Start to usable socket")
    scene.start_fork_server()
    kinds: dict[str, Callable[[Scene], float]] = {
        "dtach -n": _dtach,
        "start_session": _kept,
        "start_session, without a fork server": _kept_slowly,
        "tmux new -d": _tmux,
    }
    delays: dict[str, list[float]] = {name: [] for name in kinds}
    with bounded(60.0, "starting"):
        for _ in range(rounds * _TIMES):
            for name, start in kinds.items():
                delays[name].append(start(scene) * 1000)
    medians = {name: report.median(name, some, "ms") for name, some in delays.items()}
    name, note = "start of a session to a usable socket", "within a minute of the last start"
    report.add(name, medians["start_session"], "ms", Target("<=", 30), note)
    report.add("start_session / dtach -n", medians["start_session"] / medians["dtach -n"], "x")
    report.add("start_session / tmux new -d", medians["start_session"] / medians["tmux new -d"], "x")


def _kept_slowly(scene: Scene) -> float:
    """As the first session is started, and each session in a session."""
    os.environ["REMUDA_SESSION"] = "outer"
    try:
        return _kept(scene)
    finally:
        del os.environ["REMUDA_SESSION"]


def _kept(scene: Scene) -> float:
    start = time.monotonic()
    kept = scene.keep(["cat"])
    with connect(kept.socket) as sock:
        sock.sendall(ClientConnection.ask_status())
        while len(sock.recv(64)) <= 1:  # the mode byte may come alone
            pass
        seconds = time.monotonic() - start
    scene.end(kept.keeper_pid)
    return seconds


def _dtach(scene: Scene) -> float:
    socket = str(scene.folder / scene.name("d"))
    start = time.monotonic()
    subprocess.run(["dtach", "-n", socket, "-r", "none", "cat"], env=scene.env, check=True)
    await_path(socket)
    seconds = time.monotonic() - start
    with connect(socket) as sock:
        sock.sendall(dtach_push(b"\x04"))  # the end of its input ends cat, and that ends dtach
        while sock.recv(4096):
            pass
    return seconds


def _tmux(scene: Scene) -> float:
    """With the start of its server, which every one of our sessions has as well."""
    start = time.monotonic()
    peer = Tmux(scene, ["cat"])
    seconds = time.monotonic() - start
    peer.end()
    return seconds
