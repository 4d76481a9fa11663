"""How long it takes from a key in tmux until the terminal shows the next agent that waits.

A real client on a terminal that we read, keys as `remuda hooks install --tmux` binds them, a boss with all of
its sources. The clock runs until what that pane alone shows has come to the terminal. Next to it, turn about,
two keys that know where to go: one for which tmux runs a `tmux`, as it runs ours, and one that it carries out
itself, which is nothing but the drawing. And the same as commands, typed elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.report import Report, Target
from benchmarks.scene import Scene, bounded

from remuda.boss.client import BossClient
from remuda.boss.folder import BossFolder
from remuda.boss.navigator import own_program
from remuda.terminal.pty import Pty

_PLACES = 6
_KEYS = 12
_COMMANDS = 6
"""Of each kind in a round."""
_PAUSE = 0.06
_PATIENCE = 30.0
_PREFIX = b"\x02"


def measure(scene: Scene, report: Report, rounds: int) -> None:
    report.title(f"A key, or a command, to the next of {_PLACES} who wait in tmux")
    with bounded(240.0, "next"), service(scene, scene.folder / "next") as walk:
        keys = _in_turn(walk, _keys(), rounds * _KEYS)
        commands = _in_turn(walk, _commands(walk), rounds * _COMMANDS)
        exits: list[float] = []
        for _ in range(rounds * _COMMANDS):
            walk.time(lambda one: exits.append(_to_exit(one)))
    ours, run, bare = (report.median(f"key: {name}", taken, "ms") for name, taken in keys.items())
    report.add("key to the next waiting agent", ours, "ms", Target("<=", 12))
    report.add("key: ours / a tmux that is run", ours / run, "x")
    report.add("key: ours beyond a tmux that is run", ours - run, "ms")
    report.add("key: ours / tmux's own switch-client", ours / bare, "x")
    ours, run = (report.median(f"command: {name}", taken, "ms") for name, taken in commands.items())
    report.add("command: remuda next / tmux switch-client", ours / run, "x")
    done = report.median("command: remuda next, exec to exit", exits, "ms")
    report.add("remuda next, exec to exit", done, "ms", Target("<=", 40))


class Walk:
    """A client, the panes in the order in which they wait, and at which of them it is."""

    def __init__(self, env: dict[str, str], client: Pty, panes: list[str]) -> None:
        self.env = env
        self.panes = panes
        self._client = client
        self._at = 0

    @property
    def target(self) -> str:
        """The pane that is next."""
        return self.panes[(self._at + 1) % len(self.panes)]

    @property
    def number(self) -> int:
        return (self._at + 1) % len(self.panes)

    def press(self, keys: bytes) -> None:
        os.write(self._client.fd, _PREFIX + keys)

    def time(self, go: Callable[[Walk], None]) -> float:
        """Milliseconds until what the next one shows is there."""
        self.drain(_PAUSE)
        mark = _mark(self.number)
        began = time.monotonic()
        go(self)
        shown = b""
        while mark not in shown:
            if not select.select([self._client.fd], [], [], _PATIENCE)[0]:
                raise TimeoutError(f"{mark!r} was never shown; the end is {shown[-300:]!r}")
            shown += os.read(self._client.fd, 65536)
        taken = (time.monotonic() - began) * 1000
        self._at = self.number
        return taken

    def drain(self, quiet: float) -> None:
        """Until nothing was drawn for this long."""
        while select.select([self._client.fd], [], [], quiet)[0]:
            os.read(self._client.fd, 65536)


def _mark(number: int) -> bytes:
    return f"<place {number} of all>".encode()


def _in_turn(walk: Walk, kinds: dict[str, Callable[[Walk], None]], count: int) -> dict[str, list[float]]:
    for go in kinds.values():  # the first of each is slower
        walk.time(go)
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(count):
        for name, go in kinds.items():
            taken[name].append(walk.time(go))
    return taken


def _keys() -> dict[str, Callable[[Walk], None]]:
    return {
        "ours": lambda walk: walk.press(b"\t"),
        "a tmux that is run": lambda walk: walk.press(b"%d" % walk.number),
        "tmux's own switch-client": lambda walk: walk.press(b"abcdefghij"[walk.number :][:1]),
    }


def _commands(walk: Walk) -> dict[str, Callable[[Walk], None]]:
    def run(argv: list[str]) -> None:
        process = subprocess.Popen(argv, env=walk.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        process.returncode = 0  # it is reaped with all others

    return {
        "remuda next": lambda _walk: run([*own_program(), "next", "--elsewhere"]),
        "tmux switch-client": lambda walk: run(["tmux", *_way(walk.target)]),
    }


def _to_exit(walk: Walk) -> float:
    began = time.monotonic()
    _run([*own_program(), "next", "--elsewhere"], walk.env)
    return (time.monotonic() - began) * 1000


def _way(pane: str) -> list[str]:
    """tmux's own words for going to a pane of another session."""
    return ["switch-client", "-t", pane, ";", "select-pane", "-t", pane]


