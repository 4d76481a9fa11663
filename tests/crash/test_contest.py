"""Eight writers and two consumers share an inbox, and any of them is killed at any time.

Nothing that was accepted is lost, and nothing is handed out twice without a receipt that says so.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.inbox.compaction import json_lines
from remuda.inbox.journal import Inbox
from support import counts
from support.crash import quick_folder

WRITER = """
import itertools, os, sys, time
from remuda.inbox.journal import Inbox
folder, name, accepted = sys.argv[1:]
inbox = Inbox(folder)
log = os.open(accepted, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
foreign = os.open(folder + "/inbox.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
for number in itertools.count():
    text = f"{name}-{os.getpid()}-{number}"
    options = [{}, {"dedup": text}, {"delay": 0.05}, {"ttl": 3600.0}, None][number % 5]
    if options is None:
        os.write(foreign, f"{text}\\n".encode())
    else:
        inbox.put(text, **options)
    os.write(log, f"{text}\\n".encode())
    time.sleep(0.01)
"""
"""Writes down each text that was accepted, in one write: it is whole or not there."""

CONSUMER = """
import os, random, sys, time
from remuda.errors import InboxBusy
from remuda.inbox import compaction, stop_hook
from remuda.inbox.locks import ConsumerLock
folder, handed, until_empty = sys.argv[1:]
while True:
    try:
        lock = ConsumerLock.take(folder, f"consumer {os.getpid()}")
        break
    except InboxBusy:
        time.sleep(0.01)
files = stop_hook.Files(folder + "/inbox.jsonl")
log = os.open(handed, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

def look(action):
    with stop_hook.Lock(files):
        inbox = stop_hook.HookInbox(files, "test")
        try:
            inbox.open()
            return action(inbox)
        finally:
            inbox.close()

def orphan(inbox):
    flight = inbox.in_flight()
    if flight is not None and not inbox.finish(flight):
        inbox.nack(flight, 0.0, "its consumer died", count_attempt=False)

def take(inbox):
    taken = inbox.next_entry()
    if taken is not None:
        inbox.deliver(*taken)
        return f"{taken[0].id} {taken[0].text}"
    return False if inbox.has_work() else None

def end(inbox):
    flight = inbox.in_flight()
    if random.random() < 0.1:
        inbox.nack(flight, 0.02, "at random", count_attempt=False)
    else:
        inbox.acknowledge(flight)

look(orphan)
while True:
    text = look(take)
    if text:
        os.write(log, f"{text}\\n".encode())
        look(end)
        if random.random() < 0.02:
            compaction.compact(folder, small=0)
    elif text is None and until_empty == "yes":
        break
    else:
        time.sleep(0.005)
"""


class Contest:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "inbox"
        self.folder.mkdir(mode=0o700)
        self.accepted = folder / "accepted"
        self.handed = folder / "handed"
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, until_empty: str = "no") -> None:
        if name.startswith("writer"):
            words = [WRITER, str(self.folder), name, str(self.accepted)]
        else:
            words = [CONSUMER, str(self.folder), str(self.handed), until_empty]
        self.running[name] = subprocess.Popen([sys.executable, "-c", *words], stderr=subprocess.PIPE)

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        assert process.poll() is None, process.communicate()[1].decode()
        process.kill()
        process.communicate()

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.communicate()

    def lines(self, path: Path) -> list[str]:
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def contest(tmp_path: Path) -> Iterator[Contest]:
    with quick_folder(tmp_path) as folder:
        one = Contest(folder)
        yield one
        one.close()


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_writers_and_consumers_killed_at_random_lose_nothing(contest: Contest) -> None:
    chance = random.Random(7)
    names = [*(f"writer{number}" for number in range(8)), "consumer0", "consumer1"]
    for name in names:
        contest.start(name)
    until = time.monotonic() + counts.CONTEST
    while time.monotonic() < until or len(contest.lines(contest.handed)) < 20:
        time.sleep(chance.uniform(0.05, 0.4))
        name = chance.choice([*names, "consumer0", "consumer1", "consumer0", "consumer1"])
        contest.kill(name)
        contest.start(name)
    for name in names:
        contest.kill(name)
    contest.start("last", until_empty="yes")
    assert contest.running["last"].wait(200) == 0, contest.running["last"].communicate()[1].decode()
    _check(contest)


def _check(contest: Contest) -> None:
    accepted = contest.lines(contest.accepted)
    handed = Counter(tuple(line.split()) for line in contest.lines(contest.handed))
    assert len(accepted) > 20
    assert set(accepted) - {text for _, text in handed} == set()
    assert max(Counter(text for _, text in handed).values()) == 1  # each has one id
    receipts = list(json_lines(str(contest.folder / "receipts.jsonl")))
    attempts: dict[str, list[int]] = {}
    for one in receipts:
        if one["stage"] == "written":
            attempts.setdefault(str(one["id"]), []).append(int(one["attempt"]))
    for (message, _), times in handed.items():
        # A number is left out where a consumer was killed between its lease and the receipt.
        assert attempts[message] == sorted(set(attempts[message]))
        assert len(attempts[message]) >= times
    acked = Counter(str(one["id"]) for one in receipts if one["stage"] == "acked")
    assert set(acked) == {message for message, _ in handed}
    assert Inbox(contest.folder).waiting() == []
    assert list(Inbox(contest.folder).dead_letters()) == []
