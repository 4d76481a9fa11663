"""What the files of Claude Code's background agents say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remuda.agents.attention import EventKind
from remuda.agents.claude.attention import hook_events
from remuda.agents.claude.files import jobs_beside
from remuda.agents.claude.jobs import ended_event, read_job, rests_event

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
    job = read_job(state(**told))
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
def test_what_is_no_state_is_none(document: dict[str, Any]) -> None:
    assert read_job(document) is None


def test_event_of_one_that_rests_leaves_its_words_to_the_transcript() -> None:
    job = read_job(state(state="blocked", needs="which one?"))
    assert job is not None
    quiet, loud = rests_event(job, message=False), rests_event(job, message=True)
    assert (quiet.kind, quiet.at, quiet.facts["origin"]) == (EventKind.STOPPED, AT, "background")
    assert (quiet.facts["cwd"], quiet.facts["title"]) == ("/srv", "ok")
    assert quiet.facts["transcript_path"].endswith("19f2.jsonl")
    assert "message" not in quiet.facts
    assert loud.facts["message"] == "which one?"
    over = ended_event(job, 9.0, "it was removed")
    assert (over.kind, over.at, over.facts["why"]) == (EventKind.ENDED, 9.0, "it was removed")


def test_end_and_beginning_of_its_process_are_not_its_own() -> None:
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


def test_jobs_lie_beside_the_registry() -> None:
    assert jobs_beside(Path("/home/me/.claude/sessions")) == Path("/home/me/.claude/jobs")
