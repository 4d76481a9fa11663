"""An inbox whose programs are killed before a system call of theirs, and what must hold of it afterwards."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import remuda
from remuda.inbox import stop_hook
from remuda.inbox.compaction import json_lines
from remuda.inbox.journal import Inbox
from remuda.inbox.stop_hook import Files
from support import counts
from support.envelopes import put_marked

FAR = 3600.0
PAYLOAD = b'{"session_id": "s"}'
BEGIN = "/remuda-begins-here"
_MEMORY = {"mmap", "munmap", "mremap", "mprotect", "madvise", "brk"}  # as often as they like, and no file's
_CALL = re.compile(r"^\d+ +(\w+)\(")
SOURCE = Path(remuda.__file__).parent.parent
_PREAMBLE = (
    "import os, sys\n"
    "folder = sys.argv[1]\n"
    "sys.path.insert(0, sys.argv[2])\n"
    "from remuda.inbox import compaction, journal, stop_hook, writer\n"
    "inbox = journal.Inbox(folder)\n"
    "files = stop_hook.Files(folder + '/inbox.jsonl')\n"
)


@contextmanager
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where that can be had: no disk is tested here, and thousands of times is it synced."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(dir=memory))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


class Box:
    """An inbox, and what was handed out of it so far."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self.folder = folder
        self.files = Files(str(folder / "inbox.jsonl"))
        self.journal = Inbox(folder)
        self.handed: list[str] = []
        self.said = ""

    def put(self, name: str, **fields: object) -> None:
        put_marked(self.files.inbox, id=name, prompt=name, **fields)

    def tick(self) -> bool:
        """In this process, for speed."""
        text = stop_hook.tick(self.files, {"session_id": "s"}, stop_hook.ticks(), []).text
        if text is not None:
            self.note_handed(text)
        return text is not None

    def note_handed(self, text: str) -> None:
        self.handed.append(text)

    def drain(self) -> None:
        while self.tick():
            pass

    def make_due(self, *names: str) -> None:
        """The delay of those passes (of all when none is named)."""
        if not stop_hook.exists(self.files.queue):
            return
        lines = Path(self.files.inbox).read_bytes()
        queue = json.loads(Path(self.files.queue).read_text())
        for one in queue["held"]:
            if not names or json.loads(lines[one["start"] : one["end"]])["id"] in names:
                one["due"] = 1.0
        Path(self.files.queue).write_text(json.dumps(queue))

    def settle(self) -> None:
        """What the next session does: recover, and hand out all, also what was delayed."""
        stop_hook.recover(self.files, "retry", [])
        self.drain()
        self.make_due()
        self.drain()

    def expected(self) -> set[str]:
        lines = Path(self.files.inbox).read_bytes().strip(b"\0").splitlines()
        return {json.loads(line)["id"] for line in lines if b'"id"' in line}

    def receipts(self) -> list[dict[str, object]]:
        return list(json_lines(self.files.receipts))

    def written(self, name: str) -> list[int]:
        return [
            int(str(one.get("attempt")))
            for one in self.receipts()
            if (one["id"], one["stage"]) == (name, "written")
        ]

    def letters(self) -> list[str]:
        return [stop_hook.Entry(0, 0, str(one["raw_line"])).text for one in self.journal.dead_letters()]


def check(box: Box, expected: set[str]) -> None:
    """Nothing is lost; nothing was handed out twice without a receipt that says so; no letter is doubled."""
    receipts = box.receipts()
    ended = {str(one["id"]) for one in receipts if one["stage"] in stop_hook.FINAL}
    assert ended >= expected, f"lost: {expected - ended}"
    acked = {str(one["id"]) for one in receipts if one["stage"] == "acked"}
    assert set(box.handed) >= acked & expected, "acknowledged, and never handed out"
    for name, times in Counter(one for one in box.handed if one in expected).items():
        attempts = box.written(name)
        assert len(attempts) >= times, f"{name} was handed out {times} times: {attempts}"
        if times > 1:
            assert max(attempts) >= times, f"{name}: {attempts}"
    letters = box.letters()
    assert len(set(letters)) == len(letters), f"doubled: {letters}"
    if stop_hook.exists(box.files.inbox):
        assert stop_hook.Queue(box.files)._read_offset(None) == Path(box.files.inbox).stat().st_size
    assert not stop_hook.exists(box.files.in_flight)


