"""What a client sends on standard input: whatever it is, the server answers, and goes on."""

from __future__ import annotations

import asyncio
import json

import pytest

from remuda.mcp.server import LINE_BYTES, _Lines, refusal_of

PING = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}'


def lines_of(*pieces: bytes) -> list[bytes | None]:
    async def read() -> list[bytes | None]:
        reader, found = asyncio.StreamReader(), []
        for piece in pieces:
            reader.feed_data(piece)
        reader.feed_eof()
        lines = _Lines(reader)
        while True:
            try:
                found.append(await lines.next())
            except EOFError:
                return found

    return asyncio.run(read())


def test_lines_are_found_wherever_the_pieces_are_cut() -> None:
    data = b"one\n\ntwo\r\nthree"
    for at in range(len(data)):
        assert lines_of(data[:at], data[at:]) == [b"one", b"", b"two\r"]


def test_line_that_is_too_long_is_skipped_and_the_next_is_read() -> None:
    assert lines_of(b"x" * (10 << 20), b"yy\n", PING + b"\n") == [None, PING]
    assert lines_of(b"x" * (LINE_BYTES + 1) + b"\n" + PING + b"\n") == [None, PING]


@pytest.mark.parametrize("line", [b"\0", b"{", b"\xff\xfe", b"nul", b"[" * 100_000, b'{"a": NaN}', b"\0" * 9])
def test_what_is_not_json_gets_an_error(line: bytes) -> None:
    error, message = refusal_of(line)
    assert message is None
    assert error is not None
    assert (error["error"]["code"], error["id"]) == (-32700, None)
    json.dumps(error)


@pytest.mark.parametrize(
    ("line", "number"),
    [
        (b"[]", None),
        (b"1", None),
        (b'{"id": 7}', 7),
        (b'{"jsonrpc": "1.0", "id": "a", "method": "x"}', "a"),
        (b'{"jsonrpc": "2.0", "id": true, "method": 3}', None),
        (b'{"jsonrpc": "2.0", "id": {"x": 1}, "method": "ping"}', None),
    ],
)
def test_what_is_not_a_message_gets_an_error_with_its_id(line: bytes, number: object) -> None:
    error, message = refusal_of(line)
    assert message is None
    assert error is not None
    assert (error["error"]["code"], error["id"]) == (-32600, number)


def test_message_and_empty_line_get_none() -> None:
    assert refusal_of(b" \r") == (None, None)
    error, message = refusal_of(PING)
    assert error is None
    assert message is not None
