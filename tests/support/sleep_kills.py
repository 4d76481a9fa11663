"""A session that falls asleep and is woken while its keeper and its agent are killed."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable
from itertools import cycle

from remuda.errors import RemudaError
from remuda.inbox.receipts import FINAL
from remuda.proctree import descendants
from support.keeper import Process, until, until_equal
from support.messages import Post, phase, stages, why_awake

MOMENTS = ("falling", "asleep", "waking", "written", "submitted", "ended")
SEED = 19


class SleepKills:
    """`begin` starts the session: resumed, or for the first time."""

    def __init__(self, begin: Callable[[bool], Post]) -> None:
        self._begin = begin
        self._chance = random.Random(SEED)
        self.post = begin(False)
        self.sent: dict[str, str] = {}
        self.cut_off: set[str] = set()
        """What was in flight when the keeper or the agent was killed."""
        assert self.post.send("hello").stage == "acked"
        self.conversation = self._conversation()

    def _conversation(self) -> str:
        return str(self.post.client.describe()["conversation"]["session_id"])

    def rage(self, rounds: int) -> None:
        moments = cycle(self._chance.sample(MOMENTS, len(MOMENTS)))
        for _ in range(rounds):
            until_equal(lambda: why_awake(self.post.client), "", "sleep")
            self._reach(next(moments))
            self._kill(self._chance.choice(("keeper", "agent")))
            self._put()
            self._come_back()
        until(lambda: all(map(self._is_over, self.sent)), "the end of all messages")
        assert self._conversation() == self.conversation

    def _put(self) -> str:
        text = f"message {len(self.sent)}"
        message = self.post.put(text)
        self.sent[message] = text
        return message

    def _reach(self, moment: str) -> None:
        if moment == "asleep" or (moment == "waking" and self._chance.random() < 0.5):
            until_equal(lambda: phase(self.post), "asleep", "sleep")
        if moment == "falling":
            if self._chance.random() < 0.5:
                self._put()
        elif moment == "waking":
            self._put()
            until(lambda: phase(self.post) in ("waking", "awake"), "the wake")
        elif moment != "asleep":
            self.post.reached(self._put(), moment)

    def _kill(self, victim: str) -> None:
        """All at once: what is in flight then does not change any more."""
        keeper = self.post.kept.keeper
        keeper.signal(signal.SIGSTOP)
        agents = []
        for pid in descendants(keeper.pid):
            try:
                agents.append(Process(pid))
            except ProcessLookupError:
                pass
        if lease := self._lease():
            self.cut_off.add(lease)
        if victim == "keeper":
            keeper.signal(signal.SIGKILL)
        for agent in agents:
            agent.signal(signal.SIGKILL)
        keeper.signal(signal.SIGCONT)
        for agent in agents:
            agent.gone()
        if victim == "keeper":
            assert keeper.ended()

    def _lease(self) -> str | None:
        try:
            return str(json.loads((self.post.folder / ".inbox-lease.json").read_text())["id"])
        except FileNotFoundError:
            return None

    def _come_back(self) -> None:
        """Start it again if it has ended. Its keeper starts an agent again that is killed at a wake."""
        last = next(reversed(self.sent))
        until(lambda: not self.post.kept.keeper.alive or self._is_over(last), "its end, or its answer")
        if not self.post.kept.keeper.alive:
            self.post = self._begin(True)
        until(lambda: self._is_over(last), "its answer")

    def _is_over(self, message: str) -> bool:
        try:
            return self.post.trace(message).stage in FINAL
        except RemudaError:
            return False

    def judge(self, asked: Callable[[str], int]) -> None:
        """`asked` returns how often the agent got a prompt."""
        for message, text in self.sent.items():
            found = self.post.trace(message)
            assert sum(stage in FINAL for stage in stages(found)) == 1, found
            # An agent that was killed with a prompt may not have written it down.
            is_cut_off = found.stage == "dead" and message in self.cut_off
            assert found.stage == "acked" or (is_cut_off and "before it was answered" in found.reason), found
            assert asked(text) == 1 or (is_cut_off and not asked(text)), found
