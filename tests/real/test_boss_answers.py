"""Claude Code answered from elsewhere: leave for a kept session over HTTP, a reply into a pane."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support.boss import RunningBoss
from support.commands import Commands
from support.keeper import Start, until, until_equal
from support.messages import CHAIN, Post, choose_trust, prompts, stages
from support.pane_agent import AgentPane, install_hooks
from support.real_sessions import PLAN, QUESTION, MakeCli, hurried, keep
from support.tmux_attention import TmuxBench

pytestmark = pytest.mark.real

SOURCES = tuple(
    f"remuda.boss.evidence.{name}" for name in ("kept:KeptSessions", "spool:Spool", "reconcile:Reconcile")
)


@pytest.fixture
def boss(home: Path) -> Iterator[RunningBoss]:
    one = RunningBoss(home, SOURCES)
    yield one
    one.close()


def asked(boss: RunningBoss) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        found = boss.client.get("approvals", state="open")["approvals"]
        return found[0] if found else {}

    return until(look, "a request in the ledger")


def proof_of(boss: RunningBoss, number: str) -> dict[str, Any]:
    proof: dict[str, Any] = boss.client.get("approvals", number)["proof"] or {}
    return proof if "ran" in proof else {}


def what_for(boss: RunningBoss) -> list[str]:
    """What those in the queue wait for, which may be known a moment after that they do."""
    return [one["detail"].get("waiting_for", "") for one in boss.waiting()]


def test_kept_session_at_its_trust_dialog_is_in_the_queue_until_it_is_answered(
    make_cli: MakeCli, start: Start, boss: RunningBoss
) -> None:
    boss.start()
    kept = keep(start, make_cli(trust=False), "--permission-mode", "default")

    def shown() -> list[tuple[str, str, str]]:
        return [(one["session"]["name"], one["reason"], one["message"]) for one in boss.waiting()]

    until(lambda: shown() == [(kept.spec.name, "question", "")], "its place in the queue")
    until_equal(lambda: what_for(boss), ["trust dialog"], "what it waits for")
    choose_trust(Post(kept))

    def states() -> list[tuple[str, str]]:
        return [(one["name"], one["state"]) for one in boss.client.get("sessions")["sessions"]]

    until(lambda: states() == [(kept.spec.name, "started")], "its start")
    until(lambda: shown() == [], "the end of the question")


def test_session_whose_command_opened_a_dialog_is_in_the_queue_until_it_is_closed(
    cli: RealCli, start: Start, boss: RunningBoss
) -> None:
    boss.start()
    post = Post(keep(start, cli, "--permission-mode", "default"))
    post.run("/cost", command=True)
    until(lambda: [one["reason"] for one in boss.waiting()] == ["question"], "its place in the queue")
    until_equal(lambda: what_for(boss), ["dialog open"], "what it waits for")
    post.watcher.press(b"\x1b")
    until(lambda: boss.waiting() == [], "its end")


@pytest.mark.versions
def test_plan_dialog_is_in_the_queue_and_is_not_answered_by_a_message(
    cli: RealCli, start: Start, boss: RunningBoss, model: LoopbackModel
) -> None:
    boss.start()
    post = Post(keep(start, hurried(cli), "--permission-mode", "plan"))
    post.watcher.settled("idle")
    post.watcher.paste(f"TOOL {json.dumps(PLAN)}")
    post.watcher.until("waiting_permission")
    waiting = post.put_held("behind the plan", "a dialog is open")

    def hook() -> str:
        votes = post.client.describe(explain=True)["votes"]
        return next(str(one["detail"]) for one in votes if one["source"] == "hook")

    until(lambda: hook().startswith("Notification"), "the notification, which is the last hook")
    assert post.client.describe()["state"] == "waiting_permission"
    until_equal(lambda: [one["reason"] for one in boss.waiting()], ["plan"], "its place in the queue")
    assert stages(post.trace(waiting)) == ["accepted"]
    post.watcher.press(b"\x1b")
    assert stages(post.ended(waiting)) == CHAIN
    assert prompts(model)[-1] == "behind the plan"


@pytest.mark.shows("a permission request is decided from elsewhere")
@pytest.mark.shows("it is allowed with an edited input")
@pytest.mark.shows("a question is answered from elsewhere")
def test_leave_for_a_kept_session_runs_the_edited_input_and_answers_its_question(
    cli: RealCli, start: Start, boss: RunningBoss
) -> None:
    post = Post(keep(start, cli, "--permission-mode", "default", asks=True))
    boss.start()
    message = post.put("RUNBASH touch made; echo done")
    approval = asked(boss)
    assert approval["input"]["command"] == "touch made; echo done"
    path = f"/v1/approvals/{approval['id']}/answer"
    edited = {"command": "touch edited; echo done", "description": "x"}
    answer = {"behavior": "allow", "updated_input": edited, "by": "phone"}
    assert boss.ask("POST", path, answer).status == 200
    again = boss.ask("POST", path, {"behavior": "deny"})
    assert (again.status, again.json["error"]["code"]) == (409, "ALREADY_ANSWERED")
    assert "phone has already decided: allow" in again.json["error"]["message"]
    assert post.ended(message).stage == "acked"
    assert (cli.project / "edited").exists()
    assert not (cli.project / "made").exists()
    proof = until(lambda: boss.client.get("approvals", approval["id"])["proof"], "proof")
    until(lambda: boss.client.get("approvals", approval["id"])["proof"].get("ran"), f"that it ran: {proof}")
    for behavior, ran in (("allow", {"ran": True, "failed": True}), ("deny", {"ran": False})):
        message = post.put(f"RUNBASH touch {behavior}; false")
        number = asked(boss)["id"]
        assert boss.ask("POST", f"/v1/approvals/{number}/answer", {"behavior": behavior}).status == 200
        post.ended(message)
        proof = until(partial(proof_of, boss, number), "what became of it")
        assert {name: proof[name] for name in ("ran", "failed") if name in proof} == ran
        assert (cli.project / behavior).exists() is ran["ran"]
    message = post.put(f"TOOL {json.dumps(QUESTION)}")
    approval = asked(boss)
    assert approval["reason"] == "question"
    answer = {"behavior": "allow", "answers": {"Colour": "Blue"}}
    assert boss.ask("POST", f"/v1/approvals/{approval['id']}/answer", answer).status == 200
    trace = post.ended(message)
    assert '"Which colour?"="Blue"' in str((trace.answer or {}).get("text"))


def test_reply_reaches_the_conversation_in_its_pane_when_it_waits_and_never_else(
    model: LoopbackModel, cli: RealCli, remuda: Commands, boss: RunningBoss, tmux: TmuxBench
) -> None:
    install_hooks(remuda, cli.home / ".claude" / "settings.json")
    boss.start()
    pane = AgentPane(tmux, boss, cli.argv("--permission-mode", "default"), cli.env, cli.project)
    pane.until_shows("for shortcuts")
    pane.session("started", "stopped")
    assert (
        remuda("reply", pane.id, "hello from elsewhere", "--wait").out == "REPLY#1 to: hello from elsewhere\n"
    )
    pane.session("stopped")
    remuda("reply", pane.id, "!two\nlines of it", "--wait")
    assert prompts(model) == ["hello from elsewhere", "\n!two\nlines of it"]
    pane.session("stopped")
    pane.press("-l", "half a thought")
    pane.until_shows("half a thought")
    assert "composer holds a draft: 'half a thought'" in remuda.refused("reply", pane.id, "hello", code=8)
    pane.press("C-u")
    until(lambda: "half a thought" not in pane.shown(), "an empty composer")
    remuda("reply", pane.id, "RUNBASH touch made")
    pane.session("waiting")
    assert "is not idle: waiting" in remuda.refused("reply", pane.id, "1", code=8)
    assert "denied" in remuda("deny", pane.id, "--message", "not now").out
    pane.session("stopped")
    assert not (cli.project / "made").exists()
