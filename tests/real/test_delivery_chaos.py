"""Messages through a kept Claude Code while its agent, its keeper and their sender are killed at random."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from remuda.errors import SessionExists
from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import FINAL, Trace, trace
from remuda.keeper.survivors import end_survivors
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support import counts
from support.keeper import Kept, Process, Start
from support.messages import stages
from support.real_sessions import keep, outcomes

SEED = 7
MESSAGES = counts.CHAOS_MESSAGES
VICTIMS = ("agent", "agent", "keeper", "sender", "nobody")
# It begins again from the first whenever it was killed; the keys make that harmless.
SENDER = """
import sys, time
from remuda.inbox.journal import Inbox
inbox = Inbox(sys.argv[1])
for number, text in enumerate(sys.argv[2:]):
    if not inbox.put(text, dedup=f"chaos-{number}").duplicate:
        time.sleep(0.2)
"""


class Chaos:
    """A session that is started again whenever it has died, and what dies at random."""

    def __init__(self, start: Start, cli: RealCli, texts: list[str]) -> None:
        self._start, self._cli, self._texts = start, cli, texts
        self._random = random.Random(SEED)
        self.kept = self._begin(resume=False)
        self.folder = self.kept.paths.inbox
        self.killed: Counter[str] = Counter()
        self._sender = self._send()
        self._next: list[str] = []

    def _begin(self, *, resume: bool) -> Kept:
        policy = self._random.choice(["retry", "retry", "deadletter"])
        try:
            return keep(self._start, self._cli, resume=resume, on_orphan=policy)
        except SessionExists:  # Claude Code that loses its terminal within its first second may run on
            assert end_survivors(self.kept.paths, 0.0)[1] == []  # what the error says: 'remuda kill'
            return keep(self._start, self._cli, resume=resume, on_orphan=policy)

    def _send(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", SENDER, str(self.folder), *self._texts])

    def go_on(self) -> None:
        """Let a while pass, kill someone, and start again what is dead."""
        time.sleep(self._random.uniform(0.1, 2.0))
        if self.killed.total() < MESSAGES:  # the last ones get through in peace
            self._kill(self._victim())
        if self._sender.poll() is not None and self._sender.returncode != 0:
            self._sender = self._send()
        if not self.kept.keeper.alive:
            self.kept = self._begin(resume=True)

    def _victim(self) -> str:
        """In every five all have their turn, in any order."""
        if not self._next:
            self._next = self._random.sample(VICTIMS, len(VICTIMS))
        return self._next.pop()

    def _kill(self, victim: str) -> None:
        self.killed[victim] += 1
        if victim == "sender":
            self._sender.kill()
            self._sender.wait()
        elif victim == "keeper":
            self.kept.keeper.kill()
        elif victim == "agent":
            self._kill_agent()

    def _kill_agent(self) -> None:
        try:
            agent = Process(self.kept.child_pid)
        except ProcessLookupError:
            return
        agent.signal(self._random.choice([signal.SIGKILL, signal.SIGTERM]))
        assert self.kept.keeper.ended(), (agent.alive, self.kept.log()[-4000:])
        agent.close()

    def sent_all(self) -> bool:
        return self._sender.poll() == 0

    def close(self) -> None:
        self._sender.kill()
        self._sender.wait()


def all_traces(folder: Path, ids: list[str]) -> list[Trace]:
    return [found for one in ids if (found := trace(folder, one)) is not None]


@pytest.mark.soak
@pytest.mark.real
@pytest.mark.timeout(120 + 10 * MESSAGES)
@pytest.mark.shows("no message is lost or runs twice when processes are killed")
def test_every_message_ends_once_whoever_is_killed(cli: RealCli, start: Start, model: LoopbackModel) -> None:
    texts = [f"SLOW 1 chaos {n}" if n % 3 == 1 else f"chaos {n} is here" for n in range(MESSAGES)]
    chaos = Chaos(start, cli, texts)
    try:
        ids = run(chaos, texts)
    finally:
        chaos.close()
    assert set(chaos.killed) == set(VICTIMS)
    judge(chaos.folder, dict(zip(ids, texts, strict=True)), model)


def run(chaos: Chaos, texts: list[str]) -> list[str]:
    """Until all have ended; gives their ids."""
    inbox = Inbox(chaos.folder)
    deadline = time.monotonic() + 60.0 + 6.0 * len(texts)
    while True:
        assert time.monotonic() < deadline, f"killed {chaos.killed}, {inbox.overview()}"
        chaos.go_on()
        if chaos.sent_all() and chaos.killed.total() >= MESSAGES:
            ids = [inbox.put(text, dedup=f"chaos-{n}").id for n, text in enumerate(texts)]
            if all(found.ended for found in all_traces(chaos.folder, ids)):
                return ids


def judge(folder: Path, sent: dict[str, str], model: LoopbackModel) -> None:
    outcomes(model)
    taken = Counter(str(request.said) for request in model.main_requests)
    answered = {str(request.said) for request in model.main_requests if request.outcome == "answered"}
    letters = Counter(str(letter["raw_line"]) for letter in Inbox(folder).dead_letters())
    assert len(sent) == len(set(sent.values())) == MESSAGES
    for found in all_traces(folder, list(sent)):
        text = sent[found.id]
        steps = stages(found)
        assert sum(stage in FINAL for stage in steps) == 1, found
        attempts = [one["attempt"] for one in found.steps if one["stage"] == "written"]
        assert attempts == sorted(set(attempts)), found
        # What the model got more than once was handed over more than once, and the receipt says so.
        assert taken[text] <= len(attempts), (found, taken[text])
        if found.stage == "acked":
            assert text in answered, found
            assert found.answer is not None, found
        else:
            assert found.stage == "dead", found
            assert found.reason, found
            assert sum(count for raw, count in letters.items() if found.id in raw) == 1, found
