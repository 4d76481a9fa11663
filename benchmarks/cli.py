"""How long commands take from exec to exit, next to an interpreter that does nothing and `tmux ls`."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.peers import Tmux
from benchmarks.report import Report, Target
from benchmarks.scene import Scene, await_quiet

from remuda.boss.client import BossClient
from remuda.boss.detach import start_detached
from remuda.boss.folder import BossFolder
from remuda.boss.navigator import own_program

_TIMES = 5
_SESSIONS = 50
_IMPORT = "import time; t = time.perf_counter(); import remuda; print((time.perf_counter() - t) * 1000)"
_INSTEAD = {
    "remuda ls": "tmux ls",
    "remuda status": "tmux list-panes",
    "remuda send": "tmux send-keys",
    "remuda queue": "a look at each pane",
    "remuda next": "a look at each pane",
    "remuda": "tmux -V",
}
_FLOORS = {
    "ls": ("python -I -S -c pass", "tmux ls"),
    "status": ("python -I -S -c pass",),
    "send": ("python -I -S -c pass",),
    "queue": ("python -I -S -c pass",),
    "next --show": ("python -I -S -c pass",),
}
_QUICK = Target("<=", 40)
_MANY = Target("<=", 55)


def measure(scene: Scene, report: Report, rounds: int) -> None:
    report.title("Commands, exec to exit")
    with scene.new_home("commands") as home:
        delays = _delays(scene, report, home, rounds)
        imports = [float(_run([sys.executable, "-c", _IMPORT], scene)) for _ in range(rounds * _TIMES)]
    medians = {name: report.median(name, some, "ms", instead=_instead(name)) for name, some in delays.items()}
    report.median("import remuda", imports, "ms", instead="import subprocess")
    for name, floors in _FLOORS.items():
        whole = f"remuda {name}"
        report.add(f"{whole}, exec to exit", medians[whole], "ms", _QUICK, instead=_instead(whole))
        for floor in floors:
            report.add(f"{whole} / {floor}", medians[whole] / medians[floor], "x", instead=_instead(whole))
    many = medians[f"remuda ls, {_SESSIONS} sessions"]
    name = f"remuda ls with {_SESSIONS} sessions, exec to exit"
    report.add(name, many, "ms", _MANY, instead=_instead(name))
    for name in ("remuda version", "remuda ls, no sessions"):
        ratio = medians[name] / medians["python -c pass"]
        report.add(f"{name} / python -c pass", ratio, "x", instead=_instead(name))


def _instead(name: str) -> str:
    return next(
        (text for begin, text in _INSTEAD.items() if name.startswith(begin)), "nothing: it is a floor"
    )


def _delays(scene: Scene, report: Report, home: Path, rounds: int) -> dict[str, list[float]]:
    python = [sys.executable]
    tmux = Tmux(scene, ["cat"])
    report.noise(await_quiet())
    commands = {
        "python -c pass": [*python, "-c", "pass"],
        "remuda version": _remuda("version"),
        "remuda --help": _remuda("--help"),
        "remuda ls, no sessions": _remuda("ls"),
    }
    delays = _in_turn(scene, commands, rounds)
    with _agents(scene, home):
        report.noise(await_quiet())
        commands = {
            "python -I -S -c pass": [*python, "-I", "-S", "-c", "pass"],
            "tmux ls": tmux.command("ls"),
            "remuda ls": _remuda("ls"),
            "remuda status": _remuda("status", "work"),
            "remuda queue": _remuda("queue"),
            "remuda next --show": _remuda("next", "--show"),
        }
        delays |= _in_turn(scene, commands, rounds)
        # Its keeper takes note of a message beside the next command.
        delays |= _in_turn(scene, {"remuda send": _remuda("send", "work", "hello")}, rounds)
        for _ in range(_SESSIONS - 1):
            scene.keep(["cat"])
        report.noise(await_quiet())
        delays |= _in_turn(scene, {f"remuda ls, {_SESSIONS} sessions": _remuda("ls")}, rounds)
    return delays


def _remuda(*words: str) -> list[str]:
    """As a user runs it: by the script that pip installs."""
    return [*own_program(), *words]


def start_busy_agent(scene: Scene) -> None:
    """Start the session `work`: a scripted agent in a turn that lasts, so that messages wait."""
    _run(_remuda("start", "work", "--agent", "demo", "--detach"), scene)
    _run(_remuda("send", "work", "SLOW 3600 a turn"), scene)
    while json.loads(_run(_remuda("status", "work", "--json"), scene))["state"] != "thinking":
        time.sleep(0.05)


@contextlib.contextmanager
def _agents(scene: Scene, home: Path) -> Iterator[None]:
    """A busy agent, and a boss with one agent that waits."""
    start_busy_agent(scene)
    folder = BossFolder(home / "boss")
    started = start_detached(folder, 0, sources=())
    facts = {"message": "done", "cwd": "/srv/demo"}
    event = {"kind": "stopped", "session_id": "session-1", "at": time.time(), "facts": facts}
    BossClient(folder).post("events", body={"events": [event]})
    try:
        yield
    finally:
        scene.end(started["pid"])


def _in_turn(scene: Scene, commands: dict[str, list[str]], rounds: int) -> dict[str, list[float]]:
    delays: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds * _TIMES + 1):
        for name, command in commands.items():
            taken = _time(command, scene)
            if number:  # the first of each is colder
                delays[name].append(taken)
    return delays


def _run(command: list[str], scene: Scene) -> str:
    return subprocess.run(
        command, env=scene.env, cwd=scene.folder, capture_output=True, text=True, check=True
    ).stdout


def _time(command: list[str], scene: Scene) -> float:
    start = time.monotonic()
    _run(command, scene)
    return (time.monotonic() - start) * 1000
