"""Leave that is given from elsewhere, to an agent in a kept session: by the boss, through its keeper."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.cli.permission_request import outcome
from remuda.errors import AlreadyAnswered, InvalidOptions, NotSafe
from remuda.keeper.client import KeeperClient
from remuda.keeper.environment import session_environment
from support.boss import KEPT, RunningBoss
from support.heimdall_client import PATIENCE
from support.keeper import Start, event_named, until
from support.messages import Post

TOUCH = "RUNBASH touch made"


class Bench:
    """A scripted agent in a kept session, and a boss that follows it."""

    def __init__(self, start: Start, home: Path, folder: Path) -> None:
        self._start = start
        self.boss = RunningBoss(home, (KEPT,))
        self.project = folder / "project"
        self.config = folder / "claude"
        self.project.mkdir()
        self.config.mkdir()

    def session(self, **more: Any) -> tuple[Post, KeeperClient]:
        own = {"CLAUDE_CONFIG_DIR": str(self.config), "MOCK_TIME_SCALE": "0.01", "MOCK_DIALOG_GUARD": "0"}
        env = session_environment({**os.environ, **own}, "work", "HEIMDALL", {})
        argv = [sys.executable, "-P", "-m", "remuda.testing.scripted_agent", "--permission-mode", "default"]
        given: dict[str, Any] = {"agent": "demo", "classifier": "claude", "cols": 100, "rows": 30}
        given |= {"asks": True, **more}
        post = Post(self._start("work", argv, cwd=str(self.project), env=env, **given))
        client = post.kept.hello()
        client.request("watch")
        if not client.request("ready")["ready"]:
            event_named(client, "ready")
        return post, client

    def asked(self, prompt: str = TOUCH, **more: Any) -> tuple[Post, KeeperClient, dict[str, Any]]:
        """A session that asks for permission, and its request in the ledger."""
        post, client = self.session(**more)
        self.boss.start()
        post.put(prompt)
        return post, client, self.approval()

    def approval(self) -> dict[str, Any]:
        return until(self._open, "a request in the ledger")

    def _open(self) -> dict[str, Any]:
        found = self.boss.client.get("approvals", state="open")["approvals"]
        return found[0] if found else {}

    def answer(self, approval: dict[str, Any], **answer: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.boss.client.post(
            "approvals", approval["id"], "answer", body={"by": "me", **answer}, timeout=PATIENCE
        )
        return found

    def ledger(self, number: str) -> dict[str, Any]:
        found: dict[str, Any] = self.boss.client.get("approvals", number)
        return found

    def proven(self, number: str, *, ran: bool) -> dict[str, Any]:
        def look() -> dict[str, Any]:
            found = self.ledger(number)
            return found if (found["proof"] or {}).get("ran") is ran else {}

        return until(look, f"proof that it {'ran' if ran else 'did not run'}")


@pytest.fixture
def bench(start: Start, home: Path, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(start, home, tmp_path)
    yield made
    made.boss.close()


def test_allowed_runs_and_the_ledger_has_the_proof(bench: Bench) -> None:
    _, client, approval = bench.asked()
    assert (approval["tool"], approval["input"]["command"]) == ("Bash", "touch made")
    answered = bench.answer(approval, behavior="allow")
    assert (answered["state"], answered["by"]) == ("answered", "api: me")
    assert answered["delivered_at"] >= answered["asked_at"]
    event_named(client, "ended")
    assert (bench.project / "made").exists()
    proven = bench.proven(approval["id"], ran=True)
    assert proven["proof"]["tool_use_id"] == proven["tool_use_id"]
    assert (proven["state"], proven["answer"]) == ("answered", {"behavior": "allow"})


def test_allowed_that_fails_has_run(bench: Bench) -> None:
    _, _, approval = bench.asked("RUNBASH touch made; false")
    bench.answer(approval, behavior="allow")
    proof = bench.proven(approval["id"], ran=True)["proof"]
    assert ((bench.project / "made").exists(), proof["failed"]) == (True, True)
    assert outcome(bench.ledger(approval["id"])) == "allow by api: me; it ran and failed"


def test_denied_says_why_and_nothing_runs(bench: Bench) -> None:
    _, client, approval = bench.asked()
    bench.answer(approval, behavior="deny", message="not today")
    assert event_named(client, "stopped")["text"] == "REPLY#2 to: tool_result not today"
    assert not (bench.project / "made").exists()
    assert bench.ledger(approval["id"])["state"] == "answered"
    bench.proven(approval["id"], ran=False)
    assert outcome(bench.ledger(approval["id"])) == "deny by api: me; it did not run"


def test_denied_with_an_interrupt_ends_the_turn(bench: Bench) -> None:
    _, client, approval = bench.asked()
    bench.answer(approval, behavior="deny", interrupt=True)
    assert event_named(client, "ended")["end"] == "interrupted"


def test_edited_runs_what_was_said_instead(bench: Bench) -> None:
    _, client, approval = bench.asked()
    edited = {"command": "touch other", "description": "x"}
    bench.answer(approval, behavior="allow", updated_input=edited)
    event_named(client, "ended")
    assert [path.name for path in bench.project.iterdir()] == ["other"]
    assert bench.proven(approval["id"], ran=True)["answer"]["updated_input"] == edited


def test_always_is_not_asked_again_in_that_conversation(bench: Bench) -> None:
    post, client, approval = bench.asked()
    bench.answer(approval, behavior="allow", always=True)
    event_named(client, "ended")
    again = post.put("RUNBASH touch again")
    assert event_named(client, "ended", id=again)["end"] == "answered"
    assert (bench.project / "again").exists()
    assert len(bench.boss.client.get("approvals")["approvals"]) == 1
    post.put("RUNBASH chmod 600 again")  # always is for the like, not for every command
    until(lambda: len(bench.boss.client.get("approvals")["approvals"]) == 2, "another request")


def test_second_decision_is_refused_and_names_the_first(bench: Bench) -> None:
    _, _, approval = bench.asked()
    bench.answer(approval, behavior="allow", by="phone")
    with pytest.raises(AlreadyAnswered, match="phone has already decided: allow"):
        bench.answer(approval, behavior="deny")
    refused = bench.boss.ask("POST", f"/v1/approvals/{approval['id']}/answer", {"behavior": "deny"})
    assert refused.status == 409


@pytest.mark.parametrize(("key", "made"), [(b"1", True), (b"\x1b", False)])
def test_human_at_the_terminal_may_be_first(bench: Bench, key: bytes, made: bool) -> None:
    post, client, approval = bench.asked()
    post.watcher.answer(key)
    event_named(client, "ended")
    with pytest.raises(AlreadyAnswered):
        bench.answer(approval, behavior="allow")
    assert (bench.project / "made").exists() is made
    ledger = bench.ledger(approval["id"])
    assert (ledger["state"], ledger["by"], ledger["answer"]) == ("ended", None, None)


def test_boss_that_was_killed_finds_it_open_again_and_answers_it(bench: Bench) -> None:
    _, client, approval = bench.asked()
    bench.boss.restart(signal.SIGKILL)
    assert bench.approval()["id"] == approval["id"]
    bench.answer(approval, behavior="allow")
    event_named(client, "ended")
    assert (bench.project / "made").exists()
    assert len(bench.boss.client.get("approvals")["approvals"]) == 1


def test_question_is_answered(bench: Bench) -> None:
    questions = [
        {
            "question": "Which colour?",
            "header": "Colour",
            "multiSelect": False,
            "options": [{"label": "Red", "description": ""}, {"label": "Blue", "description": ""}],
        }
    ]
    call = {"name": "AskUserQuestion", "input": {"questions": questions}}
    _, client, approval = bench.asked(f"TOOL {json.dumps(call)}")
    assert (approval["reason"], approval["detail"]["options"]) == ("question", questions)
    with pytest.raises(InvalidOptions):
        bench.answer(approval, behavior="allow")
    bench.answer(approval, behavior="allow", answers={"Colour": "Blue"})
    assert '"Which colour?"="Blue"' in event_named(client, "stopped")["text"]


def test_session_that_leaves_it_to_the_terminal_says_so(bench: Bench) -> None:
    _, _, approval = bench.asked(asks=False)
    with pytest.raises(NotSafe, match="takes decisions only in its terminal"):
        bench.answer(approval, behavior="allow")
    assert bench.ledger(approval["id"])["state"] == "open"
