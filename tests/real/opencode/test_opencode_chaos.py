"""Messages through the real opencode while its keeper, its server and its terminal are killed at random."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable

import pytest

from remuda.agents.opencode.server import request_now
from support import counts
from support.keeper import Start, until
from support.messages import check_ends, stages, step
from support.opencode import Opencode, kill, server_address

SEED = 11
MESSAGES = counts.OPENCODE_CHAOS
VICTIMS = ("keeper", "server", "terminal", "typist")
KILL_EVERY = 3
"""Messages between two kills: a start takes seconds."""


pytestmark = pytest.mark.real


@pytest.mark.soak(only=True)
@pytest.mark.timeout(3600)
@pytest.mark.shows("no message is lost or runs twice when processes are killed")
def test_no_message_is_lost_or_run_twice_whatever_is_killed(
    opencode: Opencode, start: Start, record_property: Callable[[str, object], None]
) -> None:
    chance = random.Random(SEED)
    texts = [f"SLOW 1 chaos {n} words" if n % 3 == 1 else f"chaos {n} is here" for n in range(MESSAGES)]
    post = opencode.start(start)
    post.kept.may_complain = True  # a server that is started again may be killed with its keeper
    killed = Counter[str]()
    sent = {}
    for n, text in enumerate(texts):
        sent[text] = post.put(text)
        if n % KILL_EVERY == KILL_EVERY - 1:
            time.sleep(chance.uniform(0.0, 2.0))  # any moment of a delivery
            victim = chance.choice(VICTIMS)
            killed[victim] += 1
            if victim == "typist":
                with contextlib.suppress(BrokenPipeError):  # the terminal may have ended with its server
                    post.watcher.press(f"typed {n}\r".encode())
                continue
            kill(post, victim)
            if victim != "server":
                post = opencode.start(start, resume=True)
                post.kept.may_complain = True
    found = {text: post.ended(one) for text, one in sent.items()}
    assert killed.keys() == set(VICTIMS)
    taken = Counter(opencode.prompts())
    for text, one in found.items():
        assert taken[text] <= 1, (one, taken[text])
        assert one.stage == "dead" or taken[text] == 1, one
    check_ends(found, killed, opencode.model, record_property)


def test_prompt_that_opencode_cannot_run_is_refused_and_does_not_stay(
    opencode: Opencode, start: Start
) -> None:
    post = opencode.start(start, "o", "--model", "anthropic/none-such")
    found = post.send("to no model", max_attempts=1)
    ended = step(found, "ended")
    assert (ended["end"], "submitted" in stages(found)) == ("failed", False)
    assert "Model not found" in found.reason
    assert opencode.prompts() == []
    # The next request has nothing of it. Another client names a model that exists.
    base, secret, conversation = server_address(post)
    parts = [{"type": "text", "text": "to a model"}]
    body = {"model": {"providerID": "anthropic", "modelID": "claude-sonnet-4-5"}, "parts": parts}
    assert request_now(base, secret, "POST", f"/session/{conversation}/prompt_async", body)[0] == 204
    until(lambda: opencode.prompts(), "the next request")
    assert "to no model" not in str(opencode.model.requests[-1].body)
