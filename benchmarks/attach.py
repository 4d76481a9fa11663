"""How long a late joiner waits for its picture: after a long history, after one screen, after nothing.

From `connect` over HELLO and SUBSCRIBE to the last byte of the REPAINT. After nothing the picture is blank
and so the cheapest there is; after one screen it shows what it shows after the complete stream, and the ratio
to that one is what the length of the history costs. A key is typed before each, so that no picture can be
an old one.
"""

from __future__ import annotations

import time

from benchmarks.report import Report, Target
from benchmarks.scene import Kept, Scene, bounded
from benchmarks.watcher import Watcher

from remuda.wire.connection import ClientConnection

_TIMES = 40
_LAST_BYTES = 8192
_LIMIT = Target("<=", 1.5)
_KEY_AND_ERASE = (b"x", b"\x7f")
_SHOWN = ["sh", "-c", 'stty raw -echo; "$@"; stty sane; exec cat', "sh"]


def measure(scene: Scene, report: Report, rounds: int) -> None:
    report.title("Attach: connect to complete picture")
    kinds = {
        "after none": scene.keep(["cat"]),
        "after one screen": scene.keep(one_screen(scene)),
        "after the stream": scene.keep([*_SHOWN, "cat", str(scene.stream)]),
    }
    with bounded(60.0, "showing the stream"):
        for name in ("after one screen", "after the stream"):
            await_end(kinds[name])
    delays: dict[str, list[float]] = {name: [] for name in kinds}
    with bounded(60.0, "attaching"):
        typists = {name: _Typist(kept) for name, kept in kinds.items()}
        for number in range(rounds * _TIMES):
            for name, kept in kinds.items():
                typists[name].type(_KEY_AND_ERASE[number % 2])
                delays[name].append(_attach(kept))
    medians = {name: report.median(f"attach {name}", some, "ms") for name, some in delays.items()}
    long = medians["after the stream"]
    report.add("attach after the stream / after none", long / medians["after none"], "x", _LIMIT)
    report.add("attach after the stream / after one screen", long / medians["after one screen"], "x")


def one_screen(scene: Scene) -> list[str]:
    """Return a program that prints the last screen of the stream, and stays."""
    return [*_SHOWN, "tail", "-c", str(_LAST_BYTES), str(scene.stream)]


class _Typist:
    """Changes a session's screen and sees that it has changed."""

    def __init__(self, kept: Kept) -> None:
        self._buffer = memoryview(bytearray(1 << 18))
        self._watcher = Watcher(kept)
        self._watcher.subscribed(self._buffer)

    def type(self, key: bytes) -> None:
        watcher = self._watcher
        before = watcher.output_bytes
        watcher.sock.sendall(ClientConnection.input(key))
        while watcher.output_bytes == before or watcher.inside_frame:
            watcher.take(self._buffer, watcher.sock.recv_into(self._buffer))


def _attach(kept: Kept) -> float:
    buffer = memoryview(bytearray(1 << 18))
    start = time.perf_counter()
    watcher = Watcher(kept)
    watcher.subscribed(buffer)
    seconds = time.perf_counter() - start
    watcher.sock.close()
    return seconds * 1000


def await_end(kept: Kept) -> None:
    """Asks for pictures until one shows the end: no one watches while the stream runs."""
    buffer = memoryview(bytearray(1 << 18))
    while True:
        watcher = Watcher(kept)
        while not watcher.repaints or watcher.inside_frame:
            watcher.take(buffer, watcher.sock.recv_into(buffer))
        watcher.sock.close()
        if watcher.ended_at:
            return
        time.sleep(0.1)
