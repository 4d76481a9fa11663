"""What the boss makes of background jobs."""

from __future__ import annotations

from pathlib import Path

from remuda.agents.attention import EventKind
from remuda.agents.sources import BackgroundJob
from remuda.boss.evidence.jobs import ended_event, rests_event


def blocked(transcript: Path) -> BackgroundJob:
    return BackgroundJob(
        "some-agent",
        "19f2",
        "blocked",
        rests=True,
        at=7.0,
        cwd="/srv",
        title="ok",
        transcript=str(transcript),
        needs="which one?",
    )


def test_waiting_job_leaves_its_words_to_its_transcript(tmp_path: Path) -> None:
    transcript = tmp_path / "19f2.jsonl"
    without = rests_event(blocked(transcript))
    transcript.touch()
    event = rests_event(blocked(transcript))
    assert (event.kind, event.at) == (EventKind.STOPPED, 7.0)
    assert event.facts == {
        "agent": "some-agent",
        "origin": "background",
        "cwd": "/srv",
        "title": "ok",
        "transcript_path": str(transcript),
    }
    assert without.facts == {**event.facts, "message": "which one?"}


def test_job_that_was_removed_has_ended(tmp_path: Path) -> None:
    event = ended_event(blocked(tmp_path / "none"), 9.0, "it was removed")
    assert (event.kind, event.at, event.facts["why"]) == (EventKind.ENDED, 9.0, "it was removed")
