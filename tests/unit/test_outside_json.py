"""Readers of files and streams that others write: one bad record costs that record and nothing else."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

import remuda
from remuda.agents.claude.files import read_settings
from remuda.agents.claude.print.print_transcript import TurnTail
from remuda.agents.claude.stream.reader import PrintReader
from remuda.agents.claude.trust import pretrust
from remuda.agents.json_lines import JsonLineReader
from remuda.errors import RemoteProtocolError
from remuda.keeper.delivery import _records
from remuda.keeper.observe import RecordTail
from remuda.keeper.record import SessionRecord
from remuda.pool.protocol import _parse
from remuda.wire.messages import Type, json_frame, parse_json

BAD = {
    "deep list": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep object": b'{"a":' * 2_000 + b"1" + b"}" * 2_000,
    "unfinished depth": b"[" * 100_000,
    "infinity": b'{"a": Infinity}',
    "nan": b'{"a": NaN}',
    "too large": b'{"a": 1e999}',
    "endless integer": b'{"a": ' + b"9" * 400 + b"}",
    "digits beyond Python's limit": b'{"a": ' + b"9" * 5_000 + b"}",
    "not UTF-8": b'{"a": "\xff"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "NUL": b'{"a": 1}\0',
    "cut": b'{"a": ',
}
GOOD: list[dict[str, Any]] = [{"type": "user", "n": 1}, {"type": "user", "n": 2}]


def lines(bad: bytes) -> bytes:
    first, last = (json.dumps(one).encode() for one in GOOD)
    return first + b"\n" + bad + b"\n" + last + b"\n"


@pytest.fixture(params=BAD)
def bad(request: pytest.FixtureRequest) -> bytes:
    return BAD[request.param]


def test_keeper_transcript_bad_record_costs_only_itself(bad: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(lines(bad))

    async def read() -> list[dict[str, Any]]:
        seen: list[dict[str, Any]] = []
        RecordTail(path, seen.append, from_start=True).close()
        return seen

    assert asyncio.run(read()) == GOOD


def test_keeper_transcript_record_that_a_listener_cannot_take_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(lines(b'{"type": ["unhashable"]}'))
    kinds: list[str] = []

    async def read() -> None:
        RecordTail(
            path, lambda record: kinds.append({"user": "known"}[record["type"]]), from_start=True
        ).close()

    asyncio.run(read())
    assert kinds == ["known", "known"]


def test_recovery_transcript_bad_record_costs_only_itself(bad: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(lines(bad))
    assert list(_records(path)) == GOOD


def test_print_transcript_bad_record_costs_only_itself(bad: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(lines(bad))
    assert list(TurnTail(path, None).read()) == GOOD


def test_print_stream_bad_message_costs_only_itself(bad: bytes) -> None:
    assert list(PrintReader().feed(lines(bad))) == GOOD


def test_pool_stream_bad_message_costs_only_itself(bad: bytes) -> None:
    assert list(JsonLineReader().feed(lines(bad))) == GOOD


def test_settings_of_a_clone_that_cannot_be_read_are_none(bad: bytes, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(bad)
    assert read_settings(path) == {}


def test_settings_with_a_byte_order_mark_are_read_as_the_cli_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_settings(path) == {"a": 1}


def test_session_record_that_cannot_be_read_is_none(bad: bytes, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(bad)
    assert SessionRecord.load(path) is None


def test_wire_bad_document_is_a_fault_of_the_peer(bad: bytes) -> None:
    for parse in (parse_json, _parse):
        with pytest.raises(RemoteProtocolError):
            parse(bad)


def test_wire_byte_of_an_argument_that_is_not_utf8_comes_out_as_it_went_in() -> None:
    document = {"argv": ["caf\udce9"]}
    frame = json_frame(Type.REQUEST, document)
    assert parse_json(frame[frame.index(b"{") :]) == document


def test_pretrust_keeps_half_a_surrogate_pair_of_the_users_file(tmp_path: Path) -> None:
    path = tmp_path / ".claude.json"
    path.write_text('{"tip": "half \\ud83d"}')
    assert pretrust({"HOME": str(tmp_path)}, "/project", print)
    assert json.loads(path.read_bytes())["tip"] == "half \ud83d"


def test_sources_json_from_outside_has_one_reader() -> None:
    """Where `json.loads` may stand: what it reads was checked, or the reader has further rules of its own."""
    allowed = {
        "agents/copilot/post_hook.py",  # runs alone in a hook, and gives up on whatever it cannot read
        "self_test/__main__.py",  # what our own process says
        "self_test/trial.py",  # the same
        "agents/settings_file.py",  # refuses a key that stands twice, and is written back
        "untrusted.py",
    }
    others = ("boss/", "inbox/", "turns/", "testing/", "keeper/hooks.py")
    root = Path(remuda.__file__).parent
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if re.search(r"\bjson\.loads?\(", path.read_text())
    }
    assert {one for one in found if not one.startswith(others)} <= allowed
