"""What the boss's hooks cost an agent: a turn of the real CLI with them, next to one without, turn about.

Four agents with a home each: one without hooks; one with a hook that does nothing for each event of ours,
which is what the CLI itself takes for it; one with our hooks and a boss that runs; one with them and none, so
that all is left for later. What ends a turn is no hook. In a conversation over the CLI's stream of messages
it is the result, on a terminal the request that reaches the model, and `claude -p` ends by itself; it alone
begins and ends a session, too, for which it runs two hooks more, and waits for one of them.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.report import Report, Target
from benchmarks.rivals import PATIENCE, RawLoop, claude_p
from benchmarks.scene import Scene, bounded

from remuda.agents.claude.setup.boss_hooks import ASYNC_EVENTS
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from remuda.testing.real_cli.bench import PlainTerminal

_BARE, _EMPTY, _UP, _DOWN = "no hooks", "empty hooks", "hooks", "hooks, no boss"
_TURNS = 10
_PASTES = 20
_CALLS = 3
"""Of each kind in a round."""
_AFTERGLOW = 0.15
"""What runs on behind a turn has ended."""
_DRAWN = 0.4
_LIMIT = Target("<=", 15.0)
_TOOL = "RUNBASH true"


def measure(scene: Scene, report: Report, rounds: int) -> None:
    with bounded(600.0, "hooks"), LoopbackModel() as model, ExitStack() as stack:
        agents = {name: _agent(scene, stack, model, name) for name in (_BARE, _EMPTY, _UP, _DOWN)}
        report.title("A turn with our hooks, in one conversation of the real CLI")
        _stream(report, agents, rounds)
        report.title("The same on a terminal: paste to the model's request")
        _terminals(report, agents, model, rounds)
        report.title("The same of claude -p: exec to exit, with the hooks of its beginning and end")
        calls = {name: partial(claude_p, cli) for name, cli in agents.items()}
        _tell(report, "claude -p", _in_turn(calls, rounds * _CALLS, _AFTERGLOW))


def _agent(scene: Scene, stack: ExitStack, model: LoopbackModel, name: str) -> RealCli:
    folder = name.replace(", ", "-").replace(" ", "-")
    cli = stack.enter_context(RealCli(scene.folder / folder, model.url))
    settings = cli.home / ".claude" / "settings.json"
    settings.parent.mkdir()
    document: dict[str, Any] = {"permissions": {"allow": ["Bash"]}}
    if name == _EMPTY:
        hook = {"type": "command", "command": ":", "async": True}
        document["hooks"] = {event: [{"hooks": [hook]}] for event in ASYNC_EVENTS}
    settings.write_text(json.dumps(document))
    home = {"REMUDA_HOME": str(scene.folder / f"{folder}-remuda"), "PYTHONPATH": scene.env["PYTHONPATH"]}
    env = {**cli.env, **home}
    if name in (_UP, _DOWN):
        _remuda(env, "hooks", "install", "--boss", "--yes", "--settings", str(settings))
        _remuda(env, "up", "--detach", "--port", "0")
        stack.callback(_remuda, env, "down") if name == _UP else _remuda(env, "down")
    return cli


def _remuda(env: dict[str, str], *words: str) -> None:
    command = [sys.executable, "-m", "remuda", *words]
    subprocess.run(command, env=env, cwd=Path(env["HOME"]), check=True, capture_output=True, timeout=PATIENCE)


# ── the three ways ──


def _stream(report: Report, agents: dict[str, RealCli], rounds: int) -> None:
    loops = {name: RawLoop(cli) for name, cli in agents.items()}
    try:
        for prompt, what in (("hello", "a turn"), (_TOOL, "a turn with a tool")):
            turns = {name: partial(loop.turn, prompt) for name, loop in loops.items()}
            _in_turn(turns, 3, _AFTERGLOW)  # the first ones are slower
            _tell(report, what, _in_turn(turns, rounds * _TURNS, _AFTERGLOW))
    finally:
        for loop in loops.values():
            loop.close()


def _terminals(report: Report, agents: dict[str, RealCli], model: LoopbackModel, rounds: int) -> None:
    numbers = iter(range(1_000_000))

    def paste(terminal: PlainTerminal) -> float:
        text = f"paste {next(numbers)} of all"
        began = time.monotonic()
        terminal.write(f"\x1b[200~{text}\x1b[201~\r".encode())
        return model.wait_for(text).received - began

    with ExitStack() as stack:
        terminals = {
            name: stack.enter_context(cli.open_terminal("--permission-mode", "manual"))
            for name, cli in agents.items()
        }
        for terminal in terminals.values():
            terminal.wait_for(b"manual mode")
        pastes = {name: partial(paste, terminal) for name, terminal in terminals.items()}
        time.sleep(_DRAWN)
        _in_turn(pastes, 2, _DRAWN)
        _tell(report, "paste to request", _in_turn(pastes, rounds * _PASTES, _DRAWN))


def _in_turn(kinds: Mapping[str, Callable[[], float]], count: int, pause: float) -> dict[str, list[float]]:
    """Milliseconds, this many of each, in an order that favours none: who was just used is quicker."""
    taken: dict[str, list[float]] = {name: [] for name in kinds}
    shuffled = random.Random(count)
    for _ in range(count):
        for name, work in shuffled.sample(sorted(kinds.items()), len(kinds)):
            taken[name].append(work() * 1000)
            time.sleep(pause)
    return taken


def _tell(report: Report, what: str, taken: dict[str, list[float]]) -> None:
    target = _LIMIT if what != "claude -p" else None
    medians = {name: report.median(f"{what}, {name}", values, "ms") for name, values in taken.items()}
    report.add(f"{what}: added by empty hooks", medians[_EMPTY] - medians[_BARE], "ms")
    report.add(f"{what}: added by our hooks", medians[_UP] - medians[_BARE], "ms", target)
    report.add(f"{what}: added while no boss runs", medians[_DOWN] - medians[_BARE], "ms", target)
