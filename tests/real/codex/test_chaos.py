"""Messages while processes of codex are killed at random and a user types: none lost, none run twice."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli.codex import RealCodex
from support import counts
from support.codex import keep, kill, turns_with
from support.keeper import Start
from support.messages import Post, check_ends

pytestmark = [pytest.mark.real, pytest.mark.soak]
_MESSAGES = counts.CODEX_CHAOS
_LONGEST_PAUSE = 1.5


@pytest.mark.timeout(180 + 20 * _MESSAGES)
@pytest.mark.parametrize("seed", [1, 2] if counts.SOAK else [1])
@pytest.mark.shows("no message is lost or runs twice when processes are killed")
def test_messages_under_random_kills(
    codex: RealCodex,
    start: Start,
    model: LoopbackModel,
    seed: int,
    record_property: Callable[[str, object], None],
) -> None:
    chance = random.Random(seed)
    post = _begin(start, codex, resume=False)
    messages: dict[str, str] = {}
    killed = Counter[str]()
    for n in range(_MESSAGES):
        text = f"message {n} of {seed}"
        messages[post.put(text)] = text
        if chance.random() < 0.3:
            continue
        time.sleep(chance.random() * _LONGEST_PAUSE)  # the kill comes at any moment
        victim = chance.choice(["server", "server", "terminal", "keeper", "typist"])
        killed[victim] += 1
        if victim == "typist":
            with contextlib.suppress(BrokenPipeError):  # the terminal may have ended with its server
                post.watcher.paste(f"typed {n}")
        elif victim == "server":
            kill(post, "server")
        else:
            kill(post, *({"keeper", "terminal"} if victim == "keeper" else {"terminal"}))
            assert post.kept.keeper.ended()
            post = _begin(start, codex, resume=True)
    while not all(post.trace(message).ended for message in messages):
        if post.kept.keeper.ended(0.2):  # the terminal may have ended with its server
            post = _begin(start, codex, resume=True)
    found = {text: post.trace(message) for message, text in messages.items()}
    for text, one in found.items():
        ran = turns_with(model, text)
        assert len(ran) <= 1, one
        assert one.stage == "dead" or len(ran) == 1, one
    check_ends(found, killed, model, record_property)


def _begin(start: Start, cli: RealCodex, *, resume: bool) -> Post:
    post = keep(start, cli, resume=resume)
    post.kept.may_complain = True  # a server that is started again may be killed at once
    return post
