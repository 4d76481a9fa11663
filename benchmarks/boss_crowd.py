"""What two hundred sessions with transcripts of 20 MB cost the boss: at rest, and while twenty of them grow.

They are made of what the boss looks at: a process, a file in the registry, a transcript. It looks ten times
as often as in life, so that enough looks come together, and each tells what it used: time of the processor,
bytes read by whatever call, memory. Flat is what the last third of them uses beside the first; for the
processor, which is not always as quick, as multiples of a piece of work that is always the same.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import looks
from benchmarks.report import Report, Target
from benchmarks.scene import Scene, bounded

from remuda.boss.client import BossClient
from remuda.boss.detach import start_detached
from remuda.boss.folder import BossFolder

_SESSIONS = 200
_GROWING = 20
_TRANSCRIPT_BYTES = 20_000_000
_TAIL_BYTES = 256 << 10
"""So much of a transcript that is new to the boss is to be read."""
_LOOKS = 12
"""A round. A third of all that are measured is compared with another."""
_PAUSE = 0.1
_WARM = 4
"""Looks that are left out: the first ones read."""
_FULL = 10
"""So many turns fill what the boss keeps of a session."""
_FLAT = Target("<=", 1.1)
_MB = 1e6


def measure(scene: Scene, report: Report, rounds: int) -> None:
    title = f"{_SESSIONS} sessions with transcripts of {_TRANSCRIPT_BYTES / _MB:.0f} MB"
    with bounded(600.0, "the crowd"), _room(scene) as folder:
        crowd = Crowd(folder, _SESSIONS, _TRANSCRIPT_BYTES)
        report.title(title)
        with _boss(scene, crowd) as figures:
            _watch(report, figures, crowd, rounds * _LOOKS)


class Crowd:
    """Sessions that no one keeps, as their files and processes show them."""

    def __init__(self, folder: Path, count: int, transcript_bytes: int) -> None:
        self.config = folder / "claude"
        self._project = self.config / "projects" / "-srv-demo"
        self._project.mkdir(parents=True)
        (self.config / "sessions").mkdir()
        self.sessions = [str(uuid.uuid4()) for _ in range(count)]
        self.appended_bytes = 0
        past = b"".join(_turn("before", time.time()) for _ in range(100))
        past *= transcript_bytes // len(past)
        for session in self.sessions:
            self._add(session, past)

    def _add(self, session: str, past: bytes) -> None:
        with self.transcript(session).open("wb") as file:
            file.write(past)
            file.write(b"".join(_turn(session, time.time()) for _ in range(50)))
        process = subprocess.Popen(["sleep", "1000000"], stdin=subprocess.DEVNULL)
        now = int(time.time() * 1000)
        document = {
            "pid": process.pid,
            "sessionId": session,
            "cwd": "/srv/demo",
            "status": "idle",
            "startedAt": now,
            "statusUpdatedAt": now,
            "kind": "interactive",
            "entrypoint": "cli",
        }
        (self.config / "sessions" / f"{process.pid}.json").write_text(json.dumps(document))

    def transcript(self, session: str) -> Path:
        return self._project / f"{session}.jsonl"

    def grow(self, session: str) -> None:
        data = _turn(session, time.time())
        with self.transcript(session).open("ab") as file:
            file.write(data)
        self.appended_bytes += len(data)

    @contextlib.contextmanager
    def growing(self) -> Iterator[None]:
        """A few of them, one after the other."""
        over = threading.Event()

        def grow() -> None:
            for session in itertools.cycle(self.sessions[:_GROWING]):
                if over.wait(_PAUSE):
                    return
                self.grow(session)

        thread = threading.Thread(target=grow)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _turn(session: str, at: float) -> bytes:
    """A prompt, four calls of a tool with what they gave, and an answer: 10 lines."""
    call = uuid.uuid4().hex
    told: list[tuple[str, Any]] = [("user", "go on")]
    for number in range(4):
        use = {"type": "tool_use", "id": f"{call}{number}", "name": "Bash", "input": {"command": "make"}}
        gave = {"type": "tool_result", "tool_use_id": use["id"], "content": "well done " * 150}
        told += [("assistant", [use]), ("user", [gave])]
    told.append(("assistant", [{"type": "text", "text": "all is well " * 100}]))
    return b"".join(_record(session, at, role, content) for role, content in told)


def _record(session: str, at: float, role: str, content: Any) -> bytes:
    message = {"role": role, "content": content}
    if role == "assistant":
        done = content[0]["type"] == "text"
        message |= {"id": "msg", "model": "m", "stop_reason": "end_turn" if done else "tool_use"}
    record = {
        "type": role,
        "sessionId": session,
        "uuid": str(uuid.uuid4()),
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}Z",
        "cwd": "/srv/demo",
        "message": message,
    }
    return json.dumps(record).encode() + b"\n"


# ── where it plays ──


@contextlib.contextmanager
def _room(scene: Scene) -> Iterator[Path]:
    """In memory where there is enough of it: else the disk's time would be measured, too."""
    needed = _SESSIONS * _TRANSCRIPT_BYTES * 1.2
    shm = Path("/dev/shm")
    roomy = os.access(shm, os.W_OK) and min(shutil.disk_usage(shm).free, _available_bytes()) > needed
    folder = Path(tempfile.mkdtemp(prefix="rb", dir=shm if roomy else scene.folder))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _available_bytes() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


