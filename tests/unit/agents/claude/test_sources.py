"""What the registry, the jobs and the transcripts of Claude Code say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remuda.agents.attention import EventKind
from remuda.agents.claude.sources import ClaudeSources, hook_events

CLAUDE = ClaudeSources()
STAMP = "2026-11-15T16:55:09.500Z"
AT = 1794761709.5


def state(**more: Any) -> dict[str, Any]:
    """As 2.1.325 writes it, with what is of no use left out."""
    return {
        "state": "working",
        "detail": "REPLY#1 to: hello",
        "tempo": "idle",
        "linkScanPath": "/home/me/.claude/projects/-srv/19f2.jsonl",
        "intent": "hello",
        "sessionId": "19f2ecac-c966",
        "daemonShort": "19f2ecac",
        "cwd": "/srv",
        "createdAt": "2026-11-15T16:55:05.029Z",
        "updatedAt": STAMP,
        "name": "ok",
        **more,
    }


@pytest.mark.parametrize(
    ("told", "listed", "rests"),
    [
        ({"tempo": "active"}, "working", False),
        ({"tempo": "idle"}, "working", True),
        ({"state": "running", "tempo": "idle"}, "working", True),
        ({"tempo": "blocked", "needs": "approve Bash: touch made"}, "blocked", False),
        ({"state": "blocked", "tempo": "blocked"}, "blocked", True),
        ({"state": "done"}, "done", True),
        ({"state": "failed"}, "failed", True),
        ({"state": "stopped"}, "stopped", False),
        ({"state": "crashed", "detail": "exit 143; respawning"}, "working", False),
        ({"state": "resuming"}, "working", False),
        ({"state": "of a later version", "tempo": None}, "working", False),
    ],
)
def test_state_is_what_the_agents_own_list_calls_it(told: dict[str, Any], listed: str, rests: bool) -> None:
    job = CLAUDE.read_job(state(**told))
    assert job is not None
    assert (job.state, job.rests, job.at, job.session_id) == (listed, rests, AT, "19f2ecac-c966")


@pytest.mark.parametrize(
    "document",
    [
        {},
        state(sessionId=""),
        state(sessionId=5),
        state(state=None),
        state(updatedAt="x"),
        state(updatedAt=5),
    ],
)
def test_document_without_a_state_is_not_a_job(document: dict[str, Any]) -> None:
    assert CLAUDE.read_job(document) is None


def test_end_and_start_of_its_process_are_not_those_of_a_background_agent() -> None:
    env = {"CLAUDE_JOB_DIR": "/home/me/.claude/jobs/19f2ecac", "CLAUDE_CODE_ENTRYPOINT": "cli"}
    ended = {"session_id": "19f2", "hook_event_name": "SessionEnd", "reason": "other"}

    def kind(payload: dict[str, Any], env: dict[str, str]) -> EventKind:
        (event,) = hook_events(payload, 5.0, env=env)
        return event.kind

    assert kind(ended, env) is EventKind.SEEN
    assert kind(ended, {}) is EventKind.ENDED
    assert kind({**ended, "reason": "clear"}, env) is EventKind.ENDED
    # What it starts itself has its variables too.
    assert kind(ended, {**env, "CLAUDE_CODE_ENTRYPOINT": "sdk-cli"}) is EventKind.ENDED
    begun = {"session_id": "19f2", "hook_event_name": "SessionStart", "source": "resume"}
    assert kind(begun, env) is EventKind.SEEN
    assert kind({**begun, "source": "startup"}, env) is EventKind.REGISTERED
    assert kind(begun, {}) is EventKind.REGISTERED
    (stopped,) = hook_events({"session_id": "19f2", "hook_event_name": "Stop"}, 5.0, env=env)
    assert stopped.facts["origin"] == "background"


def test_job_files_are_found_next_to_the_registry(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "19f2").mkdir(parents=True)
    registry = tmp_path / "sessions"
    assert list(CLAUDE.job_files(registry)) == [tmp_path / "jobs" / "19f2" / "state.json"]
    assert list(CLAUDE.job_files(tmp_path / "elsewhere" / "sessions")) == []


def test_registry_folder_is_that_of_the_transcript_or_of_the_environment() -> None:
    env = {"HOME": "/home/me"}
    assert CLAUDE.registry_folder(env) == Path("/home/me/.claude/sessions")
    assert CLAUDE.registry_folder(env, "/other/projects/-srv/19f2.jsonl") == Path("/other/sessions")
    assert CLAUDE.registry_folder(env, "/srv/19f2.jsonl") == Path("/home/me/.claude/sessions")


def registered(**more: Any) -> dict[str, Any]:
    return {"pid": 7, "sessionId": "19f2", "status": "idle", "statusUpdatedAt": 5000, **more}


@pytest.mark.parametrize(
    ("document", "kind", "is_idle", "status"),
    [
        (registered(), EventKind.STOPPED, True, "idle"),
        (registered(status="shell"), EventKind.STOPPED, False, "shell"),
        (registered(status="busy"), EventKind.WORKING, False, "busy"),
        (
            registered(status="waiting", waitingFor="permission prompt"),
            EventKind.ASKED,
            False,
            "waiting, permission prompt",
        ),
        (registered(status="of a later version"), EventKind.SEEN, False, "of a later version"),
    ],
)
def test_registry_file_becomes_an_entry(
    document: dict[str, Any], kind: EventKind, is_idle: bool, status: str
) -> None:
    entry = CLAUDE.read_registry(document)
    assert entry is not None
    assert (entry.event.kind, entry.is_idle, entry.status) == (kind, is_idle, status)
    assert (entry.pid, entry.session_id, entry.event.at) == (7, "19f2", 5.0)


@pytest.mark.parametrize(
    "document", [{}, registered(pid="7"), registered(pid=None), registered(sessionId="")]
)
def test_registry_file_without_process_or_conversation_is_not_an_entry(document: dict[str, Any]) -> None:
    assert CLAUDE.read_registry(document) is None


def test_registry_entry_says_which_process_wrote_it_and_whether_it_outlives_it() -> None:
    entry = CLAUDE.read_registry(registered(procStart=123, kind="bg"))
    assert entry is not None
    assert (entry.process_start, entry.outlives_process) == ("123", True)


def test_records_of_the_conversation_that_was_forked_report_nothing() -> None:
    record = {"type": "user", "timestamp": STAMP, "uuid": "1", "message": {"role": "user", "content": "go"}}
    (event,) = CLAUDE.record_events({**record, "sessionId": "19f2"}, "19f2")
    assert event.kind is EventKind.PROMPTED
    assert CLAUDE.record_events({**record, "sessionId": "other"}, "19f2") == []
