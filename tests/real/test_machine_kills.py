"""All processes of a machine are killed at once with messages in flight, on the real CLI."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import FINAL, Trace, find
from remuda.keeper.record import SessionRecord
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from remuda.testing.scripted_agent.probe import whole_records
from support import counts
from support.keeper import until
from support.machine import Machine, why_not
from support.messages import prompts, stages

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
    config = Path(one.remuda.env["HOME"]) / ".config" / "remuda"
    config.mkdir(parents=True, exist_ok=True)
    (config / "remuda.toml").write_text("restart_tries = 1000\nrestart_pause = 0.0\n")
    one.boot()
    yield one
    one.close()


def trace(machine: Machine, name: str, message: str) -> Trace:
    return find(message, [machine.remuda.sessions / f"{name}.inbox"])


def conversation(machine: Machine, name: str) -> dict[str, str]:
    found = SessionRecord.load(machine.remuda.sessions / f"{name}.json")
    assert found is not None
    return found.conversation


@pytest.mark.timeout(120 + 60 * counts.REAL_MACHINE_KILLS)
def test_killing_everything_brings_back_both_conversations_and_runs_no_message_twice(
    machine: Machine, cli: RealCli, model: LoopbackModel
) -> None:
    chance, remuda = random.Random(SEED), machine.remuda
    for name in NAMES:
        remuda.start(name, "--cwd", str(cli.project), "--restart", "on-crash", "--", *cli.argv())
        remuda("send", name, f"hello {name}", "--wait")
    begun = {name: conversation(machine, name)["session_id"] for name in NAMES}
    sent: dict[str, tuple[str, str]] = {}
    for number in range(counts.REAL_MACHINE_KILLS):
        for name in NAMES:
            for one in range(2):
                text = f"round {number} message {one} for {name}"
                sent[Inbox(remuda.sessions / f"{name}.inbox").put(text).id] = name, text
        message, stage = chance.choice(list(sent)[-4:]), chance.choice(STAGES)
        where = trace(machine, sent[message][0], message).folder
        until(lambda m=message, s=stage, w=where: s in stages(find(m, [w])), f"{message} {stage}")
        machine.cut()
        machine.boot()
        remuda("up", "--detach", "--port", "0")
        for message, (name, _) in sent.items():
            until(lambda m=message, n=name: trace(machine, n, m).stage in FINAL, f"the end of {message}")
    asked = prompts(model)
    for message, (name, text) in sent.items():
        receipt = trace(machine, name, message)
        assert sum(one in FINAL for one in stages(receipt)) == 1, receipt
        assert receipt.stage == "acked" or "before it was answered" in receipt.reason, receipt
        assert asked.count(text) == 1 or (receipt.stage == "dead" and text not in asked), (receipt, asked)
    assert {name: conversation(machine, name)["session_id"] for name in NAMES} == begun
    for name in NAMES:  # it knows what was said before
        written = str(whole_records(Path(conversation(machine, name)["transcript_path"])))
        assert f"hello {name}" in written
        remuda("send", name, f"are you back, {name}?", "--wait")
        assert f"hello {name}" in str(model.main_requests[-1].body)
