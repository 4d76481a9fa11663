"""How long until all sessions are back after keepers and agents were killed, and what that costs the machine.

No boss and no pool runs here. Neither takes part: `remuda resume` starts the keepers itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from benchmarks.report import Report
from benchmarks.scene import Scene, bounded

from remuda.proctree import descendants

_SESSIONS = 50
_TICKS = os.sysconf("SC_CLK_TCK")


def measure(scene: Scene, report: Report, _rounds: int) -> None:
    report.title(f"{_SESSIONS} sessions after a kill of everything")
    with bounded(600.0, "resuming"):
        _resume(scene, report)


def _resume(scene: Scene, report: Report) -> None:
    names = [f"r{number}" for number in range(_SESSIONS)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: _begin(scene, name), names))
    pids = descendants(os.getpid())
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        _reap(pid)
    begun = time.monotonic()
    done = json.loads(_remuda(scene, "resume", "--all", "--json"))
    seconds = time.monotonic() - begun
    load = os.getloadavg()[0]
    back = [one for one in done["sessions"] if one["outcome"] == "resumed"]
    assert len(back) == _SESSIONS, done
    report.add(f"'resume --all', {_SESSIONS} scripted agents", seconds, "s")
    report.add("processor time of the sessions", _processor_seconds() / _SESSIONS, "s each")
    report.add("load average of the last minute", load, "")
    _remuda(scene, "kill", *names)  # else a boss of a later benchmark brings them back, and asks about them


def _begin(scene: Scene, name: str) -> None:
    """Start a session with a conversation."""
    _remuda(scene, "start", name, "--agent", "demo", "--restart", "on-crash", "--detach")
    _remuda(scene, "send", name, "hello", "--wait")


def _remuda(scene: Scene, *words: str) -> bytes:
    env = {**scene.env, "MOCK_TIME_SCALE": "0.01"}
    run = [sys.executable, "-m", "remuda", *words]
    return subprocess.run(run, env=env, cwd=scene.folder, check=True, stdout=subprocess.PIPE).stdout


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:  # another process reaped it
        pass


def _processor_seconds() -> float:
    """What keepers and agents have used since their start."""
    total = 0
    for pid in descendants(os.getpid()):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(one) for one in fields[11:15])
    return total / _TICKS
