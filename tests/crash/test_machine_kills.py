"""All processes of a machine are killed at once with messages in flight: all sessions come back."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import FINAL, Trace, find
from remuda.keeper.record import SessionRecord
from remuda.testing.scripted_agent.probe import whole_records
from support import counts
from support.keeper import until
from support.machine import Machine, why_not
from support.messages import stages

SEED = 19
NAMES = ("a", "b", "c")
STAGES = ("accepted", "written", "submitted", "recorded", "ended")


@pytest.fixture
def machine(home: Path) -> Iterator[Machine]:
    if reason := why_not():
        pytest.skip(reason)
    one = Machine(home)
    (home / ".config" / "remuda").mkdir(parents=True)
    (home / ".config" / "remuda" / "remuda.toml").write_text("restart_tries = 1000\nrestart_pause = 0.0\n")
    one.remuda.env |= {"MOCK_TIME_SCALE": "0.02", "CLAUDE_CONFIG_DIR": str(home / "claude")}
    (home / "claude").mkdir()
    one.boot()
    yield one
    one.close()


def record(machine: Machine, name: str) -> SessionRecord:
    found = SessionRecord.load(machine.remuda.sessions / f"{name}.json")
    assert found is not None
    return found


def trace(machine: Machine, name: str, message: str) -> Trace:
    return find(message, [machine.remuda.sessions / f"{name}.inbox"])


def running(machine: Machine) -> set[str]:
    listed: list[dict[str, Any]] = machine.remuda.json("ls")
    return {str(one["name"]) for one in listed if one["name"] in NAMES and one["alive"]}


def asked(machine: Machine, name: str) -> Counter[str]:
    """How often the agent got each prompt, by its transcript."""
    path = Path(record(machine, name).conversation["transcript_path"])
    return Counter(str(one["message"]["content"]) for one in whole_records(path) if "promptSource" in one)


def serve_pool(machine: Machine) -> None:
    """A pool with a request that does not end by itself."""
    machine.remuda("pool", "serve", "--demo", "--prewarm", "0", "--detach")
    machine.remuda.begin("run", "SLOW 600")


@pytest.mark.timeout(120 + 20 * counts.MACHINE_KILLS)
def test_killing_everything_with_messages_in_flight_loses_none_and_runs_none_twice(machine: Machine) -> None:
    chance, remuda = random.Random(SEED), machine.remuda
    for name in NAMES:
        remuda.start(name, "--agent", "demo", "--restart", chance.choice(("on-crash", "always")))
        remuda("send", name, f"hello {name}", "--wait")
    conversations = {name: record(machine, name).conversation["session_id"] for name in NAMES}
    sent: dict[str, tuple[str, str]] = {}
    for number in range(counts.MACHINE_KILLS):
        if number % 2:
            serve_pool(machine)
        for name in NAMES:
            for one in range(2):
                text = f"round {number} message {one} for {name}"
                message = Inbox(remuda.sessions / f"{name}.inbox").put(text)
                sent[message.id] = name, text
        message = chance.choice(list(sent)[-2 * len(NAMES) :])
        stage = chance.choice(STAGES)
        name = sent[message][0]
        until(
            lambda name=name, message=message, stage=stage: stage in stages(trace(machine, name, message)),
            f"{message} {stage}",
        )
        machine.cut()
        machine.boot()
        if number % 3:
            remuda("up", "--detach", "--port", "0")
        else:
            remuda("resume", "--all")
        # Sometimes the power fails again before all are back.
        wanted = chance.choice((1, len(NAMES), len(NAMES)))
        until(lambda wanted=wanted: len(running(machine)) >= wanted, "the sessions")
    until(lambda: running(machine) == set(NAMES) or not remuda("resume", "--all"), "all sessions")
    ended = {}
    for message, (name, _) in sent.items():
        until(
            lambda name=name, message=message: trace(machine, name, message).stage in FINAL,
            f"the end of {message}",
        )
        ended[message] = trace(machine, name, message)
    counted = {name: asked(machine, name) for name in NAMES}
    for message, (name, text) in sent.items():
        receipt = ended[message]
        assert sum(one in FINAL for one in stages(receipt)) == 1, receipt
        assert receipt.stage == "acked" or "before it was answered" in receipt.reason, receipt
        # An agent that was killed with a prompt may not have written it down.
        assert counted[name][text] == 1 or (receipt.stage == "dead" and not counted[name][text]), receipt
    assert {name: record(machine, name).conversation["session_id"] for name in NAMES} == conversations
    assert set(remuda.sessions.glob("*.json")) >= {remuda.sessions / f"{name}.json" for name in NAMES}
    remuda("pool", "serve", "--demo", "--prewarm", "0", "--detach")
    assert remuda("run", "hello").out
