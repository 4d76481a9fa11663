"""The Stop hook is killed before every system call that it makes, and recovered: nothing is lost, and nothing
is handed out twice without a receipt that says so."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import counts
from remuda.inbox import stop_hook
from remuda.inbox.stop_hook import Files

STEP = 1 if counts.SOAK else 3
"""Every which kill point is taken."""
_MEMORY = {"mmap", "munmap", "mremap", "mprotect", "madvise", "brk"}  # as often as they like, and no file's
_CALL = re.compile(r"^\d+ +(\w+)\(")
_FINAL = {"acked", "dead", "dropped", "expired"}
_FAR = 3600.0
PAYLOAD = b'{"session_id": "s"}'


class Box:
    """An inbox, and what was handed out of it so far."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.files = Files(str(folder / "inbox.jsonl"))
        self.handed: list[str] = []

    def put(self, name: str, **fields: object) -> None:
        with Path(self.files.inbox).open("a") as inbox:
            inbox.write(json.dumps({"remuda": 1, "id": name, "prompt": name, **fields}) + "\n")

    def tick(self) -> bool:
        """In this process, for speed."""
        text = stop_hook.tick(self.files, {"session_id": "s"}, stop_hook.ticks(), []).text
        if text is not None:
            self.handed.append(text)
        return text is not None

    def drain(self) -> None:
        while self.tick():
            pass

    def make_due(self, *names: str) -> None:
        """The delay of those passes (of all when none is named)."""
        lines = Path(self.files.inbox).read_bytes()
        queue = json.loads(Path(self.files.queue).read_text())
        for one in queue["held"]:
            if not names or json.loads(lines[one["start"] : one["end"]])["id"] in names:
                one["due"] = 1.0
        Path(self.files.queue).write_text(json.dumps(queue))

    def argv(self, words: list[str]) -> list[str]:
        return [sys.executable, "-I", "-S", stop_hook.__file__, *words, "--inbox", self.files.inbox]

    def receipts(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in Path(self.files.receipts).read_text().splitlines()]


def _three(box: Box) -> None:
    for name in ("alpha", "bravo", "charlie"):
        box.put(name)


def _handed_out(box: Box) -> None:
    _three(box)
    assert box.tick()


def _delayed_ahead(box: Box) -> None:
    box.put("later", not_before=time.time() + _FAR)
    _three(box)


def _delayed_handed_out(box: Box) -> None:
    """One that was delayed is in flight, another still waits, and what is between them is acknowledged."""
    box.put("later", not_before=time.time() + _FAR)
    box.put("alpha")
    box.put("last", not_before=time.time() + _FAR)
    box.put("bravo")
    box.drain()
    box.make_due("later")
    assert box.tick()
    assert box.handed == ["alpha", "bravo", "later"]


def _to_be_buried(box: Box) -> None:
    box.put("old", expires=1.0, **{"from": "me"})
    _three(box)


def _replaced(box: Box) -> None:
    box.put("before")
    box.drain()
    Path(box.files.inbox).write_text("")
    _three(box)


Scenario = tuple[Callable[[Box], None], list[str]]
SCENARIOS: dict[str, Scenario] = {
    "delivers": (_three, []),
    "acknowledges and delivers": (_handed_out, []),
    "passes a delayed one": (_delayed_ahead, []),
    "acknowledges a delayed one": (_delayed_handed_out, []),
    "bounces": (_to_be_buried, []),
    "begins a replaced inbox": (_replaced, []),
    "recover retry": (_handed_out, ["recover", "--on-orphan", "retry"]),
    "recover deadletter": (_handed_out, ["recover", "--on-orphan", "deadletter"]),
    "recover drop": (_handed_out, ["recover", "--on-orphan", "drop"]),
}


def _kill_points(box: Box, words: list[str]) -> list[tuple[str, int]]:
    """Each call from the opening of the lock on: its name, and the how manieth of that name it is."""
    trace = Path(box.files.folder) / "trace"
    subprocess.run(
        ["strace", "-f", "-qq", "-o", str(trace), *box.argv(words)],
        input=b"",
        capture_output=True,
        check=True,
    )
    seen: Counter[str] = Counter()
    points: list[tuple[str, int]] = []
    begun = False
    for line in trace.read_text().splitlines():
        if (call := _CALL.match(line)) is None:
            continue
        name = call[1]
        seen[name] += 1
        begun = begun or (".inbox-lock" in line and name != "execve")
        if begun and name not in _MEMORY:
            points.append((name, seen[name]))
    return points


def _killed_at(box: Box, words: list[str], point: tuple[str, int]) -> bool:
    name, nth = point
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={name}"]
    strace += ["-e", f"inject={name}:signal=KILL:when={nth}"]
    ran = subprocess.run([*strace, *box.argv(words)], input=PAYLOAD, capture_output=True)
    if ran.stdout:
        box.handed.append(json.loads(ran.stdout)["reason"])
    return ran.returncode == -signal.SIGKILL


def _check(box: Box, expected: set[str]) -> None:
    receipts = box.receipts()
    ended = {str(one["id"]) for one in receipts if one["stage"] in _FINAL}
    assert ended >= expected, "lost"
    bounced = {str(one["id"]) for one in receipts if one["stage"] == "expired"}
    assert set(box.handed) >= expected - bounced, "never handed out"
    for name, times in Counter(box.handed).items():
        attempts = [one.get("attempt") for one in receipts if (one["id"], one["stage"]) == (name, "written")]
        assert len(attempts) >= times, f"{name} was handed out {times} times: {attempts}"
        if times > 1:
            assert max(int(str(attempt)) for attempt in attempts) >= times, f"{name}: {attempts}"
    assert int(Path(box.files.offset).read_text()) == Path(box.files.inbox).stat().st_size
    assert not stop_hook.exists(box.files.in_flight)


@pytest.mark.soak
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_kill_at_any_call_loses_nothing(tmp_path: Path, scenario: str) -> None:
    prepare, words = SCENARIOS[scenario]
    plain = Box(tmp_path / "plain")
    prepare(plain)
    points = _kill_points(plain, words)
    assert len(points) > 20

    def one(number: int) -> bool:
        box = Box(tmp_path / str(number))
        prepare(box)
        expected = {json.loads(line)["id"] for line in Path(box.files.inbox).read_text().splitlines()}
        killed = _killed_at(box, words, points[number])
        stop_hook.recover(box.files, "retry", [])
        box.drain()
        box.make_due()
        box.drain()
        try:
            _check(box, expected)
        except AssertionError as error:
            error.add_note(f"killed at {points[number]}, handed out {box.handed}")
            raise
        return killed

    with ThreadPoolExecutor(2) as pool:
        killed = list(pool.map(one, range(0, len(points), STEP)))
    # The interpreter's own last calls may differ by a few between runs.
    assert sum(killed) >= 0.9 * len(killed)
