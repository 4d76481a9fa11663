"""All processes of a machine are killed at once with messages in flight, on the real CLI."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support import counts
from support.machine import LONGEST_STAGE, STAGES, Fates, Machine, require_machine
from support.messages import prompts

pytestmark = pytest.mark.real

NAMES = ("one", "two")
SEED = 3


@pytest.fixture
def machine(home: Path, cli: RealCli) -> Iterator[Machine]:
    require_machine()
    one = Machine(home)
    one.remuda.env |= {**cli.env, "REMUDA_HOME": str(home)}
    one.configure("restart_tries = 1000", "restart_pause = 0.0")
    one.boot()
    yield one
    one.close()


def conversations(machine: Machine) -> list[str]:
    return [machine.record(name).conversation["session_id"] for name in NAMES]


def cut_and_bring_back(machine: Machine, fates: Fates) -> None:
    machine.cut()
    fates.look()
    machine.boot()
    machine.remuda("up", "--detach", "--port", "0")


@pytest.mark.soak
@pytest.mark.timeout(120 + 60 * counts.REAL_MACHINE_KILLS)
def test_killing_everything_brings_back_both_conversations_and_runs_no_message_twice(
    machine: Machine, cli: RealCli, model: LoopbackModel
) -> None:
    chance, remuda, fates = random.Random(SEED), machine.remuda, Fates(machine, NAMES)
    for name in NAMES:
        remuda.start(name, "--cwd", str(cli.project), "--restart", "on-crash", "--", *cli.argv())
        remuda("send", name, f"hello {name}", "--wait")
    begun = conversations(machine)
    remuda("up", "--detach", "--port", "0")
    for number in range(counts.REAL_MACHINE_KILLS):
        put = [
            fates.put(name, f"round {number} message {one} for {name}") for one in (1, 2) for name in NAMES
        ]
        chosen = chance.choice(put)
        machine.reached(fates.sent[chosen][0], chosen, chance.choice(STAGES))
        time.sleep(chance.random() * LONGEST_STAGE)
        cut_and_bring_back(machine, fates)
        fates.ended()
    # One agent takes nothing more: its message is written and never submitted.
    machine.stop_agent("one")
    unseen = fates.put("one", "never seen")
    machine.reached("one", unseen, "written")
    cut_and_bring_back(machine, fates)
    assert unseen in fates.again
    fates.ended()
    asked = prompts(model)
    fates.check(lambda _name, text: asked.count(text))
    assert conversations(machine) == begun
    for name in NAMES:  # it knows what was said before
        remuda("send", name, f"are you back, {name}?", "--wait")
        assert f"hello {name}" in str(model.main_requests[-1].body)
