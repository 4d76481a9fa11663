"""Claude Code's records as a conversation for people, and what each message used."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from remuda.agents.claude.conversation import ClaudeConversations
from remuda.agents.conversation import EntryKind, MessageUsage, Tokens, TurnBegun
from remuda.boss.conversation_page import TEXT_CHARACTERS, Page, document, read_page

READER = ClaudeConversations()
TRANSCRIPT = Path(__file__).parents[3] / "data" / "transcript_2.1.325.jsonl"
RECORDS = [json.loads(line) for line in TRANSCRIPT.read_text().splitlines()]
SESSION = next(one["sessionId"] for one in RECORDS if "sessionId" in one)


def record(kind: str, content: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "uuid": "u",
        "sessionId": "s",
        "message": {"role": kind, "content": content},
        **more,
    }


def test_recorded_turn_has_prompt_call_result_answer_and_usage() -> None:
    entries = [entry for one in RECORDS for entry in READER.entries(one, SESSION)]
    kinds = [entry.kind for entry in entries]
    assert kinds[0] is EntryKind.PROMPT
    assert kinds[-2:] == [EntryKind.ANSWER, EntryKind.USAGE]
    call = next(entry for entry in entries if entry.kind is EntryKind.TOOL_CALL)
    result = next(entry for entry in entries if entry.kind is EntryKind.TOOL_RESULT)
    assert call.tool == "Bash"
    assert call.call == result.call
    assert result.ok


def test_usage_of_a_message_has_four_kinds_of_tokens_apart() -> None:
    reports = [report for one in RECORDS if (report := READER.usage(one, SESSION)) is not None]
    assert isinstance(reports[0], TurnBegun)
    messages = [one for one in reports if isinstance(one, MessageUsage)]
    assert len(messages) == 3
    assert len({one.id for one in messages}) == 2  # a message of two blocks is two records
    assert {one.tokens for one in messages} == {Tokens(12, 7, 3, 0)}


@pytest.mark.parametrize(
    "change",
    [{"isApiErrorMessage": True}, {"sessionId": "another"}, {"type": "user"}, {"message": None}],
)
def test_record_that_no_model_of_this_conversation_wrote_uses_nothing(change: dict[str, Any]) -> None:
    message = {"id": "m", "model": "x", "usage": {"input_tokens": 1}, "content": []}
    usage = {"type": "assistant", "sessionId": "s", "uuid": "u", "message": message}
    assert isinstance(READER.usage(usage, "s"), MessageUsage)
    assert not isinstance(READER.usage(usage | change, "s"), MessageUsage)


@pytest.mark.parametrize("value", [-1, True, 1.5, "7", None, 1 << 60, [1]])
def test_number_that_cannot_be_right_is_unknown(value: object) -> None:
    message = {"id": "m", "model": "x", "usage": {"input_tokens": value, "output_tokens": 2}}
    used = READER.usage({"type": "assistant", "sessionId": "s", "message": message}, "s")
    assert isinstance(used, MessageUsage)
    assert used.tokens == Tokens(None, 2, None, None)


def test_edit_has_its_diff_and_a_refusal_says_so() -> None:
    hunk = {"oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 2, "lines": [" a", "+b"]}
    edit = {"filePath": "/srv/f", "structuredPatch": [hunk]}
    block = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "done"}]}
    (done,) = READER.entries(record("user", [block], toolUseResult=edit), "s")
    assert done.diff == "--- /srv/f\n+++ /srv/f\n@@ -1,1 +1,2 @@\n a\n+b"
    refused = record("user", [block | {"is_error": True}], toolDenialKind="user")
    (entry,) = READER.entries(refused, "s")
    assert (entry.ok, entry.denied, entry.text) == (False, True, "done")


def test_what_the_agent_notes_itself_is_no_prompt() -> None:
    notes = [
        record("user", "[Request interrupted by user]"),
        record("user", "Stop hook feedback:\ngo on", isMeta=True),
        record("user", "<command-name>/clear</command-name>"),
    ]
    assert [READER.entries(one, "s")[0].kind for one in notes] == [EntryKind.NOTICE] * 3
    assert READER.entries(record("user", "hidden", isMeta=True), "s") == []
    (error,) = READER.entries(record("assistant", "API Error", isApiErrorMessage=True), "s")
    assert error.kind is EntryKind.ERROR


@pytest.mark.parametrize("content", [None, 7, [None, 7, {"type": "text"}, {"type": "tool_result"}], {"a": 1}])
def test_record_of_any_shape_is_read(content: Any) -> None:
    for kind in ("user", "assistant", "system"):
        for entry in READER.entries(record(kind, content, toolUseResult=content), "s"):
            json.dumps(document(entry))


# ── pages ──


def write(path: Path, *records: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(one) + "\n" for one in records)


def said(number: int, size: int = 10) -> dict[str, Any]:
    return record("assistant", f"{number} ".ljust(size, "x"), uuid=f"u{number}")


def page(path: Path, limit: int = 10, **cursor: str | None) -> Page:
    named = {"before": None, "after": None, **cursor}
    return read_page(READER, str(path), "s", limit, before=named["before"], after=named["after"])


def numbers(found: Page) -> list[int]:
    return [int(one["text"].split()[0]) for one in found.entries]


@pytest.mark.parametrize("filler", ["{}\n", "\n"], ids=["records", "blank"])
def test_lines_that_say_nothing_are_read_in_parts(tmp_path: Path, filler: str) -> None:
    path = tmp_path / "t.jsonl"
    write(path, said(1))
    with path.open("a") as file:
        file.write(filler * 12_000)
    found, pages = page(path), 1
    while not found.entries and found.before is not None:
        found, pages = page(path, before=found.before), pages + 1
    assert numbers(found) == [1]
    assert pages > 1
    found, pages = page(path, after=found.after), 1
    while (later := page(path, after=found.after)).after != found.after:
        found, pages = later, pages + 1
    assert pages > 1
    assert str(found.after).endswith(f"-{path.stat().st_size}")


def test_pages_go_back_to_the_beginning_and_on_to_the_end(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(path, *(said(number, size=3000) for number in range(500)))
    last = page(path)
    assert numbers(last) == list(range(490, 500))
    seen, cursor = numbers(last), last.before
    while cursor is not None:
        found = page(path, 64, before=cursor)
        seen, cursor = numbers(found) + seen, found.before
    assert seen == list(range(500))
    assert numbers(page(path, after=last.after)) == []
    write(path, said(500), said(501))
    with path.open("a") as file:
        file.write('{"type": "assis')  # being written
    newer = page(path, after=last.after)
    assert numbers(newer) == [500, 501]
    assert numbers(page(path, 1, after=last.after)) == [500]
    assert numbers(page(path)) == list(range(492, 502))


def test_cursor_of_a_file_that_was_replaced_gets_the_newest_page(tmp_path: Path) -> None:
    path, other = tmp_path / "t.jsonl", tmp_path / "o.jsonl"
    write(path, said(1))
    cursor = page(path).after
    write(other, said(2))
    os.replace(other, path)
    assert numbers(page(path, after=cursor)) == [2]


def test_page_is_bounded_and_says_what_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write(path, said(0, size=5_000_000), *(said(number, size=15_000) for number in range(1, 300)))
    found = page(path, 500)
    assert len(json.dumps(found.entries)) < 2 << 20
    assert found.before is not None
    oldest = page(path, 1, before=page(path, 500, before=found.before).before)
    while oldest.before is not None:
        oldest = page(path, 500, before=oldest.before)
    assert oldest.entries[0]["cut"]
    assert len(oldest.entries[0]["text"]) == TEXT_CHARACTERS


def test_input_of_a_tool_is_bounded_in_size_and_depth() -> None:
    deep: Any = "end"
    for _ in range(50):
        deep = {"a": deep}
    given = {"long": "x" * 100_000, "deep": deep, "many": list(range(1000))}
    block = {"type": "tool_use", "id": "t", "name": "T", "input": given}
    (entry,) = READER.entries(record("assistant", [block]), "s")
    shown = document(entry)
    assert shown["cut"]
    assert len(json.dumps(shown)) < 30_000


def test_file_that_is_not_ours_or_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "missing"):
        with pytest.raises(OSError, match=r".*"):
            page(tmp_path / name)
