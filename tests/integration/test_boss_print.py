"""`remuda print --ask` and the boss: what a call asks is in the queue, and nothing else of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.boss import KEPT, RunningBoss
from support.commands import Commands
from support.keeper import until
from support.print_calls import Call, Calls


@pytest.fixture
def boss(home: Path) -> Iterator[RunningBoss]:
    with RunningBoss(home, (KEPT,)) as one:
        yield one


def begun(calls: Calls, *words: str) -> Call:
    return calls.begin("--ask", *words, env={"MOCK_DIALOG_GUARD": "0"}).until("submitted")


def asked(boss: RunningBoss, call: Call) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        found = boss.client.get("approvals", state="open")["approvals"]
        names = [one["session"]["name"] for one in boss.waiting()]
        return found[0] if found and names == [call.name] else {}

    return until(look, "what it asks, in the queue")


def test_permission_of_a_call_is_in_the_queue_and_can_be_given(
    calls: Calls, remuda: Commands, boss: RunningBoss
) -> None:
    made = calls.home / "made"
    call = begun(calls, f"RUNBASH touch {made}")
    assert asked(boss, call)["input"]["command"] == f"touch {made}"
    assert remuda("queue").out.splitlines()[1].split()[:3] == [call.name, "permission:", "Bash"]
    assert call.name in remuda("agents").out
    assert remuda("approve", call.name, "--yes").out.startswith("allowed ")
    code, out, _ = call.ended()
    assert (code, out) == (0, "REPLY#2 to: tool_result (Bash completed with no output)\n")
    assert made.exists()
    calls.assert_nothing_left()
    until(lambda: boss.client.get("sessions")["sessions"] == [], "the end of the call")
    assert boss.waiting() == []
    (one,) = boss.client.get("approvals")["approvals"]
    assert (one["by"], one["proof"]["ran"]) == ("api: command line", True)
    assert [one["reason"] for one in boss.client.get("queue", "history")["items"]] == ["permission"]


def test_refusal_an_error_and_a_boss_that_was_away_leave_nothing_in_the_queue(
    calls: Calls, remuda: Commands, boss: RunningBoss
) -> None:
    call = begun(calls, "RUNBASH touch never")
    asked(boss, call)
    remuda("deny", call.name, "--message", "not now")
    code, out, _ = call.ended()
    assert (code, "not now" in out) == (0, True)
    assert begun(calls, "err 400").ended()[0] == 1
    call = begun(calls, "RUNBASH touch never")
    asked(boss, call)
    boss.end()
    call.close()
    boss.start()
    calls.assert_nothing_left()
    until(lambda: boss.client.get("sessions")["sessions"] == [], "the end of the calls")
    assert boss.waiting() == []