@contextlib.contextmanager
def _boss(scene: Scene, crowd: Crowd) -> Iterator[Path]:
    """One of its own; gives the file with what its looks used."""
    home = scene.folder / "crowd"
    figures = scene.folder / "looks"
    here = Path(__file__).resolve().parents[1]
    env = {
        looks.FILE: str(figures),
        "CLAUDE_CONFIG_DIR": str(crowd.config),
        "REMUDA_HOME": str(home),
        "TMUX_TMPDIR": str(scene.folder),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(here), os.environ.get("PYTHONPATH")))),
    }
    before = dict(os.environ)
    os.environ.update(env)
    try:
        folder = BossFolder(home / "boss")
        started = start_detached(folder, 0, sources=(looks.SOURCE,))
    finally:
        os.environ.clear()
        os.environ.update(before)
    client = BossClient(folder)
    while len(client.get("sessions")["sessions"]) < len(crowd.sessions):
        time.sleep(0.1)
    yield figures
    scene.end(started["pid"])


# ── what it costs ──


def _watch(report: Report, figures: Path, crowd: Crowd, count: int) -> None:
    begun, *rest = _next_looks(figures, _WARM, count + 1)
    whole = sum(crowd.transcript(session).stat().st_size for session in crowd.sessions)
    tails = len(crowd.sessions) * _TAIL_BYTES
    report.add("read at the start", begun["read"] / _MB, "MB", note=f"of {whole / _MB:.0f} MB")
    report.add("the same / 256 KiB of each transcript", begun["read"] / tails, "x", Target("<=", 1.5))
    report.add("RSS when all of that is read", begun["rss"] / _MB, "MB")
    idle = _tell(report, "at rest", rest)
    report.add("of one core, at rest, with a look every 5 s", idle / 5000 * 100, "%")
    for session in crowd.sessions[:_GROWING] * _FULL:
        crowd.grow(session)
    with crowd.growing():
        began, before = time.monotonic(), crowd.appended_bytes
        grown = _next_looks(figures, len(looks.written(figures)) + _WARM, count + 1)
        added = (crowd.appended_bytes - before) / 1000 / (time.monotonic() - began)
    busy = _tell(report, f"while {_GROWING} grow", grown)
    share = (busy - idle) / (looks.INTERVAL * 1000) + idle / 5000
    report.add(f"of one core, while {_GROWING} grow", share * 100, "%", note=f"by {added:.0f} kB a second")
    size = sum(crowd.transcript(session).stat().st_size for session in crowd.sessions[:_GROWING])
    read = grown[-1]["read"] - grown[0]["read"]
    report.add("read / size of what grew", read / size, "x", Target("<", 0.1))


def _tell(report: Report, when: str, found: list[dict[str, Any]]) -> float:
    """Gives the milliseconds from look to look."""
    spent = [(after["cpu"] - before["cpu"]) * 1000 for before, after in itertools.pairwise(found)]
    read = [(after["read"] - before["read"]) / 1000 for before, after in itertools.pairwise(found)]
    held = [one["rss"] / _MB for one in found]
    unit = [one["same"] * 1000 for one in found[1:]]
    cost = report.median(f"processor time, look to look, {when}", spent, "ms")
    report.median(f"work that is always the same, {when}", unit, "ms")
    report.add(f"one / the other, last third / first, {when}", _drift(spent) / _drift(unit), "x", _FLAT)
    report.median(f"read, look to look, {when}", read, "kB")
    report.median(f"RSS, {when}", held, "MB")
    report.add(f"the same, last third / first, {when}", _drift(held), "x", _FLAT)
    return cost


def _drift(values: list[float]) -> float:
    third = max(1, len(values) // 3)
    return statistics.median(values[-third:]) / statistics.median(values[:third])


def _next_looks(figures: Path, start: int, count: int) -> list[dict[str, Any]]:
    """So many, from that one on; waits for them."""
    while len(found := looks.written(figures)) < start + count:
        time.sleep(looks.INTERVAL / 5)
    return found[start : start + count]
