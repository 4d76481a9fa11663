"""Keepers and agents are killed with messages in flight: none is lost, none runs twice unsaid."""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from remuda.inbox.receipts import FINAL
from support import counts
from support.delivery import Bench, attempts, kill_keeper
from support.keeper import Process, Start, until
from support.messages import Post, stages

SEED = 12
IN_A_ROUND = 3
STAGES = ("accepted", "written", "submitted", "recorded", "ended")


@pytest.fixture
def bench(start: Start, tmp_path: Path) -> Bench:
    return Bench(start, tmp_path)


def kill_agent(post: Post) -> None:
    agent = Process(post.kept.child_pid)
    agent.signal(signal.SIGKILL)
    assert post.kept.keeper.ended()
    agent.close()


@pytest.mark.soak
@pytest.mark.timeout(120 + 10 * counts.KEEPER_KILLS)
def test_killed_keepers_and_agents_with_messages_in_flight_lose_none(bench: Bench) -> None:
    chance = random.Random(SEED)
    post = bench.start(on_orphan="retry")
    sent: dict[str, str] = {}
    for number in range(counts.KEEPER_KILLS):
        texts = [f"round {number} message {one}" for one in range(IN_A_ROUND)]
        ids = [post.put(text) for text in texts]
        sent |= zip(ids, texts, strict=True)
        post.reached(chance.choice(ids), chance.choice(STAGES))
        chance.choice([kill_keeper, kill_agent])(post)
        post = bench.start(resume=True, on_orphan="retry")
    found = {one: post.ended(one) for one in sent}
    assert Counter(one.stage for one in found.values()) == {"acked": IN_A_ROUND * counts.KEEPER_KILLS}
    asked = Counter(bench.prompts(post))
    for message, receipt in found.items():
        assert sum(stage in FINAL for stage in stages(receipt)) == 1, receipt
        assert attempts(receipt) == sorted(set(attempts(receipt))), receipt
        assert 1 <= asked[sent[message]] <= len(attempts(receipt)), receipt


def test_keeper_killed_while_it_cancels_a_turn_does_not_run_that_message_again(bench: Bench) -> None:
    post = bench.start(on_orphan="retry", env={"MOCK_TIME_SCALE": "1"})
    message = post.put_until("SLOW 60", "recorded")
    os.kill(post.kept.child_pid, signal.SIGSTOP)  # it does not hear the key
    assert post.client.request("interrupt", id=message) == {"in_flight": True}
    lease = post.folder / ".inbox-lease.json"
    until(lambda: json.loads(lease.read_text()).get("unwanted"), "the wish on the disk")
    kill_keeper(post)
    post = bench.start(resume=True, on_orphan="retry", env={"MOCK_TIME_SCALE": "1"})
    found = post.ended(message)
    assert (found.stage, found.reason.partition(";")[0]) == ("dead", "taken back")
    assert attempts(found) == [1]
    post.run("hello")
    assert bench.prompts(post).count("SLOW 60") <= 1
