"""All processes of a machine are killed at once with messages in flight: all sessions come back."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.errors import EXIT_CODES
from remuda.testing.scripted_agent.probe import whole_records
from support import counts
from support.heimdall_client import PATIENCE
from support.keeper import until
from support.machine import LONGEST_STAGE, STAGES, Fates, Machine, require_machine

SEED = 19
NAMES = ("a", "b", "c")


SLOW = "SLOW 600"


@pytest.fixture
def machine(home: Path) -> Iterator[Machine]:
    require_machine()
    one = Machine(home)
    one.configure("restart_tries = 1000", "restart_pause = 0.0")
    one.remuda.env |= {"MOCK_TIME_SCALE": "0.02", "CLAUDE_CONFIG_DIR": str(home / "claude")}
    (home / "claude").mkdir()
    one.boot()
    yield one
    one.close()


def prompts_in(transcript: Path) -> Counter[str]:
    return Counter(
        str(one["message"]["content"]) for one in whole_records(transcript) if "promptSource" in one
    )


def asked(machine: Machine, name: str) -> Counter[str]:
    """How often the agent got each prompt, by its transcript."""
    # An agent that was just brought back reports it once it is up.
    path = until(
        lambda: str(machine.record(name).conversation.get("transcript_path") or ""), "the transcript"
    )
    return prompts_in(Path(path))


def conversations(machine: Machine) -> list[str]:
    return [machine.record(name).conversation["session_id"] for name in NAMES]


def serve_pool(machine: Machine) -> None:
    machine.remuda("pool", "serve", "--demo", "--prewarm", "0", "--detach")


def bring_back(machine: Machine, *, by_boss: bool, wanted: int) -> None:
    """The boss runs afterwards, whoever it was."""
    machine.boot()
    if not by_boss:
        machine.remuda("resume", "--all")
    machine.remuda("up", "--detach", "--port", "0")
    until(lambda: len(machine.running() & set(NAMES)) >= wanted, "the sessions")


@pytest.mark.soak
@pytest.mark.timeout(120 + 20 * counts.MACHINE_KILLS)
def test_killing_everything_with_messages_in_flight_loses_none_and_runs_none_twice(machine: Machine) -> None:
    chance, remuda, fates = random.Random(SEED), machine.remuda, Fates(machine, NAMES)
    remuda("up", "--detach", "--port", "0")
    for name in NAMES:
        more = ("--sleep-after", "0.1") if name == "c" else ()
        remuda.start(name, "--agent", "demo", "--restart", chance.choice(("on-crash", "always")), *more)
        remuda("send", name, f"hello {name}", "--wait")
    begun = conversations(machine)
    requests: dict[str, subprocess.Popen[bytes]] = {}
    for number in range(counts.MACHINE_KILLS):
        serve_pool(machine)
        request = f"{SLOW} for the pool, {number}"
        requests[request] = machine.begin_outside("run", request)
        put = [
            fates.put(name, f"round {number} message {one} for {name}") for one in (1, 2) for name in NAMES
        ]
        chosen = chance.choice(put)
        machine.reached(fates.sent[chosen][0], chosen, chance.choice(STAGES))
        time.sleep(chance.random() * LONGEST_STAGE)
        machine.cut()
        fates.look()
        # Sometimes the power fails again before all are back.
        wanted = chance.choice((1, len(NAMES), len(NAMES)))
        bring_back(machine, by_boss=bool(number % 3), wanted=wanted)
    fates.ended()
    # One agent takes nothing more: its message is written and never submitted. The others are at work.
    machine.stop_agent("a")
    unseen = fates.put("a", "never seen")
    running = {fates.put(name, f"{SLOW} for {name}"): name for name in ("b", "c")}
    machine.reached("a", unseen, "written")
    for message, name in running.items():
        machine.reached(name, message, "submitted")
    machine.cut()
    fates.look()
    assert unseen in fates.again
    assert fates.may_die >= running.keys()
    bring_back(machine, by_boss=True, wanted=len(NAMES))
    counted = {name: asked(machine, name) for name in NAMES}
    fates.check(lambda name, text: counted[name][text])
    assert machine.ended("a", unseen).stage == "acked"
    assert {machine.ended(name, message).stage for message, name in running.items()} == {"dead"}
    assert conversations(machine) == begun
    check_requests(machine, requests)
    serve_pool(machine)
    assert remuda("run", "hello").out


def check_requests(machine: Machine, requests: dict[str, subprocess.Popen[bytes]]) -> None:
    """Each failed with a reason, and none ran again."""
    ran: Counter[str] = Counter()
    for transcript in machine.transcripts():
        ran += prompts_in(transcript)
    for request, caller in requests.items():
        out, err = caller.communicate(timeout=PATIENCE)
        # One that had not reached the pool found none, and no agent to run cold.
        found_none = b"no pool is served" in err and caller.returncode == EXIT_CODES["INVALID_OPTIONS"]
        assert found_none or caller.returncode in (EXIT_CODES["PROTOCOL"], EXIT_CODES["NO_SESSION"]), (
            out,
            err,
        )
        assert not out
        assert ran[request] <= 1
