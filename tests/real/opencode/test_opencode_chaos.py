"""Messages through the real opencode while its keeper, its server and its terminal are killed at random."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import time
from collections import Counter

import pytest

from remuda import Client
from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import FINAL, trace
from remuda.keeper.survivors import end_survivors
from support import counts
from support.keeper import Process, Start
from support.messages import Post, stages, step
from support.opencode import PATIENCE, Opencode, record_of

SEED = 11
MESSAGES = 50
REQUESTS = 100
VICTIMS = ("keeper", "server", "terminal")
KILL_EVERY = 3
"""Messages between two kills: a start takes seconds."""


def kill(post: Post, victim: str) -> None:
    record = record_of(post)
    pids = {
        "server": record["companion_pid"],
        "terminal": record["child_pid"],
        "keeper": post.kept.keeper_pid,
    }
    try:
        process = Process(int(pids[victim]))
    except ProcessLookupError:
        return
    process.signal(signal.SIGKILL)
    assert process.ended()
    process.close()
    if victim != "server":
        assert post.kept.keeper.ended()
        assert end_survivors(post.kept.paths, 0.0)[1] == []


pytestmark = [pytest.mark.soak, pytest.mark.real, pytest.mark.timeout(3600)]
in_soak = pytest.mark.skipif(not counts.SOAK, reason="it takes minutes: `make soak` runs it")


@in_soak
@pytest.mark.shows("no message is lost or runs twice when processes are killed")
def test_no_message_is_lost_or_run_twice_whatever_is_killed(opencode: Opencode, start: Start) -> None:
    chance = random.Random(SEED)
    texts = [f"SLOW 1 chaos {n}" if n % 3 == 1 else f"chaos {n} is here" for n in range(MESSAGES)]
    post = opencode.start(start)
    post.kept.may_complain = True  # a server that is started again may be killed with its keeper
    inbox, killed = Inbox(post.folder), Counter[str]()
    ids = []
    for n, text in enumerate(texts):
        ids.append(inbox.put(text).id)
        if n % KILL_EVERY == KILL_EVERY - 1:
            time.sleep(chance.uniform(0.0, 2.0))  # any moment of a delivery
            victim = chance.choice(VICTIMS)
            killed[victim] += 1
            kill(post, victim)
            if victim != "server":
                post = opencode.start(start, resume=True)
                post.kept.may_complain = True
    found = [post.ended(one) for one in ids]
    assert killed.keys() == set(VICTIMS)
    taken = Counter(opencode.prompts())
    for text, one in zip(texts, found, strict=True):
        assert sum(stage in FINAL for stage in stages(one)) == 1, one
        assert taken[text] <= 1, (one, taken[text])
        if one.stage == "acked":
            assert taken[text] == 1, one
            assert one.answer is not None, one
        else:
            assert (one.stage, bool(one.reason)) == ("dead", True), one
    assert all(trace(post.folder, one) is not None for one in ids)


@in_soak
@pytest.mark.shows("a request of a pool carries nothing of another")
def test_no_secret_of_a_request_is_in_a_later_one(
    opencode: Opencode, home: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in opencode.env.items():
        monkeypatch.setenv(name, value)

    async def work() -> set[str | None]:
        async with Client(
            agent="opencode", pool_size=2, spawn_timeout=PATIENCE, acquire_timeout=10 * PATIENCE
        ) as client:
            asked = [client.run(f"secret-{n:03}-x", cwd=str(opencode.project)) for n in range(REQUESTS)]
            return {reply.conversation_id for reply in await asyncio.gather(*asked)}

    assert len(asyncio.run(work())) == REQUESTS
    for request in opencode.model.requests:
        found = set(re.findall(r"secret-\d{3}-x", json.dumps(request.body)))
        assert len(found) <= 1, found


def test_prompt_that_opencode_cannot_run_is_refused_and_does_not_stay(
    opencode: Opencode, start: Start
) -> None:
    post = opencode.start(start, "o", "--model", "anthropic/none-such")
    message = post.put("to no model")
    found = post.reached(message, "nacked")
    ended = step(found, "ended")
    assert (ended["end"], "submitted" in stages(found)) == ("failed", False)
    assert "Model not found" in str(step(found, "nacked"))
    assert opencode.prompts() == []
