"""Messages through a kept copilot while the agent and its keeper are killed at random."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter

import pytest

from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import FINAL, trace
from remuda.keeper.survivors import end_survivors
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli.copilot import RealCopilot
from support import counts
from support.copilot import keep_copilot
from support.keeper import Kept, Process, Start
from support.messages import stages
from support.real_sessions import outcomes

MESSAGES = counts.COPILOT_CHAOS
_SEED = 11


@pytest.mark.soak
@pytest.mark.real
@pytest.mark.timeout(180 + 20 * MESSAGES)
@pytest.mark.shows("no message is lost or runs twice when processes are killed")
def test_every_message_ends_once_and_none_runs_as_a_second_turn(
    copilot: RealCopilot, start: Start, model: LoopbackModel
) -> None:
    """With `deadletter` a message that may have run is not tried again, whoever is killed at which moment."""
    chance = random.Random(_SEED)
    kept = _begin(start, copilot, resume=False)
    inbox = Inbox(kept.paths.inbox)
    texts = [f"SLOW 1 chaos {n}" if n % 3 == 1 else f"chaos {n} is here" for n in range(MESSAGES)]
    sent = {inbox.put(text).id: text for text in texts}
    killed: Counter[str] = Counter()
    deadline = time.monotonic() + 120 + 15 * MESSAGES
    while not all((found := trace(inbox.folder, one)) is not None and found.ended for one in sent):
        assert time.monotonic() < deadline, (killed, inbox.overview(), kept.log()[-3000:])
        time.sleep(chance.uniform(0.5, 6.0))
        if killed.total() < MESSAGES // 2:  # the last ones get through in peace
            killed[_kill(kept, chance)] += 1
        if not kept.keeper.alive:
            kept = _begin(start, copilot, resume=True)
    outcomes(model)
    taken = Counter(str(request.said) for request in model.main_requests)
    answered = []
    for one, text in sent.items():
        found = trace(inbox.folder, one)
        assert found is not None
        assert sum(stage in FINAL for stage in stages(found)) == 1, found
        runs = sum(count for said, count in taken.items() if said == text)
        assert runs <= 1, (found, runs)
        if found.stage == "acked":
            answered.append(text)
            assert runs == 1, found
    assert len(answered) >= MESSAGES // 3


def _begin(start: Start, cli: RealCopilot, *, resume: bool) -> Kept:
    return keep_copilot(start, cli, resume=resume, on_orphan="deadletter").kept


def _kill(kept: Kept, chance: random.Random) -> str:
    victim = chance.choice(["agent", "agent", "keeper", "no one"])
    if victim == "keeper":
        kept.keeper.signal(signal.SIGKILL)
        assert kept.keeper.ended()
        end_survivors(kept.paths, 0.0)
    elif victim == "agent":
        try:
            agent = Process(kept.child_pid)
        except ProcessLookupError:
            return victim
        agent.signal(chance.choice([signal.SIGKILL, signal.SIGTERM]))
        assert kept.keeper.ended(), kept.log()[-3000:]
        agent.close()
    return victim
