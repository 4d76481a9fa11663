"""A copilot that its user started, in the queue by the hooks of `remuda setup boss`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.testing.real_cli.copilot import RealCopilot
from support.boss import KEPT, USAGE, RunningBoss
from support.budgets import show_pause
from support.commands import Commands
from support.copilot import QUESTION, keep_copilot, shell
from support.keeper import Start, until

pytestmark = pytest.mark.real
_SOURCES = ("remuda.boss.evidence.spool:Spool", "remuda.boss.evidence.reconcile:Reconcile")


@pytest.fixture
def boss(home: Path, copilot: RealCopilot, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningBoss]:
    monkeypatch.setenv("COPILOT_HOME", str(copilot.home / ".copilot"))
    one = RunningBoss(home, _SOURCES)
    yield one
    one.close()


@pytest.mark.shows("an agent that you started yourself is in the queue")
def test_queue_stop_and_permission_of_a_session_without_a_keeper(
    copilot: RealCopilot, home: Path, boss: RunningBoss
) -> None:
    commands = Commands(home)
    hooks = copilot.home / ".copilot" / "hooks" / "remuda.json"
    commands("hooks", "install", "--boss", "--agent", "copilot", "--yes")
    assert hooks.exists()
    boss.start()

    def item(reason: str, text: str = "") -> dict[str, Any]:
        found = [one for one in boss.waiting() if one["session"]["agent"] == "copilot"]
        return found[0] if found and found[0]["reason"] == reason and text in found[0]["message"] else {}

    with copilot.open_terminal() as terminal:
        terminal.wait_for(b"open sidebar")
        terminal.write(b"\x1b[200~hello boss\x1b[201~\r")
        stopped = until(lambda: item("stopped"), "the stop in the queue")
        assert stopped["session"]["cwd"] == str(copilot.project)
        terminal.write(b"\x1b[200~" + shell("touch asked").encode() + b"\x1b[201~\r")
        until(lambda: item("permission", "touch asked"), "the request in the queue")
        assert "answer it in its terminal" in commands("queue").out
        terminal.wait_for(b"Do you want to run")
        terminal.write(b"\r")
        until(lambda: item("stopped"), "the second stop")
        assert (copilot.project / "asked").exists()
    commands("hooks", "uninstall", "--boss", "--yes")
    assert not hooks.exists()


def entries_with_call(boss: RunningBoss) -> list[dict[str, Any]]:
    """Return the conversation of the session when it has the call of the question; empty before."""
    entries: list[dict[str, Any]] = boss.client.get("sessions", "p", "conversation")["entries"]
    calls = [one["tool"] for one in entries if one["kind"] == "tool_call"]
    return entries if calls == ["ask_user"] else []


@pytest.mark.shows("a question is answered from elsewhere", refused=True)
def test_question_of_a_kept_session_is_left_to_its_terminal_and_its_conversation_shown(
    copilot: RealCopilot, home: Path, start: Start
) -> None:
    boss = RunningBoss(home, (KEPT, USAGE))
    boss.start()
    remuda = Commands(home)
    try:
        post = keep_copilot(start, copilot)
        post.send("hello history")
        post.put(QUESTION)

        def asked() -> dict[str, Any]:
            found = [one for one in boss.waiting() if one["reason"] == "question"]
            return found[0] if found and found[0]["message"] == "Which color?" else {}

        question = until(asked, "the question in the queue")
        assert question["detail"]["at_terminal"]
        assert "answer it in its terminal: Which color?" in remuda("queue").out
        refused = remuda.refused("approve", "p", "--yes", "--answer", "color=Red", code=8)
        assert "only be decided in the agent's terminal" in refused
        # The file with it is written after the hook that asked.
        entries = until(lambda: entries_with_call(boss), "its call in the conversation")
        said = [(one["kind"], one["text"]) for one in entries if one["kind"] in ("prompt", "answer")]
        assert said[0] == ("prompt", "hello history")
        assert "hello history" in said[1][1]
        shown = remuda("show", "p", "--history").out
        assert "hello history" in shown
        used = until(lambda: boss.client.get("usage", by="session")["total"]["tokens"]["output"], "its usage")
        assert used > 0
    finally:
        boss.close()


def test_copilot_by_its_command_is_in_the_queue_and_decided_over_http(
    copilot: RealCopilot, home: Path, remuda: Commands
) -> None:
    boss = RunningBoss(home, (KEPT,))
    boss.start()
    remuda.env |= copilot.env

    def asked() -> dict[str, Any]:
        found = boss.client.get("approvals", state="open")["approvals"]
        return found[0] if found else {}

    try:
        remuda.start("work", "--cwd", str(copilot.project), "--", "copilot")
        assert remuda.json("show", "work")["agent"] == "copilot"
        remuda("send", "work", shell("touch made"))
        request = until(asked, "a request in the ledger")
        assert (request["tool"], request["input"]["command"]) == ("bash", "touch made")
        waiting = [(one["session"]["agent"], one["reason"]) for one in boss.waiting()]
        assert waiting == [("copilot", "permission")]
        assert request["refuses"].keys() == {"edit", "always"}
        path = f"/v1/approvals/{request['id']}/answer"
        edited = boss.ask("POST", path, {"behavior": "allow", "updated_input": {"command": "id"}})
        assert edited.status >= 400
        assert "copilot cannot run an edited input" in edited.json["error"]["message"]
        assert "Do you want to run" not in remuda("screen", "work").out  # not while a hook decides
        assert boss.ask("POST", path, {"behavior": "allow"}).status == 200
        until((copilot.project / "made").exists, "what it was allowed to make")
        until(lambda: [one["reason"] for one in boss.waiting()] == ["stopped"], "its answer in the queue")
    finally:
        boss.close()


@pytest.mark.soak(only=True)
def test_copilot_over_its_budget_is_paused_until_a_human_allows_more(
    copilot: RealCopilot, start: Start, home: Path
) -> None:
    show_pause(keep_copilot(start, copilot), home)
