"""The line that a user types: keys, pastes, and what is not text."""

from __future__ import annotations

import pytest

from remuda.agents.acp.line_editor import MOST_CHARACTERS, EditedLine, KeyPress, LineEditor, width

_PASTE = b"\x1b[200~two\rlines\x1b[201~"


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (b"hello", "hello"),
        (b"hellp\x7fo", "hello"),
        (b"one two  \x17", "one "),
        (b"one\x15two", "two"),
        (b"one\x03two", "two"),
        (b"a\x1b[Ab\x1bOPc\x1b[1;5Dd", "abcd"),
        (b"a\x1bb", "ab"),
        (b"a\x00\x01\x1f\tb", "a\tb"),
        ("é 😀".encode(), "é 😀"),
        (_PASTE, "two\nlines"),
        (_PASTE + b"!", "two\nlines!"),
        (b"\x1b[200~\x03\x04\x15x\x1b[201~", "x"),
    ],
)
def test_editor_any_split_gives_the_same_text(typed: bytes, text: str) -> None:
    for at in range(len(typed) + 1):
        editor = LineEditor()
        assert [*editor.feed(typed[:at]), *editor.feed(typed[at:])] == []
        assert editor.text == text


def test_editor_enter_finishes_a_line_and_an_empty_one_is_nothing() -> None:
    editor = LineEditor()
    assert editor.feed(b"\r  \rone\rtwo" + _PASTE + b"\rrest") == [
        EditedLine("one"),
        EditedLine("twotwo\nlines"),
    ]
    assert editor.text == "rest"


def test_editor_control_keys_without_a_line_are_reported() -> None:
    assert LineEditor().feed(b"\x03\x04x\x04") == [KeyPress.INTERRUPT, KeyPress.END]


def test_editor_text_is_bounded() -> None:
    editor = LineEditor()
    editor.text = "x" * (MOST_CHARACTERS - 1)
    editor.feed(b"yz")
    assert len(editor.text) == MOST_CHARACTERS


@pytest.mark.parametrize("columns", [1, 5, 20, 80])
@pytest.mark.parametrize("text", ["", "short", "long " * 40, "漢字" * 30, "a\nb\tc\x1b[31m"])
def test_editor_row_fits_and_commands_no_terminal(text: str, columns: int) -> None:
    editor = LineEditor()
    editor.text = text
    row = editor.row(columns)
    assert row.startswith("❯ ")
    assert "\x1b" not in row
    assert "\n" not in row
    assert sum(map(width, row)) <= max(columns, 5)
