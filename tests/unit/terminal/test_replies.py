"""A terminal's answers are told from typing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.terminal.reports import ReplyFilter

ANSWERS = {
    "primary attributes": b"\x1b[?62;22;52c",
    "secondary attributes": b"\x1b[>1;10;0c",
    "kitty flags": b"\x1b[?0u",
    "mode report": b"\x1b[?2026;2$y",
    "ansi mode report": b"\x1b[4;1$y",
    "colour scheme": b"\x1b[?997;1n",
    "device status": b"\x1b[0n",
    "size in cells": b"\x1b[8;24;80t",
    "size in pixels": b"\x1b[4;480;640t",
    "extended cursor": b"\x1b[?3;7R",
    "version": b"\x1bP>|xterm(370)\x1b\\",
    "setting": b"\x1bP1$r0m\x1b\\",
    "termcap": b"\x1bP1+r544e=787465726d\x1b\\",
    "foreground": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    "background, bell": b"\x1b]11;rgb:0000/0000/0000\x07",
    "palette": b"\x1b]4;1;rgb:cccc/0000/0000\x1b\\",
}
KEYS = {
    "up": b"\x1b[A",
    "alt x": b"\x1bx",
    "escape": b"\x1b",
    "shift f3": b"\x1b[1;2R",
    "f5": b"\x1b[15~",
    "paste": b"\x1b[200~text\x1b[201~",
    "mouse": b"\x1b[<0;10;5M",
    "focus": b"\x1b[I",
    "kitty key": b"\x1b[97;5u",
    "control c": b"\x03",
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
def test_strip_answer_between_typing_leaves_the_typing(answer: bytes) -> None:
    assert ReplyFilter().strip(b"ab" + answer + b"cd", 0) == b"abcd"


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
def test_strip_keys_are_left_alone(key: bytes) -> None:
    assert ReplyFilter().strip(b"ab" + key + b"cd", 0) == b"ab" + key + b"cd"


def test_strip_cursor_answer_as_many_as_were_asked_are_dropped() -> None:
    one = ReplyFilter()
    assert one.strip(b"\x1b[1;1R\x1b[2;2R\x1b[1;2R", 2) == b"\x1b[1;2R"
    assert one.strip(b"\x1b[1;2R", 2) == b"\x1b[1;2R"
    assert one.strip(b"\x1b[9;9R", 3) == b""


def test_strip_cursor_answer_to_a_query_never_shown_is_a_key() -> None:
    one = ReplyFilter(answered=5)
    assert one.strip(b"\x1b[1;2R", 5) == b"\x1b[1;2R"


plain = st.binary(max_size=40).filter(lambda data: b"\x1b" not in data)


@given(st.lists(st.sampled_from([*ANSWERS.values()]) | plain, max_size=8))
def test_strip_any_mixture_leaves_exactly_what_is_not_an_answer(pieces: list[bytes]) -> None:
    typed = b"".join(piece for piece in pieces if piece not in ANSWERS.values())
    assert ReplyFilter().strip(b"".join(pieces), 0) == typed


@given(plain, st.integers(0, 5))
def test_strip_without_escapes_changes_nothing(data: bytes, queries: int) -> None:
    assert ReplyFilter().strip(data, queries) == data
