"""The boss and kept sessions: each is in the queue when it needs someone, and only then."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from remuda.errors import BadName, BossDown, InvalidOptions, NotSafe
from remuda.keeper.environment import session_environment
from remuda.untrusted import MAX_DEPTH
from support.begin import Begin, begin_in
from support.boss import KEPT, RunningBoss, event, lasting_port
from support.keeper import Kept, Start, event_named, post_hook, until
from support.watcher import Watcher


@pytest.fixture
def boss(home: Path) -> Iterator[RunningBoss]:
    one = RunningBoss(home, (KEPT,))
    yield one
    one.close()


@pytest.fixture
def begin(start: Start, tmp_path: Path) -> Begin:
    """Keeps a scripted agent that is ready."""
    project, config = tmp_path / "project", tmp_path / "claude"
    project.mkdir()
    config.mkdir()
    return begin_in(project, config, start)


def item(boss: RunningBoss, name: str, reason: str, having: str = "") -> dict[str, Any]:
    """The item of that session in the queue, once it has that reason, and `having` among its details.

    The registry may report an open dialog a moment before the hook says what it asks.
    """

    def look() -> dict[str, Any]:
        found = [one for one in boss.waiting() if one["session"]["name"] == name and one["reason"] == reason]
        return found[0] if found and (not having or having in found[0]["detail"]) else {}

    return until(look, f"{name} in the queue: {reason}")


def test_stop_permission_and_end_of_a_session_that_is_watched(boss: RunningBoss, begin: Begin) -> None:
    boss.start()
    kept, watcher = begin("a", "--permission-mode", "default")
    watcher.paste("hello")
    stopped = item(boss, "a", "stopped")
    assert stopped["message"] == "REPLY#1 to: hello"
    assert (stopped["session"]["origin"], stopped["session"]["cwd"]) == ("kept", kept.spec.cwd)
    watcher.paste("RUNBASH touch made")
    asked = item(boss, "a", "permission", having="tool")
    assert (asked["detail"]["tool"], asked["detail"]["input"]["command"]) == ("Bash", "touch made")
    watcher.answer(b"1")
    item(boss, "a", "stopped")
    (approval,) = boss.client.get("approvals")["approvals"]
    assert (approval["state"], approval["proof"]["ran"]) == ("ended", True)
    os.kill(kept.child_pid, signal.SIGKILL)
    assert item(boss, "a", "dead")["session"]["state"] == "dead"


def test_permission_that_clients_may_give_has_the_keepers_name_for_it(
    boss: RunningBoss, begin: Begin
) -> None:
    boss.start()
    kept, watcher = begin("a", "--permission-mode", "default", asks=True)
    watcher.paste("RUNBASH touch made")
    item(boss, "a", "permission")
    client = kept.hello()
    # That a dialog is open may be known a moment before what it asks.
    (ask,) = until(lambda: client.request("asks")["asks"], "what it asks")
    until(lambda: len(boss.client.get("approvals")["approvals"]) == 1, "the request in the ledger")
    client.request("answer", id=ask["id"], behavior="allow")
    item(boss, "a", "stopped")
    (approval,) = boss.client.get("approvals")["approvals"]
    assert approval["proof"]["ran"] is True


@pytest.mark.parametrize("at", ["the terminal", "elsewhere"])
def test_refusal_is_proven_wherever_it_was_said(boss: RunningBoss, begin: Begin, at: str) -> None:
    boss.start()
    kept, watcher = begin("a", "--permission-mode", "default", asks=True)
    watcher.paste("RUNBASH touch made")
    until(lambda: boss.client.get("approvals", state="open")["approvals"], "the request in the ledger")
    if at == "elsewhere":
        client = kept.hello()
        (ask,) = client.request("asks")["asks"]
        client.request("answer", id=ask["id"], behavior="deny", message="no")
    else:
        watcher.answer(b"\x1b")
    item(boss, "a", "stopped")

    def look() -> dict[str, Any]:
        (approval,) = boss.client.get("approvals")["approvals"]
        proof: dict[str, Any] = approval["proof"] or {}
        return proof if "ran" in proof else {}

    proof = until(look, "a proof")
    assert (proof["ran"], proof["by"]) == (False, "transcript")


def test_boss_that_begins_finds_what_waits_and_what_has_ended(boss: RunningBoss, begin: Begin) -> None:
    _, stopped = begin("a")
    stopped.paste("hello")
    stopped.until("idle", source="hook")
    _, asking = begin("b", "--permission-mode", "default")
    asking.paste("RUNBASH touch made")
    asking.until("waiting_permission")
    calm, _ = begin("c")
    shell, _ = begin("d")
    boss.start()
    assert item(boss, "a", "stopped")["message"] == "REPLY#1 to: hello"
    item(boss, "b", "permission")
    assert [one["session"]["name"] for one in boss.waiting()] == ["a", "b"]
    boss.end(signal.SIGKILL)
    os.kill(shell.child_pid, signal.SIGKILL)
    assert shell.keeper.ended()
    calm.hello().request("kill", grace=0.5)
    assert calm.keeper.ended()
    boss.start()
    item(boss, "d", "dead")
    assert {one["session"]["name"] for one in boss.waiting()} == {"a", "b", "d"}


def test_request_that_was_open_when_the_boss_was_killed_is_the_same_item_for_the_next(
    boss: RunningBoss, begin: Begin
) -> None:
    boss.start()
    _, watcher = begin("a", "--permission-mode", "default", asks=True)
    watcher.paste("RUNBASH touch made")
    until(lambda: boss.client.get("approvals", state="open")["approvals"], "the request in the ledger")
    (before,) = boss.waiting()
    boss.restart(signal.SIGKILL)
    (after,) = boss.waiting()
    for name in ("id", "since", "detail"):
        assert after[name] == before[name]


def test_boss_that_begins_shows_no_request_that_was_decided_meanwhile(
    boss: RunningBoss, begin: Begin
) -> None:
    """It serves before it has heard its keepers; a page that reconnects would see the past."""
    boss.start(lasting_port())
    kept, watcher = begin("a", "--permission-mode", "default", asks=True)
    watcher.paste("RUNBASH touch made")
    item(boss, "a", "permission")
    port = boss.port
    boss.end(signal.SIGKILL)
    watcher.answer(b"1")
    watcher.until("idle", source="hook")
    kept.keeper.signal(signal.SIGSTOP)
    with ThreadPoolExecutor(2) as beside:
        started = beside.submit(boss.start, port)
        try:
            until(lambda: is_serving(boss), "a boss that serves")
            queue = beside.submit(boss.client.get, "queue")
            assert is_serving(boss)
        finally:
            kept.keeper.signal(signal.SIGCONT)
        assert "permission" not in [one["reason"] for one in queue.result()["items"]]
        started.result()
    item(boss, "a", "stopped")


def is_serving(boss: RunningBoss) -> bool:
    try:
        return bool(boss.client.get("health"))
    except BossDown:
        return False


# Sets the title that says that Claude Code works, when it is told to.
_WORKER = (
    r"import sys; sys.stdin.readline(); print('\x1b]0;\u2802 works\x07', flush=True); sys.stdin.readline()"
)


def test_source_of_a_state_is_the_one_that_decides(boss: RunningBoss, start: Start) -> None:
    """A better source confirms a state later: the state is the same, and its source is not."""
    boss.start()
    kept = start("a", [sys.executable, "-c", _WORKER], agent="demo", classifier="claude")
    client, watcher = kept.hello(), Watcher(kept.hello())

    def hook(name: str) -> None:
        payload = {"session_id": "s", "cwd": "/tmp", "transcript_path": "", "hook_event_name": name}
        client.request("hook", payload=payload)

    def source(wanted: str) -> bool:
        return [one["source"] for one in boss.client.get("sessions")["sessions"]] == [wanted]

    hook("Stop")
    watcher.until("idle")
    watcher.press(b"\n")
    watcher.until("thinking", source="title")
    until(lambda: source("title"), "the title as the source")
    hook("UserPromptSubmit")
    until(lambda: source("hook"), "the hook as the source")
    found = boss.client.get("sessions", "s")
    assert [one["source"] for one in found["evidence"] if one["decides"]] == ["hook"]
    assert (found["session"]["agent_state"], found["session"]["source"]) == ("thinking", "hook")


def test_interrupt_and_error_are_reported(boss: RunningBoss, begin: Begin) -> None:
    boss.start()
    _, watcher = begin("a")
    watcher.paste("SLOW 30 never mind")
    watcher.until("streaming")
    watcher.press(b"\x1b")
    assert item(boss, "a", "stopped")["detail"] == {"interrupted": True}
    watcher.paste("err 400")
    assert "400" in item(boss, "a", "api_error")["message"]


def test_programs_own_session_and_plain_program_call_no_one(
    boss: RunningBoss, begin: Begin, start: Start
) -> None:
    boss.start()
    _, own = begin("own", ephemeral=True)
    own.paste("hello")
    own.until("idle", source="hook")
    plain = start("plain", ["/bin/sh", "-c", "echo hello; exec cat"])
    begin("other")[1].paste("hello")
    item(boss, "other", "stopped")
    plain.hello().request("kill", grace=0.5)
    assert plain.keeper.ended()
    until(
        lambda: (
            [
                one["state"]
                for one in boss.client.get("sessions", all=True)["sessions"]
                if one["name"] == "plain"
            ]
            == ["ended"]
        ),
        "the end of the plain program",
    )
    assert [one["session"]["name"] for one in boss.waiting()] == ["other"]


def test_program_that_ends_while_the_boss_asks_for_it_has_ended(boss: RunningBoss, start: Start) -> None:
    boss.start()
    for number in range(12):
        start(f"p{number}", ["/bin/sleep", f"0.0{number}"])

    def states() -> set[str]:
        return {one["state"] for one in boss.client.get("sessions", all=True)["sessions"]}

    until(lambda: states() <= {"ended"}, "the end of all of them")


def test_session_at_its_trust_dialog_is_in_the_queue_until_it_is_answered(
    boss: RunningBoss, start: Start, tmp_path: Path
) -> None:
    config = tmp_path / "claude"
    config.mkdir()
    own = {"CLAUDE_CONFIG_DIR": str(config), "MOCK_TRUST_DIALOG": "1", "MOCK_DIALOG_GUARD": "0"}

    def begin() -> Kept:
        env = session_environment({**os.environ, **own}, "t", "HEIMDALL", {})
        argv = [sys.executable, "-P", "-m", "remuda.testing.scripted_agent"]
        return start(
            "t", argv, cwd=str(tmp_path), env=env, agent="demo", classifier="claude", cols=100, rows=30
        )

    def asked() -> dict[str, Any]:
        found = item(boss, "t", "question")
        assert found["detail"]["waiting_for"] == "trust dialog"
        return found

    def states() -> list[tuple[str, str]]:
        return [(one["name"], one["state"]) for one in boss.client.get("sessions")["sessions"]]

    boss.start()
    kept = begin()
    first = asked()
    assert states() == [("t", "waiting")]
    with pytest.raises(NotSafe) as refused:
        boss.client.post("approvals", first["detail"]["ask"], "answer", body={"behavior": "allow"})
    assert refused.value.hint == "go there with 'remuda attach t'", "its hooks are not missing"
    boss.restart(signal.SIGKILL)
    assert asked()["id"] == first["id"]
    watcher = Watcher(kept.hello())
    watcher.press(b"\x1b[A")
    watcher.answer(b"\r")
    until(lambda: states() == [("t", "started")], "the agent's own session")
    assert boss.waiting() == []
    kept.hello().request("kill", grace=0.5)
    assert kept.keeper.ended()
    until(lambda: states() == [], "its end")
    assert boss.client.get("sessions", "t")["session"]["state"] == "ended"
    begin()
    assert asked()["id"] != first["id"]
    assert states() == [("t", "waiting")]


def test_session_at_a_dialog_that_no_hook_reports_is_in_the_queue_until_it_is_answered(
    boss: RunningBoss, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    boss.start()
    monkeypatch.setenv("MOCK_AUTO_MODE_DIALOG", "1")
    _, watcher = begin("a", "--permission-mode", "auto")
    watcher.paste("RUNBASH touch made")
    asked = item(boss, "a", "question", having="waiting_for")
    assert asked["detail"]["waiting_for"] == "dialog open"
    assert boss.client.get("approvals")["approvals"] == []
    watcher.press(b"\r")
    assert item(boss, "a", "stopped")["message"].endswith("(Bash completed with no output)")
    assert len(boss.waiting()) == 1


def test_keeper_reports_only_the_hooks_that_were_asked_for(begin: Begin) -> None:
    kept, watcher = begin("a", "--permission-mode", "default")
    client = kept.hello(read_only=True)
    with pytest.raises(InvalidOptions):
        client.request("watch", hooks="Stop")
    client.request("watch", hooks=["Stop", "UserPromptSubmit"], without=["prompt"])
    watcher.paste("hello")
    prompted, stopped = event_named(client, "hook"), event_named(client, "hook")
    assert prompted["payload"]["hook_event_name"] == "UserPromptSubmit"
    assert "prompt" not in prompted["payload"]
    assert stopped["payload"]["last_assistant_message"] == "REPLY#1 to: hello"
    assert prompted["at"] <= stopped["at"]


def request_of(session_id: str, tool_input: str) -> str:
    named = '"hook_event_name":"PermissionRequest","tool_name":"mcp__x__y","cwd":"/"'
    return f'{{"session_id":"{session_id}",{named},"tool_input":{tool_input}}}'


def test_request_out_of_bounds_is_refused_and_the_next_is_in_the_queue(
    boss: RunningBoss, begin: Begin
) -> None:
    boss.start()
    kept, watcher = begin("a", "--permission-mode", "default", asks=True)
    watcher.paste("hello")
    session_id = item(boss, "a", "stopped")["session"]["id"]
    for bad in ('{"x":1e999}', '{"x":NaN}', '{"x":' + "[" * 900 + "]" * 900 + "}"):
        with contextlib.closing(post_hook(kept, request_of(session_id, bad))) as refused:
            assert refused.getresponse().status == 400
    boss.restart()
    deep = MAX_DEPTH - 2
    with contextlib.closing(post_hook(kept, request_of(session_id, '{"x":' + "[" * deep + "]" * deep + "}"))):
        assert item(boss, "a", "permission", having="tool")["detail"]["tool"] == "mcp__x__y"


def test_long_name_in_a_hook_does_not_make_its_session_unreachable(boss: RunningBoss, begin: Begin) -> None:
    """`show`, `ls` and `kill` failed: the status was longer than a frame, and `--resume` failed too."""
    boss.start()
    kept, watcher = begin("a", "--permission-mode", "default")
    watcher.paste("hello")
    session_id = item(boss, "a", "stopped")["session"]["id"]
    long = "/" + "a" * (2 << 20)
    told = {"session_id": session_id, "hook_event_name": "PreToolUse", "tool_name": "Bash", "cwd": "/"}
    fields = ("tool_name", "tool_use_id", "session_id", "transcript_path", "cwd", "permission_mode", "model")
    cases = [{field: long} for field in (*fields, "hook_event_name", "agent_id")]
    cases.append({"hook_event_name": "SessionStart", "source": long})
    for case in cases:
        with contextlib.closing(post_hook(kept, json.dumps(told | case))) as taken:
            assert taken.getresponse().status == 200, case.keys()
        assert kept.hello().request("status")["name"] == "a", case.keys()
    assert kept.paths.record.stat().st_size < 100_000
    assert max(map(len, kept.log().splitlines())) < 5000


@pytest.mark.parametrize("name", ["a\0b", "../x", "x" * 300])
def test_event_whose_name_cannot_be_a_sessions_is_refused(boss: RunningBoss, name: str) -> None:
    boss.start()
    with pytest.raises(BadName):
        boss.tell(event("stopped", 1000.0, session="z", name=name, cwd="/"))
    payload = {"session_id": "h", "hook_event_name": "Stop", "cwd": "/"}
    boss.client.post("hooks", body={"payload": payload, "env": {"REMUDA_SESSION": name}})
    assert [one["session"]["name"] for one in boss.waiting()] == [None]


def test_row_with_a_bad_name_does_not_stop_the_source_at_the_next_start(
    boss: RunningBoss, begin: Begin
) -> None:
    """A boss of 0.1 has taken it."""
    boss.start()
    boss.tell(event("stopped", 1000.0, session="z", name="renamed", cwd="/"))
    boss.end()
    with contextlib.closing(sqlite3.connect(boss.folder.path / "boss.db")) as database:
        for table, column in (("session", "document"), ("event", "facts"), ("base", "document")):
            database.execute(f"UPDATE {table} SET {column} = replace({column}, 'renamed', 'a\\u0000b')")
        database.commit()
    boss.start()
    assert [one["session"]["name"] for one in boss.waiting()] == ["a\0b"]
    _, watcher = begin("a", "--permission-mode", "default")
    watcher.paste("hello")
    item(boss, "a", "stopped")
    (kept,) = boss.client.get("health")["sources"]
    assert (kept["state"], kept["error"]) == ("running", None)
