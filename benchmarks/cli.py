"""How long the command line takes to start, against an interpreter that does nothing."""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.report import Report
from benchmarks.scene import Scene

_TIMES = 5
_IMPORT = "import time; t = time.perf_counter(); import remuda; print((time.perf_counter() - t) * 1000)"


def measure(scene: Scene, report: Report, rounds: int) -> None:
    report.title("Start of the command line")
    python = sys.executable
    commands = {
        "python -c pass": [python, "-c", "pass"],
        "remuda version": [python, "-m", "remuda", "version"],
        "remuda ls, no sessions": [python, "-m", "remuda", "ls"],
    }
    delays: dict[str, list[float]] = {name: [] for name in commands}
    imports: list[float] = []
    for _ in range(rounds * _TIMES):
        for name, command in commands.items():
            delays[name].append(_time(command, scene))
        imports.append(float(_run([python, "-c", _IMPORT], scene)))
    medians = {name: report.median(name, some, "ms") for name, some in delays.items()}
    report.median("import remuda", imports, "ms")
    for name in ("remuda version", "remuda ls, no sessions"):
        report.add(f"{name} / python -c pass", medians[name] / medians["python -c pass"], "x")


def _run(command: list[str], scene: Scene) -> str:
    return subprocess.run(
        command, env=scene.env, cwd=scene.folder, capture_output=True, text=True, check=True
    ).stdout


def _time(command: list[str], scene: Scene) -> float:
    start = time.monotonic()
    _run(command, scene)
    return (time.monotonic() - start) * 1000
