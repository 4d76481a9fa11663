"""Transcripts are read from where they were left, and never whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from remuda.agents.claude.sources import ClaudeSources
from remuda.boss.evidence.transcripts import Transcripts
from remuda.boss.service import BossService
from support.boss import event, with_service

CLAUDE = ClaudeSources()
STOPPED_AT = 1_700_000_000.0


def line(kind: str, at: str, text: str = "x", **more: Any) -> str:
    message: dict[str, Any] = {"role": kind, "content": [{"type": "text", "text": text}]}
    if kind == "assistant":
        message |= {"id": "m", "stop_reason": "end_turn", "model": "claude"}
    return json.dumps({"type": kind, "timestamp": at, "uuid": at, "message": message, **more}) + "\n"


BEFORE, SAME, AFTER = "2023-11-14T22:13:10.000Z", "2023-11-14T22:13:20.000Z", "2023-11-14T22:13:30.000Z"


def waiting_after(folder: Path, *lines: str) -> list[str]:
    """Who still waits when a session that stopped at `STOPPED_AT` has this in its transcript."""
    path = folder / "s.jsonl"
    if lines:
        path.write_text("".join(lines))

    async def work(service: BossService) -> list[str]:
        await service.take(event("stopped", STOPPED_AT, message="done"))
        await Transcripts(service).read(CLAUDE, "s", str(path))
        return [f"{item.reason}: {item.message}" for item in service.queue()]

    return with_service(folder, work, lambda: STOPPED_AT + 100)


def test_prompt_after_the_stop_resolves_it(tmp_path: Path) -> None:
    assert waiting_after(tmp_path, line("user", AFTER)) == []


def test_prompt_before_the_stop_leaves_it(tmp_path: Path) -> None:
    assert waiting_after(tmp_path, line("user", BEFORE)) == ["stopped: done"]


def test_record_of_the_same_moment_leaves_it(tmp_path: Path) -> None:
    assert waiting_after(tmp_path, line("user", SAME)) == ["stopped: done"]


def test_lines_that_are_no_records_are_passed_over(tmp_path: Path) -> None:
    broken = ["{not json\n", "[]\n", "\n", '{"type": "user", "timestamp": 5}\n', '{"type": "user"}\n', "\0\n"]
    assert waiting_after(tmp_path, *broken) == ["stopped: done"]
    assert waiting_after(tmp_path, *broken, line("user", AFTER)) == []


def test_missing_file_leaves_it(tmp_path: Path) -> None:
    assert waiting_after(tmp_path) == ["stopped: done"]


def test_stop_that_was_missed_is_added_with_its_words(tmp_path: Path) -> None:
    lines = [line("user", AFTER), line("assistant", "2023-11-14T22:13:40.000Z", "all the words")]
    assert waiting_after(tmp_path, *lines) == ["stopped: all the words"]


def test_records_of_another_conversation_report_nothing(tmp_path: Path) -> None:
    assert waiting_after(tmp_path, line("user", AFTER, sessionId="other")) == ["stopped: done"]


def test_places_are_remembered_over_a_boss_and_those_of_no_use_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(line("user", AFTER))

    async def first(service: BossService) -> None:
        found = Transcripts(service)
        assert await found.read(CLAUDE, "s", str(path))
        assert await found.read(CLAUDE, "old", str(path))
        await found.save({"s"})

    async def second(service: BossService) -> None:
        found = Transcripts(service)
        assert not found.has_changed("s", str(path))
        assert found.has_changed("old", str(path))

    with_service(tmp_path, first, lambda: STOPPED_AT + 100)
    with_service(tmp_path, second, lambda: STOPPED_AT + 100)


def test_transcript_that_is_new_reports_its_last_turn_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    turns = [
        line(kind, f"2023-11-14T22:{minute:02d}:{second:02d}.000Z", f"{kind} {minute}")
        for minute in range(20)
        for second, kind in enumerate(("user", "assistant"))
    ]
    path.write_text("".join(turns))

    async def work(service: BossService) -> None:
        transcripts = Transcripts(service)
        await transcripts.read(CLAUDE, "s", str(path))
        assert ([item.message for item in service.queue()], service.taken) == (["assistant 19"], 2)
        with path.open("a") as file:  # from now on all of it is
            file.writelines([line("user", AFTER), line("assistant", "2023-11-14T22:30:00.000Z", "well")])
            file.write(line("user", "2023-11-14T22:30:10.000Z"))
        await transcripts.read(CLAUDE, "s", str(path))
        assert (service.queue(), service.taken) == ([], 5)

    with_service(tmp_path, work, lambda: STOPPED_AT + 10_000)
