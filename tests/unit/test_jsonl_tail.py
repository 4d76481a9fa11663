"""Appended JSON lines are read once each, however the file is cut, replaced or written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda import jsonl_tail
from remuda.jsonl_tail import JsonlTail

RECENT_BYTES = 64 << 10


def read(tail: JsonlTail) -> list[dict[str, Any]]:
    return list(tail.read())


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_tail_reads_on_and_half_a_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"n": 1}\n{"n": 2')
    tail = JsonlTail(path)
    assert read(tail) == [{"n": 1}]
    assert read(tail) == []
    append(path, '}\n{"n": 3}\n')
    assert tail.has_changed()
    assert read(tail) == [{"n": 2}, {"n": 3}]
    assert tail.offset == path.stat().st_size
    assert not tail.has_changed()


def test_tail_made_from_stored_place_reads_half_a_line_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"n": 1}\n{"n": 2')
    tail = JsonlTail(path)
    read(tail)
    append(path, "}\n")
    assert read(JsonlTail(path, inode=tail.inode, offset=tail.offset)) == [{"n": 2}]


@pytest.mark.parametrize("recent_bytes", [None, RECENT_BYTES])
def test_file_that_was_cut_or_replaced_is_read_from_its_start(
    tmp_path: Path, recent_bytes: int | None
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"n": 1}\n{"n": 2}\n')
    tail = JsonlTail(path, recent_bytes=recent_bytes)
    read(tail)
    path.write_text('{"n": 3}\n')
    assert read(tail) == [{"n": 3}]
    other = tmp_path / "o.jsonl"
    other.write_text('{"n": 4}\n{"n": 5}\n')
    os.replace(other, path)
    assert read(tail) == [{"n": 4}, {"n": 5}]


def test_tail_at_end_skips_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"n": 1}\n')
    tail = JsonlTail.at_end(path)
    assert read(tail) == []
    append(path, '{"n": 2}\n')
    assert read(tail) == [{"n": 2}]


def test_tail_at_end_of_missing_file_reads_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    tail = JsonlTail.at_end(path)
    assert read(tail) == []
    assert tail.is_new
    path.write_text('{"n": 1}\n')
    assert read(tail) == [{"n": 1}]


def test_lines_that_are_not_objects_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{not json\n[]\n\n\0\n\xff\n{"n": NaN}\n{"n": 1}\n')
    assert read(JsonlTail(path)) == [{"n": 1}]


def test_recent_bytes_reads_only_the_end_of_a_large_new_file(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with path.open("w") as file:
        for number in range(10_000):
            file.write(json.dumps({"n": number, "text": "x" * 80}) + "\n")
    found = read(JsonlTail(path, recent_bytes=RECENT_BYTES))
    assert found[-1]["n"] == 9_999
    assert len(found) * 90 < RECENT_BYTES
    assert len(found) * 110 > RECENT_BYTES


def test_line_beyond_the_limit_is_dropped_and_the_next_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl_tail, "MAX_LINE_BYTES", 100)
    monkeypatch.setattr(jsonl_tail, "_CHUNK_BYTES", 32)
    path = tmp_path / "t.jsonl"
    path.write_text('{"n": 1}\n' + json.dumps({"text": "x" * 200}))
    tail = JsonlTail(path)
    assert read(tail) == [{"n": 1}]
    append(path, '\n{"n": 2}\n')
    assert read(tail) == [{"n": 2}]
    assert tail.offset == path.stat().st_size


def test_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert read(JsonlTail(tmp_path / "pipe.jsonl")) == []


@given(cuts=st.lists(st.integers(0, 120), max_size=8), chunk=st.integers(1, 40))
def test_every_object_comes_once_however_the_file_grows(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], chunk: int
) -> None:
    path = tmp_path_factory.mktemp("tail") / "t.jsonl"
    records = [{"n": number, "text": "ä" * number} for number in range(8)]
    data = b"".join(json.dumps(one, ensure_ascii=False).encode() + b"\n" for one in records)
    tail, found, written = JsonlTail(path), [], 0
    with pytest.MonkeyPatch.context() as patch, path.open("ab", buffering=0) as file:
        patch.setattr(jsonl_tail, "_CHUNK_BYTES", chunk)
        for cut in [*sorted(cuts), len(data)]:
            file.write(data[written:cut])
            written = max(written, cut)
            found += read(tail)
    assert found == records
