"""What feeders post, read into a prompt and its options."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.errors import InputError
from remuda.inbox.inject import read_injected

ZONE = timezone(timedelta(hours=2))
NOW = datetime(2026, 11, 15, 9, 5, tzinfo=ZONE)


def read(document: Any, content_type: str = "application/json") -> tuple[str, dict[str, Any]]:
    prompt, options = read_injected(json.dumps(document).encode(), content_type, NOW)
    return prompt, options


def test_ours_with_all_its_options() -> None:
    document = {
        "prompt": "do it",
        "dedup": "k",
        "delay": 1.5,
        "ttl": "2h30m",
        "from": "me",
        "max_attempts": 3,
        "literal": True,
    }
    options = {
        "dedup": "k",
        "delay": 1.5,
        "ttl": 9000.0,
        "sender": "me",
        "max_attempts": 3,
        "literal": True,
    }
    assert read(document) == ("do it", options)


def test_option_that_is_null_is_none() -> None:
    assert read({"prompt": "x", "dedup": None, "delay": None}) == ("x", {})


@pytest.mark.parametrize("content_type", ["", "application/x-www-form-urlencoded", "application/json"])
def test_json_is_read_whatever_it_is_called(content_type: str) -> None:
    assert read({"prompt": "x"}, content_type)[0] == "x"


@pytest.mark.parametrize("content_type", ["text/plain", "Text/Plain; charset=utf-8"])
def test_text_is_the_prompt_without_its_last_line_end(content_type: str) -> None:
    body = '{"prompt": "é"}\n\n'.encode()
    assert read_injected(body, content_type, NOW) == ('{"prompt": "é"}\n', {})


@pytest.mark.parametrize(
    ("document", "line"),
    [
        ({"channel": "general", "author": "ann"}, "[9:05 AM] #general ann: hi"),
        ({"channel": "#general", "author": "ann"}, "[9:05 AM] #general ann: hi"),
        ({"author": "ann"}, "[9:05 AM] ann: hi"),
        ({}, "[9:05 AM] hi"),
        ({"ts": "2026-11-15T22:30:00.000Z"}, "[12:30 AM] hi"),
        ({"ts": 1794738600000}, "[12:30 PM] hi"),
        # A name cannot pass for a message of someone else.
        (
            {"channel": "a\nb", "author": "ann: x\r\n[9:06 AM] #c boss"},
            "[9:05 AM] #a b ann: x [9:06 AM] #c boss: hi",
        ),
        ({"channel": "\x1b[31m", "author": "ann\x00"}, "[9:05 AM] #[31m ann: hi"),
    ],
)
def test_line_of_a_chat_is_shown_as_heartbeat_shows_it(document: dict[str, Any], line: str) -> None:
    assert read({"content": "hi", **document}) == (line, {})


def test_line_of_a_chat_has_our_options_too() -> None:
    assert read({"content": "hi", "dedup": "k"}) == ("[9:05 AM] hi", {"dedup": "k"})


@pytest.mark.parametrize(
    "document",
    [
        [],
        "x",
        {},
        {"dedup": "k"},
        {"prompt": "x", "content": "y"},
        {"prompt": 1},
        {"prompt": None},
        {"content": " "},
        {"content": ["x"]},
        {"content": "x", "author": 1},
        {"content": "x", "ts": "yesterday"},
        {"content": "x", "ts": 1e300},
        {"prompt": "x", "channel": "general"},
        {"prompt": "x", "dely": 1},
        {"prompt": "x", "command": True},
        {"prompt": "x", "dedup": ""},
        {"prompt": "x", "dedup": 1},
        {"prompt": "x", "from": ""},
        {"prompt": "x", "delay": -1},
        {"prompt": "x", "delay": True},
        {"prompt": "x", "delay": "3x"},
        {"prompt": "x", "delay": "99999999999999999999h"},
        {"prompt": "x", "delay": 1e300},
        {"prompt": "x", "delay": float("inf")},
        {"prompt": "x", "ttl": float("nan")},
        {"prompt": "x", "ttl": 10**400},
        {"prompt": "x", "ttl": 0},
        {"content": "x", "ts": 10**400},
        {"prompt": "x", "max_attempts": 10**400},
        {"prompt": "x", "max_attempts": 0},
        {"prompt": "x", "max_attempts": 1.5},
        {"prompt": "x", "max_attempts": True},
        {"prompt": "x", "literal": 1},
    ],
)
def test_document_that_says_nothing_we_can_do_is_refused(document: Any) -> None:
    with pytest.raises(InputError):
        read(document)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[" * 100000, b'{"prompt": "\xff"}', b'{"prompt": ' + b"1" * 5000]
)
def test_body_that_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(InputError):
        read_injected(body, "application/json", NOW)


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(InputError, match="UTF-8"):
        read_injected(b"\xff", "text/plain", NOW)


@given(st.binary(), st.sampled_from(["text/plain", "application/json"]))
def test_any_body_is_read_or_refused(body: bytes, content_type: str) -> None:
    try:
        message = read_injected(body, content_type, NOW)
    except InputError:
        return
    assert isinstance(message.prompt, str)


_VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers())
_FIELDS = ["prompt", "content", "channel", "author", "ts", "dedup", "delay", "ttl", "from", "max_attempts"]


@given(st.dictionaries(st.sampled_from(_FIELDS), _VALUES))
def test_any_document_is_read_or_refused(document: dict[str, Any]) -> None:
    try:
        read(document)
    except InputError:
        pass
