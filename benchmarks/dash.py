"""How soon the dashboard is drawn, how soon it draws a change, and what it costs at rest.

A boss with 50 agents: 40 kept sessions, and ten that wait. The dashboard runs on a terminal that we read, and
takes turns with the smallest program of Textual, which draws one line. The popup draws with no library.
"""

from __future__ import annotations

import contextlib
import os
import select
import statistics
import sys
import time
from collections.abc import Iterator

from benchmarks.report import Report, Target, percentile
from benchmarks.scene import Scene, bounded, cpu_seconds

from remuda.boss.client import BossClient
from remuda.boss.detach import start_detached
from remuda.boss.folder import BossFolder
from remuda.keeper.spec import SessionSpec
from remuda.keeper.start import start_session
from remuda.terminal.pty import Pty

_KEPT, _WAITING = 40, 10
_STARTS = 5
"""Of each program in a round."""
_CHANGES = 40
_PAUSE = 0.15
_REST = 10.0
_PATIENCE = 30.0
_BARE = """
from textual.app import App
from textual.widgets import Static

class Bare(App):
    def compose(self):
        yield Static("bare and drawn")

Bare().run()
"""


def measure(scene: Scene, report: Report, rounds: int) -> None:
    report.title(f"The dashboard, with {_KEPT + _WAITING} agents")
    with bounded(240.0, "dash"), _boss(scene) as boss:
        _first_drawings(scene, report, rounds)
        _changes(scene, report, rounds, boss)
        _rest(scene, report, rounds)


def _first_drawings(scene: Scene, report: Report, rounds: int) -> None:
    programs = {
        "a bare Textual program": _bare(),
        "dash": _remuda("dash"),
        "popup": _remuda("popup", "--inside"),
    }
    marks = {"a bare Textual program": b"bare and drawn", "dash": b"waits-0", "popup": b"waits-0"}
    taken: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(rounds * _STARTS + 1):
        for name, argv in programs.items():
            began = time.monotonic()
            with _Shown(scene, argv) as shown:
                shown.wait_for(marks[name])
                if number:  # the first of each is slower
                    taken[name].append((time.monotonic() - began) * 1000)
    bare, dash, _popup = (report.median(f"first drawing: {name}", taken[name], "ms") for name in programs)
    report.add("first drawing: dash / a bare Textual program", dash / bare, "x")
    report.add("first drawing: dash beyond a bare Textual program", dash - bare, "ms", Target("<=", 150))


def _changes(scene: Scene, report: Report, rounds: int, boss: BossClient) -> None:
    """From before the event is sent: until the boss reports it to a client, and until it is drawn."""
    reported: list[float] = []
    drawn: list[float] = []
    with _Shown(scene, _remuda("dash")) as shown, boss.changes() as stream:
        shown.wait_for(b"waits-0")
        for number in range(rounds * _CHANGES):
            shown.drain(_PAUSE)
            while stream.wait(0.0):
                pass
            mark = f"<change {number} is drawn>"
            began = time.monotonic()
            boss.post("events", body={"events": [_waits(0, mark)]})
            stream.wait(_PATIENCE)
            reported.append((time.monotonic() - began) * 1000)
            shown.wait_for(mark.encode())
            drawn.append((time.monotonic() - began) * 1000)
    floor = report.median("change: until the boss reports it", reported, "ms")
    ours = report.median("change: until it is drawn", drawn, "ms")
    report.add("change: drawn / reported", ours / floor, "x")
    report.add("change: until it is drawn, p95", percentile(drawn, 0.95), "ms", Target("<=", 100))


def _rest(scene: Scene, report: Report, rounds: int) -> None:
    shares: dict[str, list[float]] = {"a bare Textual program": [], "dash": []}
    with _Shown(scene, _bare()) as bare, _Shown(scene, _remuda("dash")) as dash:
        bare.wait_for(b"bare and drawn")
        dash.wait_for(b"waits-0")
        for one in (bare, dash):
            one.drain(1.0)
        for _ in range(rounds):
            before = [cpu_seconds(one.pid) for one in (bare, dash)]
            began = time.monotonic()
            while (left := began + _REST - time.monotonic()) > 0:
                for one in (bare, dash):
                    one.drain(0.0)
                time.sleep(min(0.5, left))
            taken = time.monotonic() - began
            for name, one, spent in zip(shares, (bare, dash), before, strict=True):
                shares[name].append((cpu_seconds(one.pid) - spent) / taken * 100)
    for name, values in shares.items():
        report.median(f"at rest: {name}", values, "%", note="of one core")
    report.add("at rest: dash, of one core", statistics.median(shares["dash"]), "%", Target("<", 2))


class _Shown:
    """A program on a terminal. It is ended with the block."""

    def __init__(self, scene: Scene, argv: list[str]) -> None:
        self._scene = scene
        self._pty: Pty = scene.on_terminal(argv)
        self.pid = self._pty.pid

    def __enter__(self) -> _Shown:
        return self

    def __exit__(self, *_: object) -> None:
        self._scene.end(self.pid)
        self._pty.close()

    def wait_for(self, mark: bytes) -> None:
        shown = b""
        while mark not in shown:
            if not select.select([self._pty.fd], [], [], _PATIENCE)[0]:
                raise TimeoutError(f"{mark!r} was never shown; the end is {shown[-300:]!r}")
            shown += os.read(self._pty.fd, 65536)

    def drain(self, quiet: float) -> None:
        """Until nothing was drawn for this long."""
        while select.select([self._pty.fd], [], [], quiet)[0]:
            os.read(self._pty.fd, 65536)


def _bare() -> list[str]:
    return [sys.executable, "-c", _BARE]


def _remuda(*words: str) -> list[str]:
    return [sys.executable, "-m", "remuda", *words]


# ── the agents ──


@contextlib.contextmanager
def _boss(scene: Scene) -> Iterator[BossClient]:
    folder = BossFolder(scene.folder / "boss")
    for number in range(_KEPT):
        start_session(_spec(scene, f"kept-{number}"))
    before = dict(os.environ)
    os.environ.update(scene.env)
    try:
        started = start_detached(folder, 0)
    finally:
        os.environ.clear()
        os.environ.update(before)
    boss = BossClient(folder)
    boss.post("events", body={"events": [_waits(number, "done") for number in range(_WAITING)]})
    while len(boss.get("sessions")["sessions"]) < _KEPT + _WAITING:
        time.sleep(0.1)
    yield boss
    scene.end(started["pid"])


def _spec(scene: Scene, name: str) -> SessionSpec:
    sessions = str(scene.folder / "sessions")
    return SessionSpec(
        name, sessions, ["cat"], str(scene.folder), scene.env, cols=80, rows=24, kill_grace=1.0
    )


def _waits(number: int, message: str) -> dict[str, object]:
    session = f"waits-{number}"
    facts = {"message": message, "cwd": f"/srv/{session}"}
    at = time.time() - 100 + number if message == "done" else time.time()
    return {"kind": "stopped", "session_id": session, "at": at, "facts": facts}
