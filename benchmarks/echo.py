"""How long a typed character takes to come back, on a program whose terminal echoes.

Keys are typed one after another with a pause, as people do; once more without any, as a machine would. What
comes back is searched for the key itself, which stands nowhere else on the screen, so that neither a bar nor
a redraw of something else is taken for it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.peers import Dtach, Relay, Tmux, dtach_attach, dtach_push
from benchmarks.report import Report, Target, percentile
from benchmarks.scene import Kept, Scene, bounded
from benchmarks.watcher import connect

from remuda.terminal.pty import Pty
from remuda.wire.connection import ClientConnection

_KEYS = b"!#%&*+/@^_{}|~"
"""Found in no control sequence that a renderer sends."""
_ERASE_LINE = b"\x15"
_PAUSE = 0.02
"""Longer than a frame of the rendering client, which draws a single key at once and a flood by frames."""
_PACED_LINES, _FAST_LINES = 4, 10
_ERASE_PAUSE = 0.05
_SETTLE = 0.4
_LINE_TIMEOUT = 30.0
_LIMIT = Target("<=", 1.5)

Send = Callable[[bytes], None]
Read = Callable[[], bytes]
Typist = tuple[Send, Read]


def measure(scene: Scene, report: Report, rounds: int) -> None:
    """Each has a program of its own, all stay attached, and they take turns with a line of keys each."""
    with ExitStack() as opened:
        sockets = {
            "dtach socket": opened.enter_context(_dtach_socket(Dtach(scene, ["cat"]))),
            "remuda socket": opened.enter_context(_kept_socket(scene.keep(["cat"]))),
        }
        report.title(f"Keystroke echo on the socket, typed every {_PAUSE * 1000:g} ms")
        paced = play(report, sockets, rounds, _PACED_LINES, _PAUSE, "")
        report.add("remuda / dtach, socket", paced["remuda socket"] / paced["dtach socket"], "x", _LIMIT)
        report.title("Keystroke echo on the socket, without pauses")
        fast = play(report, sockets, rounds, _FAST_LINES, 0.0, ", no pause")
        report.add("remuda / dtach, socket, no pause", fast["remuda socket"] / fast["dtach socket"], "x")
    with ExitStack() as opened:
        terminals = {
            name: opened.enter_context(on_client(scene, attach))
            for name, attach in {
                "dtach -a": Dtach(scene, ["cat"]).attach,
                "relay of 20 lines": Relay(scene).attach,
                "remuda attach --raw": lambda: attach_remuda(scene, scene.keep(["cat"]), "--raw"),
                "remuda attach": lambda: attach_remuda(scene, scene.keep(["cat"])),
                "tmux attach": Tmux(scene, ["cat"]).attach,
            }.items()
        }
        report.title(f"Keystroke echo through the attached clients, typed every {_PAUSE * 1000:g} ms")
        seen = play(report, terminals, rounds, _PACED_LINES, _PAUSE, "")
    for name in ("relay of 20 lines", "remuda attach --raw", "remuda attach"):
        target = _LIMIT if name.startswith("remuda") else None
        report.add(f"{name} / dtach -a", seen[name] / seen["dtach -a"], "x", target)
    floor = seen["relay of 20 lines"]
    report.add("remuda attach / relay of 20 lines", seen["remuda attach"] / floor, "x", Target("<=", 1.1))
    report.add("remuda attach / tmux attach", seen["remuda attach"] / seen["tmux attach"], "x")


def play(
    report: Report, typists: dict[str, Typist], rounds: int, lines: int, pause: float, suffix: str
) -> dict[str, float]:
    """p50 by name, in milliseconds."""
    delays: dict[str, list[float]] = {name: [] for name in typists}
    for _ in range(rounds * lines):
        for name, (send, read) in typists.items():
            with bounded(_LINE_TIMEOUT, name):
                delays[name] += _echoes(send, read, pause)
    for name, some in delays.items():
        report.measurements[name + suffix] = [round(one, 4) for one in some]
        note = f"p90 {percentile(some, 0.9):.3f}, {len(some)} keys"
        report.add(f"{name}{suffix}, p50", percentile(some, 0.5), "ms", note=note)
    return {name: percentile(some, 0.5) for name, some in delays.items()}


def _echoes(send: Send, read: Read, pause: float) -> list[float]:
    """One line of keys, erased at the end."""
    delays: list[float] = []
    for place in range(len(_KEYS)):
        key = _KEYS[place : place + 1]
        start = time.perf_counter()
        send(key)
        while key not in read():
            pass
        delays.append((time.perf_counter() - start) * 1000)
        if pause:
            time.sleep(pause)
    send(_ERASE_LINE)
    time.sleep(_ERASE_PAUSE)
    read()  # the line goes
    return delays


# ── who is typed into ──


@contextmanager
def _kept_socket(kept: Kept) -> Iterator[Typist]:
    with connect(kept.socket) as sock:
        sock.sendall(ClientConnection.hello("bench") + ClientConnection.subscribe())
        time.sleep(_SETTLE)
        sock.recv(1 << 18)
        yield lambda data: sock.sendall(ClientConnection.input(data)), lambda: sock.recv(1 << 16)


@contextmanager
def _dtach_socket(peer: Dtach) -> Iterator[Typist]:
    with connect(peer.socket) as sock:
        sock.sendall(dtach_attach())
        time.sleep(_SETTLE)
        yield lambda data: sock.sendall(dtach_push(data)), lambda: sock.recv(1 << 16)


@contextmanager
def on_client(scene: Scene, attach: Callable[[], Pty]) -> Iterator[Typist]:
    pty = attach()
    try:
        os.read(pty.fd, 65536)
        time.sleep(_SETTLE)
        os.set_blocking(pty.fd, False)
        _discard(pty.fd)
        os.set_blocking(pty.fd, True)
        yield lambda data: _write(pty.fd, data), lambda: os.read(pty.fd, 65536)
    finally:
        pty.close()
        scene.end(pty.pid)


def _write(fd: int, data: bytes) -> None:
    os.write(fd, data)


def _discard(fd: int) -> None:
    try:
        while os.read(fd, 65536):
            pass
    except BlockingIOError:
        pass


def attach_remuda(scene: Scene, kept: Kept, *options: str) -> Pty:
    command = [
        sys.executable,
        "-m",
        "remuda",
        "attach",
        *options,
        "--socket-dir",
        str(kept.folder),
        kept.name,
    ]
    return scene.on_terminal(command)
