"""Messages through a kept copilot while the agent and its keeper are killed at random."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Callable

import pytest

from remuda.keeper.survivors import end_survivors
from remuda.testing.loopback_model import LoopbackModel, Request
from remuda.testing.real_cli.copilot import RealCopilot
from support import counts
from support.copilot import keep_copilot
from support.keeper import Process, Start
from support.messages import Post, check_ends
from support.real_sessions import outcomes

MESSAGES = counts.COPILOT_CHAOS
_SEED = 11


@pytest.mark.soak
@pytest.mark.real
@pytest.mark.timeout(180 + 20 * MESSAGES)
@pytest.mark.shows("no message is lost or runs twice when processes are killed")
def test_every_message_ends_once_and_none_runs_as_a_second_turn(
    copilot: RealCopilot,
    start: Start,
    model: LoopbackModel,
    record_property: Callable[[str, object], None],
) -> None:
    """With `deadletter` a message that may have run is not tried again, whoever is killed at which moment."""
    chance = random.Random(_SEED)
    post = _begin(start, copilot, resume=False)
    texts = [f"SLOW 1 chaos {n} words" if n % 3 == 1 else f"chaos {n} is here" for n in range(MESSAGES)]
    sent = {text: post.put(text) for text in texts}
    killed: Counter[str] = Counter()
    deadline = time.monotonic() + 120 + 15 * MESSAGES
    while not all(post.trace(one).ended for one in sent.values()):
        assert time.monotonic() < deadline, (killed, post.inbox.overview(), post.kept.log()[-3000:])
        time.sleep(chance.uniform(0.5, 6.0))
        if killed.total() < MESSAGES // 2:  # the last ones get through in peace
            killed[_kill(post, chance)] += 1
        if not post.kept.keeper.alive:
            post = _begin(start, copilot, resume=True)
    outcomes(model)
    taken = Counter(str(request.said) for request in model.main_requests)
    asked = {text for request in model.main_requests for text in texts if _asks(request, text)}
    found = {text: post.trace(one) for text, one in sent.items()}
    for text, one in found.items():
        assert taken[text] <= 1, (one, taken[text])
        assert one.stage == "dead" or text in asked, (one, taken)
    check_ends(found, killed, model, record_property)


def _begin(start: Start, cli: RealCopilot, *, resume: bool) -> Post:
    return keep_copilot(start, cli, resume=resume, on_orphan="deadletter")


def _asks(request: Request, text: str) -> bool:
    """Return whether it is among what is not answered yet: what a human types meanwhile joins the request."""
    roles = [role for role, _ in request.texts]
    answered = len(roles) - roles[::-1].index("assistant") if "assistant" in roles else 0
    return any(words.endswith(text) for _, words in request.texts[answered:])


def _kill(post: Post, chance: random.Random) -> str:
    kept, victim = post.kept, chance.choice(["agent", "agent", "keeper", "typist"])
    if victim == "typist":
        with contextlib.suppress(BrokenPipeError):  # the agent may have ended
            post.watcher.paste(f"typed {chance.random()}")
    elif victim == "keeper":
        kept.keeper.kill()
        end_survivors(kept.paths, 0.0)
    else:
        try:
            agent = Process(kept.child_pid)
        except ProcessLookupError:
            return victim
        agent.signal(chance.choice([signal.SIGKILL, signal.SIGTERM]))
        assert kept.keeper.ended(), kept.log()[-3000:]
        agent.close()
    return victim
