"""codex from outside: started by the command, in the queue, decided over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli.codex import RealCodex
from support.boss import KEPT, USAGE, RunningBoss
from support.boss_whole import CommandedBoss
from support.both_sides import decide_from_both_sides, open_approval
from support.budgets import show_pause
from support.codex import escalated, keep
from support.commands import Commands
from support.keeper import Start, until
from support.restarts import back, kill_program, without_pause

pytestmark = pytest.mark.real


@pytest.fixture
def boss(home: Path) -> Iterator[RunningBoss]:
    one = RunningBoss(home, (KEPT, USAGE))
    yield one
    one.close()


def test_codex_by_its_command_is_in_the_queue_and_decided_over_http(
    codex: RealCodex, remuda: Commands, boss: RunningBoss, model: LoopbackModel
) -> None:
    codex.sockets.add(remuda.sessions / "work.d" / "s")
    remuda.env |= {**codex.env, "HOME": codex.env["HOME"]}
    boss.start()
    remuda.start("work", "--cwd", str(codex.project), "--", "codex")
    assert remuda.json("show", "work")["agent"] == "codex"
    made = codex.folder / "made"
    remuda("send", "work", escalated(f"touch {made}"))
    request = open_approval(boss)
    assert (request["tool"], request["input"]["command"]) == ("Bash", f"touch {made}")
    assert [(one["session"]["agent"], one["reason"]) for one in boss.waiting()] == [("codex", "permission")]
    assert request["refuses"] == {"edit": "codex cannot run an edited input: allow it as it is, or deny it"}
    path = f"/v1/approvals/{request['id']}/answer"
    edited = boss.ask("POST", path, {"behavior": "allow", "updated_input": {"command": "id"}})
    assert edited.status >= 400
    assert "codex cannot run an edited input" in edited.json["error"]["message"]
    assert boss.ask("POST", path, {"behavior": "allow"}).status == 200
    until(made.exists, "what it was allowed to make")
    until(lambda: [one["reason"] for one in boss.waiting()] == ["stopped"], "its answer in the queue")
    used = until(lambda: boss.client.get("usage", by="session")["total"]["tokens"]["output"], "its usage")
    assert used > 0
    dialog = "Would you like to run the following command?"
    decide_from_both_sides(remuda, boss, escalated, codex.folder, dialog, b"y")
    shown = remuda("show", "work").out
    assert "REPLY" in shown
    remuda("kill", "work")


def test_codex_over_its_budget_is_paused_until_a_human_allows_more(
    codex: RealCodex, start: Start, home: Path
) -> None:
    show_pause(keep(start, codex), home)


def test_codex_whose_terminal_was_killed_comes_back_with_its_conversation(
    codex: RealCodex, remuda: Commands, home: Path, model: LoopbackModel
) -> None:
    codex.sockets.add(remuda.sessions / "work.d" / "s")
    remuda.env |= {**codex.env, "HOME": codex.env["HOME"]}
    without_pause(remuda)
    boss = CommandedBoss(home, remuda)
    boss.start()
    try:
        remuda.start("work", "--cwd", str(codex.project), "--restart", "on-crash", "--", "codex")
        remuda("send", "work", "the word is swordfish", "--wait")
        back(remuda, "work", kill_program(remuda, "work"))
        remuda("send", "work", "which word was it?", "--wait")
        assert "swordfish" in str(model.main_requests[-1].body)
        remuda("kill", "work")
    finally:
        boss.close()