# ── where it plays ──


@contextlib.contextmanager
def service(scene: Scene, home: Path) -> Iterator[Walk]:
    """A boss of this home, and agents that wait in panes."""
    env = {**scene.env, "REMUDA_HOME": str(home)}
    _tmux(env, "-f", "/dev/null", "new-session", "-d", "-s", "home", "-x", "80", "-y", "24", "sleep 1000000")
    panes = [_place(env, number) for number in range(_PLACES)]
    _run([*_remuda(), "up", "--detach", "--port", "0"], env)
    _run([*_remuda(), "hooks", "install", "--tmux", "--yes", "--conf", str(scene.folder / "tmux.conf")], env)
    for number, pane in enumerate(panes):
        run = " ".join(["tmux", *_way(pane)]).replace(";", "\\;")
        _tmux(env, "bind-key", str(number), "run-shell", "-b", run)
        _tmux(env, "bind-key", "abcdefghij"[number], *_way(pane)[:3], ";", *_way(pane)[4:])
    socket = _tmux(env, "display-message", "-p", "-t", "home", "#{socket_path}").strip()
    _tell(BossFolder(home / "boss"), panes, socket)
    client = scene.on_terminal(["tmux", "-u", "attach", "-t", "home"])
    try:
        walk = Walk(env, client, panes)
        walk.drain(0.5)
        walk.press(b"0")
        walk.drain(0.5)
        yield walk
    finally:
        _tmux(env, "kill-server")
        client.close()
        _run([*_remuda(), "down"], env)


def _place(env: dict[str, str], number: int) -> str:
    """A session of its own, whose second window has two panes; the one that waits is not the active one."""
    name = f"w{number}"
    show = f"clear; printf '\\n{_mark(number).decode()}\\n'; exec sleep 1000000"
    _tmux(env, "new-session", "-d", "-s", name, "-x", "80", "-y", "24", "sleep 1000000")
    _tmux(env, "new-window", "-t", name, "sleep 1000000")
    pane = _tmux(env, "split-window", "-P", "-F", "#{pane_id}", "-t", name, show).strip()
    _tmux(env, "select-window", "-t", f"{name}:0")
    return pane


def _tell(folder: BossFolder, panes: list[str], socket: str) -> None:
    now = time.time()
    events = [
        {
            "kind": "stopped",
            "session_id": f"session-{number}",
            "at": now - 100 + number,
            "facts": {"pane": pane, "tmux": socket, "message": "done", "cwd": f"/srv/{number}"},
        }
        for number, pane in enumerate(panes)
    ]
    BossClient(folder).post("events", body={"events": events})


def _remuda() -> list[str]:
    return [sys.executable, "-m", "remuda"]


def _tmux(env: dict[str, str], *words: str) -> str:
    return _run(["tmux", "-u", *words], env)


def _run(argv: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(
        argv, env=env, cwd=Path(env["HOME"]), check=False, capture_output=True, text=True, timeout=_PATIENCE
    )
    if done.returncode:
        raise RuntimeError(f"{argv}: {done.stderr}")
    return done.stdout
