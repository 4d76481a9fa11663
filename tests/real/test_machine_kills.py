"""All processes of a machine are killed at once with messages in flight, on the real CLI."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.inbox.receipts import Trace
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support import counts
from support.machine import Machine, why_not
from support.messages import prompts

pytestmark = pytest.mark.real

NAMES = ("one", "two")
STAGES = ("accepted", "written", "submitted", "recorded", "ended")
SEED = 3


@pytest.fixture
def machine(home: Path, cli: RealCli) -> Iterator[Machine]:
    if reason := why_not():
        pytest.skip(reason)
    one = Machine(home)
    one.remuda.env |= {**cli.env, "REMUDA_HOME": str(home)}
    one.configure("restart_tries = 1000", "restart_pause = 0.0")
    one.boot()
    yield one
    one.close()


def conversations(machine: Machine) -> list[str]:
    return [machine.record(name).conversation["session_id"] for name in NAMES]


@pytest.mark.soak
@pytest.mark.timeout(120 + 60 * counts.REAL_MACHINE_KILLS)
def test_killing_everything_brings_back_both_conversations_and_runs_no_message_twice(
    machine: Machine, cli: RealCli, model: LoopbackModel
) -> None:
    chance, remuda = random.Random(SEED), machine.remuda
    for name in NAMES:
        remuda.start(name, "--cwd", str(cli.project), "--restart", "on-crash", "--", *cli.argv())
        remuda("send", name, f"hello {name}", "--wait")
    begun = conversations(machine)
    ended: dict[str, Trace] = {}
    sent: dict[str, tuple[str, str]] = {}
    cut_off: set[str | None] = set()
    for number in range(counts.REAL_MACHINE_KILLS):
        for name in NAMES * 2:
            text = f"round {number} message {len(sent)} for {name}"
            sent[machine.put(name, text)] = name, text
        chosen = chance.choice(list(sent)[-4:])
        machine.reached(sent[chosen][0], chosen, chance.choice(STAGES))
        machine.cut()
        cut_off |= {machine.in_flight(name) for name in NAMES}
        machine.boot()
        remuda("up", "--detach", "--port", "0")
        ended = {message: machine.ended(name, message) for message, (name, _) in sent.items()}
    asked = prompts(model)
    for message, (_, text) in sent.items():
        is_dead = ended[message].stage == "dead"
        assert message in cut_off or not is_dead, ended[message]
        assert asked.count(text) == 1 or (is_dead and text not in asked), (ended[message], asked)
    assert conversations(machine) == begun
    for name in NAMES:  # it knows what was said before
        remuda("send", name, f"are you back, {name}?", "--wait")
        assert f"hello {name}" in str(model.main_requests[-1].body)
