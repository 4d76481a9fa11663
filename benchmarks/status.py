"""How long a keeper takes to say what its session does."""

from __future__ import annotations

import socket
import time

from benchmarks.report import Report, percentile
from benchmarks.scene import Scene, bounded
from benchmarks.watcher import connect

from remuda.wire.connection import ClientConnection

_ANSWER_BYTES = 5 + 15
_ASKED, _CONNECTED = 500, 100


def measure(scene: Scene, report: Report, rounds: int) -> None:
    report.title("STATUS round trip")
    kept = scene.keep(["cat"])
    asked: list[float] = []
    connected: list[float] = []
    with bounded(30.0, "STATUS"), connect(kept.socket) as sock:
        _receive(sock, 1)
        for _ in range(rounds):
            asked += [_ask(sock) for _ in range(_ASKED)]
            connected += [_connect_and_ask(kept.socket) for _ in range(_CONNECTED)]
    for name, some in (("STATUS on an open connection", asked), ("connect and STATUS", connected)):
        note = f"p90 {percentile(some, 0.9):.1f}, {len(some)} times"
        report.add(f"{name}, p50", percentile(some, 0.5), "µs", note=note)


def _ask(sock: socket.socket) -> float:
    start = time.perf_counter()
    sock.sendall(ClientConnection.ask_status())
    _receive(sock, _ANSWER_BYTES)
    return (time.perf_counter() - start) * 1e6


def _connect_and_ask(path: str) -> float:
    start = time.perf_counter()
    with connect(path) as sock:
        sock.sendall(ClientConnection.ask_status())
        _receive(sock, 1 + _ANSWER_BYTES)
    return (time.perf_counter() - start) * 1e6


def _receive(sock: socket.socket, size: int) -> None:
    while size:
        got = len(sock.recv(size))
        if not got:
            raise EOFError("the keeper closed the connection")
        size -= got