def nothing(box: Box) -> None:
    pass


@dataclass(frozen=True)
class Scenario:
    """`words` of the Stop hook's command line, or a `script` on `inbox`, `files` and `folder`."""

    prepare: Callable[[Box], None]
    words: tuple[str, ...] = ()
    script: str = ""
    after: Callable[[Box], None] = nothing
    """What its user does when it was killed, before all is recovered."""
    check: Callable[[Box], None] = nothing
    """Beyond what holds for all."""

    def argv(self, box: Box, source: Path = SOURCE) -> list[str]:
        """`source` is where the package lies that is run."""
        if self.script:
            script = f"{_PREAMBLE}os.access({BEGIN!r}, 0)\n{self.script}"
            return [sys.executable, "-I", "-S", "-c", script, str(box.folder), str(source)]
        hook = str(source / "remuda" / "inbox" / "stop_hook.py")
        return [sys.executable, "-I", "-S", hook, *self.words, "--inbox", box.files.inbox]


def kill_points(box: Box, scenario: Scenario) -> list[tuple[str, int]]:
    """Each call from the first that counts on: its name, and the how manieth of that name it is."""
    # Once before: the first run compiles what no other has loaded yet, with calls that later runs lack.
    warm = Box(box.folder.parent / "warm")
    scenario.prepare(warm)
    subprocess.run(scenario.argv(warm), input=PAYLOAD, capture_output=True, check=True)
    return traced_calls(scenario.argv(box), box.folder.parent / "trace")


def traced_calls(argv: list[str], trace: Path) -> list[tuple[str, int]]:
    """Run it to its end; returns the name and number of each system call after the first that counts."""
    strace = ["strace", "-f", "-qq", "-o", str(trace), *argv]
    subprocess.run(strace, input=b"", capture_output=True, check=True)
    seen: Counter[str] = Counter()
    points: list[tuple[str, int]] = []
    begun = False
    for line in trace.read_text(errors="replace").splitlines():
        if (call := _CALL.match(line)) is None:
            continue
        name = call[1]
        seen[name] += 1
        if begun and name not in _MEMORY:
            points.append((name, seen[name]))
        begun = begun or ((BEGIN in line or ".inbox-lock" in line) and name != "execve")
    return points


def run_killed(argv: list[str], point: tuple[str, int]) -> subprocess.CompletedProcess[bytes]:
    """Run it, and kill it before that system call."""
    name, nth = point
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={name}"]
    strace += ["-e", f"inject={name}:signal=KILL:when={nth}"]
    return subprocess.run([*strace, *argv], input=PAYLOAD, capture_output=True)


def kill_at(box: Box, scenario: Scenario, point: tuple[str, int]) -> bool:
    ran = run_killed(scenario.argv(box), point)
    box.said = ran.stdout.decode()
    if box.said and not scenario.script:
        box.note_handed(json.loads(box.said)["reason"])
    return ran.returncode == -signal.SIGKILL


def kill_everywhere(folder: Path, scenario: Scenario, make_box: type[Box] = Box) -> int:
    """How many kill points were taken."""
    plain = make_box(folder / "plain")
    scenario.prepare(plain)
    points = kill_points(plain, scenario)
    assert len(points) > 20

    def one(number: int) -> bool:
        box = make_box(folder / str(number))
        scenario.prepare(box)
        expected = box.expected() if stop_hook.exists(box.files.inbox) else set()
        killed = kill_at(box, scenario, points[number])
        try:
            scenario.after(box)
            box.settle()
            check(box, expected)
            scenario.check(box)
        except AssertionError as error:
            error.add_note(f"killed at {points[number]}, handed out {[text[:40] for text in box.handed]}")
            raise
        return killed

    with ThreadPoolExecutor(2) as pool:
        tried = range(0, len(points), counts.KILL_STEP)
        killed = list(pool.map(one, tried))
    # The interpreter's own last calls may differ by a few between runs, and a step of three skips over some.
    missed = [points[number] for number, was_killed in zip(tried, killed, strict=True) if not was_killed]
    assert len(missed) <= max(2, 0.1 * len(killed)), f"of {len(points)} calls not reached: {missed}"
    return len(killed)
