"""What the page reads: sessions, messages, conversation, changes, usage, of a real boss and real keepers."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from remuda.boss.http.openapi import ROUTES
from remuda.boss.http.page_schema import COMPONENTS as PAGE
from remuda.boss.http.schema import COMPONENTS
from remuda.session import Session
from support.begin import Begin, begin_in
from support.boss import KEPT, USAGE, RunningBoss, event
from support.boss_stream import Stream
from support.commands import Commands
from support.keeper import Start, until
from support.pool_servers import fake_pool

SOURCES = (
    KEPT,
    USAGE,
    "remuda.boss.evidence.messages:Messages",
)


@pytest.fixture
def boss(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[RunningBoss]:
    monkeypatch.setenv("MOCK_TIME_SCALE", "0.01")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    with RunningBoss(home, SOURCES) as one:
        yield one


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def begin(start: Start, tmp_path: Path, project: Path) -> Begin:
    config = tmp_path / "claude"
    config.mkdir(exist_ok=True)
    return begin_in(project, config, start)


def get(boss: RunningBoss, path: str, status: int = 200) -> Any:
    """Ask, and hold the answer to the schema that the document promises."""
    answer = boss.ask("GET", path)
    assert answer.status == status, answer.body
    if status == 200:
        conforms(answer.json, path)
    return answer.json


def conforms(document: Any, path: str) -> None:
    bare = path.partition("?")[0]
    parts = bare.split("/")
    route = next(
        one
        for one in ROUTES
        if one.method == "GET"
        and len(one.path.split("/")) == len(parts)
        and all(a == b or a.startswith("{") for a, b in zip(one.path.split("/"), parts, strict=True))
    )
    whole = {**route.answer, "components": {"schemas": {**COMPONENTS, **PAGE}}}
    jsonschema_rs.validate(whole, document)


def session(boss: RunningBoss, name: str) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        known = get(boss, "/v1/sessions")["sessions"]
        own = [one for one in known if one["name"] == name and one["transcript_path"]]
        return own[0] if own else {}

    return until(look, f"session {name}")


def answered(boss: RunningBoss, name: str, text: str) -> dict[str, Any]:
    """Send a message, and return it when its receipt has ended."""
    until(lambda: name in [one["name"] for one in get(boss, "/v1/sessions")["sessions"]], f"session {name}")
    answer = boss.ask("POST", f"/v1/sessions/{name}/reply", {"text": text})
    assert "id" in answer.json, (answer.status, answer.body)
    sent = answer.json

    def look() -> dict[str, Any]:
        one: dict[str, Any] = get(boss, f"/v1/sessions/{name}/messages/{sent['id']}")
        return one if one["ended"] else {}

    return until(look, "the end of the message")


def test_message_has_its_receipt_and_the_stream_shows_each_step(boss: RunningBoss, begin: Begin) -> None:
    begin("a")
    until(lambda: boss.client.get("sessions")["sessions"], "the session")
    before = boss.client.get("sessions")["last_event_id"]
    message = answered(boss, "a", "hello")
    assert (message["stage"], message["prompt"], message["answer"]) == ("acked", "hello", "REPLY#1 to: hello")
    stages = [step["stage"] for step in message["steps"]]
    assert stages[0] == "accepted"
    assert {"written", "submitted", "ended", "acked"} <= set(stages)
    assert all(step["at"] for step in message["steps"])
    listed = get(boss, "/v1/sessions/a/messages")
    assert [one["id"] for one in listed["messages"]] == [message["id"]]
    seen: list[dict[str, Any]] = []
    with closing(Stream(boss, before)) as stream:
        while not seen or seen[-1]["step"]["stage"] != "acked":
            seen.append(stream.until("message").document)
    assert [one["step"]["stage"] for one in seen] == stages
    assert {one["id"] for one in seen} == {message["id"]}
    until(lambda: session(boss, "a")["messages_waiting"] == 0, "no waiting message")


def test_conversation_usage_and_evidence_of_a_kept_session(boss: RunningBoss, begin: Begin) -> None:
    begin("a", "--permission-mode", "bypassPermissions")
    answered(boss, "a", "RUNBASH echo hi-there")
    conversation = get(boss, "/v1/sessions/a/conversation")
    kinds = [one["kind"] for one in conversation["entries"]]
    assert kinds[0] == "prompt"
    assert {"tool_call", "tool_result", "answer", "usage"} <= set(kinds)
    call = next(one for one in conversation["entries"] if one["kind"] == "tool_call")
    result = next(one for one in conversation["entries"] if one["kind"] == "tool_result")
    assert (call["tool"], call["input"]["command"]) == ("Bash", "echo hi-there")
    assert (result["call"], result["ok"]) == (call["call"], True)
    assert "hi-there" in result["text"]
    one = until(lambda: (found := session(boss, "a"))["tokens"] and found, "what it used")
    used = [one for one in conversation["entries"] if one["kind"] == "usage"]
    for kind in ("input", "output", "cache_read", "cache_write"):
        assert one["tokens"][kind] == sum(entry["tokens"][kind] for entry in used)
    for by in ("session", "folder", "model", "day", "account"):
        usage = get(boss, f"/v1/usage?by={by}")
        assert usage["total"]["tokens"] == one["tokens"]
        assert (usage["total"]["messages"], usage["total"]["turns"]) == (len(used), 1)
        assert usage["total"]["cost"] is None
        assert len(usage["rows"]) == 1
    turns = get(boss, "/v1/usage?by=turn&session=a")["rows"]
    assert [row["tokens"] for row in turns] == [one["tokens"]]
    whole = get(boss, "/v1/sessions/a")
    assert [row["source"] for row in whole["evidence"] if row["decides"]] == [whole["session"]["source"]]
    assert whole["session"]["agent_state"] == "idle"
    assert whole["session"]["last_message"]
    tables = get(boss, "/v1/sessions?evidence=true")["sessions"]
    assert all(one["evidence"] for one in tables)
    metrics = boss.ask("GET", "/metrics").body.decode()
    assert f'remuda_boss_tokens_total{{kind="output"}} {one["tokens"]["output"]}' in metrics


def test_pages_of_a_conversation_join_without_gap_or_repeat(boss: RunningBoss, begin: Begin) -> None:
    begin("a")
    for number in range(3):
        answered(boss, "a", f"say {number}")
    whole = get(boss, "/v1/sessions/a/conversation?limit=500")
    assert whole["before"] is None
    pages: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = get(boss, f"/v1/sessions/a/conversation?limit=2{cursor}")
        pages = page["entries"] + pages
        if page["before"] is None:
            break
        cursor = f"&before={page['before']}"
    assert pages == whole["entries"]
    answered(boss, "a", "one more")
    more = get(boss, f"/v1/sessions/a/conversation?after={whole['after']}")
    assert [one["text"] for one in more["entries"] if one["kind"] == "prompt"] == ["one more"]


def test_session_is_started_interrupted_ended_and_resumed(boss: RunningBoss, project: Path) -> None:
    body = {"name": "b", "agent": "demo", "cwd": str(project), "trust": True}
    started = boss.ask("POST", "/v1/sessions", body)
    assert started.status == 200, started.body
    assert started.json["name"] == "b"
    try:
        assert boss.ask("POST", "/v1/sessions", body).status == 409
        answered(boss, "b", "first")
        assert boss.ask("POST", "/v1/sessions/b/interrupt", {}).json["outcome"] == "nothing"
        screen = get(boss, "/v1/sessions/b/screen")
        assert any("first" in line for line in screen["lines"])
        assert screen["alive"] is True
        history = get(boss, "/v1/sessions/b/history?lines=5")
        assert (len(history["lines"]), history["cut"]) == (5, True)
        ended = boss.ask("POST", "/v1/sessions/b/end", {"grace": 1})
        assert ended.status == 200, ended.body
        assert get(boss, "/v1/sessions/b/screen")["alive"] is False
        assert boss.ask("POST", "/v1/sessions/b/end", {}).status == 409
        resumed = boss.ask("POST", "/v1/sessions/b/resume", {})
        assert resumed.status == 200, resumed.body
        until(lambda: (found := session(boss, "b")) and found["ended"] is None and found, "the session again")
        prompts = [
            one["text"]
            for one in get(boss, "/v1/sessions/b/conversation")["entries"]
            if one["kind"] == "prompt"
        ]
        assert prompts == ["first"]
    finally:
        if Session("b").alive:
            Session("b").kill(1)


def test_waiting_message_is_cancelled_and_a_running_turn_too(boss: RunningBoss, begin: Begin) -> None:
    begin("a", "--permission-mode", "default")
    session(boss, "a")  # the agent is ready a moment before the boss knows it
    first = boss.ask("POST", "/v1/sessions/a/reply", {"text": "RUNBASH touch made"}).json
    until(lambda: session(boss, "a")["agent_state"] == "waiting_permission", "the dialog")
    second = boss.ask("POST", "/v1/sessions/a/reply", {"text": "never mind"}).json
    until(lambda: session(boss, "a")["messages_waiting"] == 1, "a waiting message")
    cancelled = boss.ask("POST", f"/v1/sessions/a/messages/{second['id']}/cancel", {}).json
    assert (cancelled["id"], cancelled["outcome"]) == (second["id"], "taken_back")
    stopped = boss.ask("POST", f"/v1/sessions/a/messages/{first['id']}/cancel", {}).json
    assert (stopped["id"], stopped["outcome"]) == (first["id"], "interrupted")


def test_agent_in_a_pane_is_neither_ended_nor_interrupted(boss: RunningBoss) -> None:
    boss.tell(event("stopped", 10, session="p", message="done", pane="%7", cwd="/srv"))
    for action in ("end", "interrupt", "resume"):
        answer = boss.ask("POST", f"/v1/sessions/p/{action}", {})
        assert (answer.status, answer.json["error"]["code"]) == (409, "NOT_SAFE")
    assert get(boss, "/v1/sessions/p/messages")["messages"] == []
    (row,) = get(boss, "/v1/sessions/p")["evidence"]
    assert (row["source"], row["state"], row["decides"]) == ("hook", "idle", True)
    assert get(boss, "/v1/sessions/p")["session"]["tokens"] is None


def test_states_are_segments_without_the_time_in_which_no_boss_ran(boss: RunningBoss, begin: Begin) -> None:
    begin("a")
    answered(boss, "a", "hello")
    one = session(boss, "a")
    (strip,) = [two for two in get(boss, "/v1/states")["sessions"] if two["id"] == one["id"]]
    assert "idle" in [segment["state"] for segment in strip["segments"]]
    assert all(a["to"] == b["from"] for a, b in zip(strip["segments"], strip["segments"][1:], strict=False))
    boss.restart(signal.SIGKILL)
    session(boss, "a")

    def look() -> list[Any]:
        found = get(boss, f"/v1/sessions/{one['id']}/states")["sessions"]
        states = [segment["state"] for segment in found[0]["segments"]] if found else []
        return states if None in states and states[-1] == "idle" else []

    assert until(look, "a gap, and then what is known again").count(None) == 1
    statistics = get(boss, "/v1/statistics?range=week")
    assert statistics["known_since"] is not None
    assert statistics["states"][-1]["agents"]["idle"] > 0


def test_decided_permission_says_who_was_first_and_what_happened(boss: RunningBoss, begin: Begin) -> None:
    _, watcher = begin("a", "--permission-mode", "default", asks=True)
    watcher.paste("RUNBASH touch made")
    (asked,) = until(lambda: boss.client.get("approvals", state="open")["approvals"], "the request")
    assert asked["decision"] is None
    answer = boss.ask(
        "POST", f"/v1/approvals/{asked['id']}/answer", {"behavior": "allow", "by": "command line"}
    )
    assert answer.json["decision"]["by"] == "cli"

    def look() -> dict[str, Any]:
        decision: dict[str, Any] = get(boss, f"/v1/approvals/{asked['id']}")["decision"]
        return decision if decision["outcome"] != "unknown" else {}

    decision = until(look, "what happened then")
    assert (decision["behavior"], decision["outcome"]) == ("allow", "ran")
    until(lambda: session(boss, "a")["agent_state"] == "idle", "its end")
    watcher.paste("RUNBASH touch other")
    until(lambda: boss.client.get("approvals", state="open")["approvals"], "the second request")
    watcher.answer(b"1")

    def decisions() -> list[Any]:
        found = [one["decision"] for one in get(boss, "/v1/queue/history")["items"] if one["decision"]]
        return found if len(found) == 2 and found[0]["outcome"] == "ran" else []

    first = until(decisions, "both decisions in the history")
    assert [one["by"] for one in first] == ["terminal", "cli"]
    (row,) = get(boss, "/v1/statistics")["permissions"]
    assert (row["tool"], row["count"], row["human"], row["terminal"], row["allowed"]) == ("Bash", 2, 1, 1, 2)


def test_changes_show_the_work_of_the_agent(boss: RunningBoss, begin: Begin, project: Path) -> None:
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com"]
    subprocess.run([*git, "init", "-q", "-b", "main"], cwd=project, check=True)
    (project / "old").write_text("one\ntwo\n")
    subprocess.run([*git, "add", "-A"], cwd=project, check=True)
    past = {**os.environ, "GIT_COMMITTER_DATE": "2020-01-01T00:00:00Z"}
    subprocess.run([*git, "commit", "-qm", "first"], cwd=project, check=True, env=past)
    begin("a", "--permission-mode", "bypassPermissions")
    answered(boss, "a", "RUNBASH echo two >> old; echo new > made")
    changes = get(boss, "/v1/sessions/a/changes")
    assert (changes["branch"], changes["base"], changes["cut"]) == ("main", "start", False)
    files = {one["path"]: one for one in changes["files"]}
    assert (files["old"]["status"], files["old"]["added"], files["old"]["removed"]) == ("modified", 1, 0)
    assert "+two" in files["old"]["diff"]
    assert files["made"]["status"] == "untracked"


def test_statistics_have_the_hits_of_the_pool_that_is_served(remuda: Commands, boss: RunningBoss) -> None:
    assert boss.client.get("statistics")["pool"] is None
    with fake_pool(remuda):
        remuda("pool", "warm", "1")
        remuda("run", "--no-fallback", "hello")
        assert boss.client.get("statistics")["pool"] == {"requests": 1, "warm_hits": 1}
    assert boss.client.get("statistics")["pool"] is None
