"""All processes of a machine are killed at once with messages in flight: all sessions come back."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.testing.scripted_agent.probe import whole_records
from support import counts
from support.keeper import until
from support.machine import Machine, why_not

SEED = 19
NAMES = ("a", "b", "c")
STAGES = ("accepted", "written", "submitted", "recorded", "ended")


@pytest.fixture
def machine(home: Path) -> Iterator[Machine]:
    if reason := why_not():
        pytest.skip(reason)
    one = Machine(home)
    one.configure("restart_tries = 1000", "restart_pause = 0.0")
    one.remuda.env |= {"MOCK_TIME_SCALE": "0.02", "CLAUDE_CONFIG_DIR": str(home / "claude")}
    (home / "claude").mkdir()
    one.boot()
    yield one
    one.close()


def asked(machine: Machine, name: str) -> Counter[str]:
    """How often the agent got each prompt, by its transcript."""
    # An agent that was just brought back reports it once it is up.
    path = until(
        lambda: str(machine.record(name).conversation.get("transcript_path") or ""), "the transcript"
    )
    return Counter(
        str(one["message"]["content"]) for one in whole_records(Path(path)) if "promptSource" in one
    )


def conversations(machine: Machine) -> list[str]:
    return [machine.record(name).conversation["session_id"] for name in NAMES]


def serve_pool(machine: Machine) -> None:
    """A pool with a request that does not end by itself."""
    machine.remuda("pool", "serve", "--demo", "--prewarm", "0", "--detach")
    machine.remuda.begin("run", "SLOW 600")


def kill_and_bring_back(machine: Machine, *, with_boss: bool, wanted: int) -> set[str]:
    """Returns the messages that were in flight at the kill."""
    machine.cut()
    cut_off = {message for name in NAMES if (message := machine.in_flight(name)) is not None}
    machine.boot()
    machine.remuda(*(("up", "--detach", "--port", "0") if with_boss else ("resume", "--all")))
    until(lambda: len(machine.running() & set(NAMES)) >= wanted, "the sessions")
    return cut_off


@pytest.mark.soak
@pytest.mark.timeout(120 + 20 * counts.MACHINE_KILLS)
def test_killing_everything_with_messages_in_flight_loses_none_and_runs_none_twice(machine: Machine) -> None:
    chance, remuda = random.Random(SEED), machine.remuda
    for name in NAMES:
        more = ("--sleep-after", "0.1") if name == "c" else ()
        remuda.start(name, "--agent", "demo", "--restart", chance.choice(("on-crash", "always")), *more)
        remuda("send", name, f"hello {name}", "--wait")
    begun = conversations(machine)
    sent: dict[str, tuple[str, str]] = {}
    cut_off: set[str] = set()
    for number in range(counts.MACHINE_KILLS):
        if number % 2:
            serve_pool(machine)
        for name in NAMES * 2:
            text = f"round {number} message {len(sent)} for {name}"
            sent[machine.put(name, text)] = name, text
        chosen = chance.choice(list(sent)[-2 * len(NAMES) :])
        machine.reached(sent[chosen][0], chosen, chance.choice(STAGES))
        # Sometimes the power fails again before all are back.
        wanted = chance.choice((1, len(NAMES), len(NAMES)))
        cut_off |= kill_and_bring_back(machine, with_boss=bool(number % 3), wanted=wanted)
    last = {machine.put(name, "SLOW 600"): name for name in NAMES}  # cut off for certain
    for message, name in last.items():
        machine.reached(name, message, "submitted")
    sent |= {message: (name, "SLOW 600") for message, name in last.items()}
    cut_off |= kill_and_bring_back(machine, with_boss=True, wanted=len(NAMES))
    assert last.keys() <= cut_off
    ended = {message: machine.ended(name, message) for message, (name, _) in sent.items()}
    counted = {name: asked(machine, name) for name in NAMES}
    for message, (name, text) in sent.items():
        # An agent that was killed with a prompt may not have written it down.
        is_dead = ended[message].stage == "dead"
        assert message in cut_off or not is_dead, ended[message]
        assert counted[name][text] == 1 or (is_dead and not counted[name][text]), ended[message]
    assert conversations(machine) == begun
    remuda("pool", "serve", "--demo", "--prewarm", "0", "--detach")
    assert remuda("run", "hello").out
