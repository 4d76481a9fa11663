"""How figures grow: with the number of sessions, and with the length of inbox, transcript and ledger.

Each has a curve. No part of it may be steeper than what grows; what a user waits for with every command shall
not grow at all. `ls` asks each keeper, so it grows with the sessions that run, but not with those that ended.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks import boss_next
from benchmarks.boss_crowd import Crowd
from benchmarks.cli import start_busy_agent
from benchmarks.curves import Curve, steepness
from benchmarks.inbox import HOOK, in_memory, inbox_of
from benchmarks.report import Report, Target, readable
from benchmarks.scene import Scene, bounded, cpu_seconds, memory_bytes

from remuda.boss.attention.model import Event, EventKind, Source, document
from remuda.boss.attention.rules import make_ask_id
from remuda.boss.attention.session_index import Changes
from remuda.boss.client import BossClient
from remuda.boss.detach import start_detached
from remuda.boss.folder import BossFolder
from remuda.boss.navigator import own_program
from remuda.boss.records.store import Store
from remuda.boss.service import BossService
from remuda.inbox.journal import Inbox
from remuda.mcp.ledger import LEDGER_BYTES, read_ledger, record_call
from remuda.paths import private_folder

_SESSIONS = (1, 10, 50, 100, 200, 500)
_ENTRIES = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
_TRANSCRIPT_MB = (1, 10, 100, 1_000)
_REQUESTS = _LINES = (10, 100, 1_000, 10_000, 100_000)
_BATCH = 1_000
_BETWEEN = 17.0
"""Seconds between two requests: a boss deletes those of more than 30 days."""
_BOSS_STARTS = 3
_TIMES = 5
_PUTS = 25
_STARTS = 5
_IDLE_SECONDS = 4.0
_MEASURABLE = 10
"""Sessions from which on the boss uses enough time to be counted."""
_MB = 1e6
_ENDED = (1, 10, 100, 1_000, 10_000)
_LINEAR = Target("<=", 1.1)
_FLAT = Target("<=", 1.5)
_EACH = Target("<=", 0.3)
"""Milliseconds of `ls` for one more session: 50 in 55 ms, where one takes 40."""

Points = list[tuple[float, float]]


def measure(scene: Scene, report: Report, _rounds: int) -> None:
    with bounded(900.0, "growth"):
        _inbox(scene, report)
        _transcript(scene, report)
        _ledger(scene, report)
        _mcp_log(scene, report)
        _ended(scene, report)
        _sessions(scene, report)


def _tell(report: Report, curve: Curve, flat: Sequence[str] = ()) -> None:
    """Print each line with its points, and by how much it grew. `flat`: lines that must not grow."""
    report.curve(curve)
    for name, points in curve.lines.items():
        note = ", ".join(f"{x:,.0f}: {readable(y)}" for x, y in points)
        text = f"{name}, {points[0][0]:,.0f} to {points[-1][0]:,.0f} {curve.along}"
        if name in flat:
            grown = max(y for _, y in points) / points[0][1]
            report.add(f"{text}, the most / the first", grown, "x", _FLAT, note)
        else:
            report.add(f"{text}, steepest part", steepness(points), "", _LINEAR, note)


def _median(take: Callable[[], float], times: int = _TIMES) -> float:
    return statistics.median(take() for _ in range(times))


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


# ── sessions ──


def _sessions(scene: Scene, report: Report) -> None:
    report.title(f"Growth: {_SESSIONS[0]} to {_SESSIONS[-1]} sessions", "tmux with as many sessions")
    started: Points = []
    commands: dict[str, Points] = {"ls": [], "status": [], "send": [], "queue": [], "next --show": []}
    more = {"status": ["work"], "send": ["work", "hello"]}
    key: Points = []
    share: Points = []
    weight: Points = []
    kept = 0
    scene.start_fork_server()
    with boss_next.service(scene, scene.folder) as walk:
        boss = BossClient(BossFolder(scene.folder / "boss"))
        pid = int(boss.get("health")["pid"])
        start_busy_agent(scene)
        for count in _SESSIONS:
            taken = [_timed(lambda: scene.keep(["cat"])) for _ in range(kept, count)]
            kept = count
            started.append((count, statistics.median(taken[-_STARTS:])))
            _until_known(boss, count)
            for name, points in commands.items():
                words = [*name.split(), *more.get(name, ())]
                points.append((count, _median(partial(_timed, partial(_run, scene, *words)))))
            key.append((count, _median(lambda: walk.time(lambda one: one.press(b"\t")), 7)))
            weight.append((count, memory_bytes(pid)[0] / _MB))
            if count >= _MEASURABLE:
                before = cpu_seconds(pid)
                time.sleep(_IDLE_SECONDS)
                share.append((count, (cpu_seconds(pid) - before) / _IDLE_SECONDS * 100))
    lines = {"start of one more": started, "key to the next waiting agent": key}
    title = "What a user waits for, by the number of sessions"
    _tell(report, Curve("sessions", title, "sessions", "ms", lines), tuple(lines))
    lines = {f"remuda {name}": points for name, points in commands.items()}
    flat = tuple(name for name in lines if name != "remuda ls")
    _tell(report, Curve("commands", "Commands, by the number of sessions", "sessions", "ms", lines), flat)
    listed = commands["ls"]
    (_, one), (most, last) = listed[0], listed[-1]
    report.add("remuda ls, for each session more", (last - one) / (most - 1), "ms", _EACH)
    _tell(
        report,
        Curve(
            "boss",
            "The boss at rest, by the number of sessions",
            "sessions",
            "% of one core; MB",
            {"CPU time, % of one core": share, "RSS, MB": weight},
        ),
    )


def _until_known(boss: BossClient, count: int) -> None:
    while len(boss.get_brief("sessions")["sessions"]) < count:
        time.sleep(0.05)


def _run(scene: Scene, *words: str) -> None:
    subprocess.run(
        [*own_program(), *words],
        env=scene.env,
        cwd=scene.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
    )


# ── sessions that ended ──


def _ended(scene: Scene, report: Report) -> None:
    report.title(
        f"Growth: {_ENDED[0]} to {_ENDED[-1]:,} sessions that ended", "tmux, which forgets those that ended"
    )
    listed: Points = []
    started: Points = []
    with scene.new_home("ended"):
        scene.start_fork_server()
        (path,) = scene.sessions.glob("*.json")
        record, count = path.read_text(), 1
        for wanted in _ENDED:
            for number in range(count, wanted):
                path.with_name(f"old{number}.json").write_text(record.replace(path.stem, f"old{number}", 1))
            count = wanted
            listed.append((count, _median(lambda: _timed(lambda: _run(scene, "ls")))))
            started.append((count, _median(lambda: _start(scene))))
    lines = {"remuda ls": listed, "start of one more": started}
    title = "What a user waits for, by the number of sessions that ended"
    _tell(report, Curve("ended", title, "sessions", "ms", lines), tuple(lines))


def _start(scene: Scene) -> float:
    began = time.perf_counter()
    kept = scene.keep(["cat"])
    taken = (time.perf_counter() - began) * 1000
    scene.end(kept.keeper_pid)
    return taken


# ── an inbox ──


def _inbox(scene: Scene, report: Report) -> None:
    report.title(f"Growth: an inbox of 1 to {_ENTRIES[-1]:,} messages", "a file that is appended to")
    with in_memory() as memory, _on_disk(scene) as disk:
        lines: dict[str, Points] = {}
        for where, folder in (("in memory", memory), ("on the disk", disk)):
            lines[f"tick of the Stop hook, {where}"] = ticks = []
            lines[f"put, {where}"] = puts = []
            for count in _ENTRIES:
                inbox = inbox_of(folder / str(count), count + _TIMES)
                hook = [sys.executable, "-I", "-S", str(HOOK), "--inbox", str(inbox)]
                ticks.append((count, _median(partial(_timed, partial(_tick, scene, hook)))))
                with Inbox(inbox.parent) as journal:
                    puts.append((count, _median(partial(_timed, partial(journal.put, "x" * 80)), _PUTS)))
                shutil.rmtree(inbox.parent)
    _tell(report, Curve("inbox", "An inbox", "messages", "ms", lines), tuple(lines))


@contextmanager
def _on_disk(scene: Scene) -> Iterator[Path]:
    folder = scene.folder / "growing-inbox"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def _tick(scene: Scene, hook: list[str]) -> None:
    subprocess.run(hook, env=scene.env, input=b"{}", stdout=subprocess.DEVNULL, check=True)


# ── a transcript ──


def _transcript(scene: Scene, report: Report) -> None:
    report.title(f"Growth: a transcript of 1 to {_TRANSCRIPT_MB[-1]:,} MB", "tail and jq")
    known: Points = []
    page: Points = []
    for size in _TRANSCRIPT_MB:
        with in_memory() as folder, _boss(scene, crowd := Crowd(folder, 1, int(size * _MB)), size) as boss:
            (session,) = crowd.sessions
            began = time.perf_counter()
            while not (found := boss.get("sessions")["sessions"]) or not found[0]["last_message"]:
                time.sleep(0.005)
            known.append((size, (time.perf_counter() - began) * 1000))
            page.append(
                (size, _median(partial(_timed, partial(boss.get, "sessions", session, "conversation"))))
            )
        scene.end_all()
    lines = {"last page of the conversation": page, "start of a boss until the session is known": known}
    _tell(report, Curve("transcript", "A transcript, in memory", "MB", "ms", lines), tuple(lines))


@contextmanager
def _boss(scene: Scene, crowd: Crowd, size: int) -> Iterator[BossClient]:
    home = scene.folder / f"transcript{size}"
    env = {"CLAUDE_CONFIG_DIR": str(crowd.config), "REMUDA_HOME": str(home), "TMUX_TMPDIR": str(scene.folder)}
    before = dict(os.environ)
    os.environ.update(env)
    try:
        folder = BossFolder(home / "boss")
        started = start_detached(folder, 0)
    finally:
        os.environ.clear()
        os.environ.update(before)
    yield BossClient(folder)
    scene.end(started["pid"])


# ── the ledger ──


def _ledger(scene: Scene, report: Report) -> None:
    """One boss after another has the same database, to which decided requests are added."""
    report.title(
        f"Growth: a ledger of {_REQUESTS[0]} to {_REQUESTS[-1]:,} decided requests",
        "grep in transcripts",
    )
    open_ones: Points = []
    decided: Points = []
    page: Points = []
    more: Points = []
    started: Points = []
    known = 0
    with scene.new_home("ledger") as home:
        folder = BossFolder(home / "boss")
        private_folder(folder.path)
        for count in _REQUESTS:
            asyncio.run(_decide(folder, range(known, count)))
            known = count
            started.append((count, _median(lambda: _timed_start(scene, folder), _BOSS_STARTS)))
            boss, pid = BossClient(folder), start_detached(folder, 0, sources=())["pid"]
            open_ones.append((count, _median(lambda: _timed(lambda: _run(scene, "approvals")))))
            decided.append((count, _median(lambda: _timed(lambda: _run(scene, "approvals", "--all")))))
            page.append((count, _median(partial(_timed, partial(_read_lists, boss)))))
            more.append((count, _median(partial(_ask_once_more, boss), 20)))
            scene.end(pid)
    # Not all are flat: the lists of decided ones are full with 30 and 100 requests, and not with 10.
    more_name = "one more request, until it is on disk"
    lines = {
        "remuda approvals": open_ones,
        "remuda approvals --all": decided,
        "the lists of the page": page,
        more_name: more,
        "start of a boss": started,
    }
    title = "The ledger of permission requests and decisions"
    _tell(report, Curve("ledger", title, "decided requests", "ms", lines), ("remuda approvals", more_name))


async def _decide(folder: BossFolder, numbers: range) -> None:
    """Add decided requests. The first ones are asked and answered; the others are like them."""
    service = BossService(Store(folder.database))
    await service.open()
    try:
        asked = [_asked(number) for number in numbers[: _REQUESTS[0]]]
        await service.take(*asked)
        requests = [one for event in asked if (one := service.approval_of(event)) is not None]
        answered = [await service.answer(one.id, {"behavior": "allow"}, "bench") for one in requests]
        for begin in range(len(answered), len(numbers), _BATCH):
            changes = Changes()
            for number in numbers[begin : begin + _BATCH]:
                like = answered[number % len(answered)]
                at = like.asked_at - number * _BETWEEN
                one = replace(like, id=make_ask_id(_asked(number)), asked_at=at, at=at + 1)
                changes.approvals[one.id] = one
            await service.store.write([changes])
    finally:
        await service.close()


def _asked(number: int) -> Event:
    facts = {
        "tool": "Bash",
        "input": {"command": f"make check TARGET={number}", "description": "Check one target"},
        "reason": "permission",
        "agent": "claude",
        "cwd": "/srv/demo",
    }
    session = f"asks-{number % _REQUESTS[0]}"
    return Event(EventKind.ASKED, session, time.time(), Source.HOOK, f"request-{number}", facts)


def _timed_start(scene: Scene, folder: BossFolder) -> float:
    began = time.perf_counter()
    pid = start_detached(folder, 0, sources=())["pid"]
    taken = (time.perf_counter() - began) * 1000
    scene.end(pid)
    return taken


def _read_lists(boss: BossClient) -> None:
    """As the page does when it is opened, and after a break of its connection."""
    boss.get("approvals", state="open", limit=1000)
    boss.get("approvals", limit=30)


def _ask_once_more(boss: BossClient) -> float:
    number = time.monotonic_ns()
    body = {"events": [document(_asked(number)) | {"source": "hook"}]}
    taken = _timed(lambda: boss.post("events", body=body))
    over = {"kind": "stopped", "session_id": f"asks-{number % _REQUESTS[0]}", "at": time.time(), "facts": {}}
    boss.post("events", body={"events": [over]})  # it is open no longer
    return taken


# ── the log of MCP ──


def _mcp_log(scene: Scene, report: Report) -> None:
    """It is flat as it is cut: it has two files of 4 MB at most, whatever was called."""
    report.title(f"Growth: {_LINES[0]} to {_LINES[-1]:,} calls through MCP", "no record of them")
    written: Points = []
    read: Points = []
    before = os.environ.get("REMUDA_HOME")
    try:
        for count in _LINES:
            home = scene.folder / f"mcp{count}"
            os.environ["REMUDA_HOME"] = str(home)
            record_call("work", "send", "ok")
            path = home / "mcp" / "ledger.jsonl"
            line = path.read_bytes()
            whole = line * count
            path.with_name("ledger.jsonl.1").write_bytes(whole[-LEDGER_BYTES:])
            path.write_bytes(line * min(count, LEDGER_BYTES // len(line) // 2))
            written.append((count, _median(lambda: _timed(lambda: record_call("work", "send", "ok")), 50)))
            read.append((count, _median(lambda: _timed(lambda: read_ledger(20)))))
    finally:
        os.environ.pop("REMUDA_HOME")
        if before is not None:
            os.environ["REMUDA_HOME"] = before
    lines = {"one more line": written, "reading the last 20": read}
    _tell(
        report,
        Curve("mcp", "The log of calls through MCP, which is cut at 8 MB", "calls", "ms", lines),
        ("one more line",),
    )
