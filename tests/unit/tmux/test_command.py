"""What is sent to tmux, how its lists are read, and which errors its messages mean: all without a tmux."""

from __future__ import annotations

import pytest

from remuda.errors import (
    LocalProtocolError,
    PermissionRefused,
    RemudaError,
    TmuxError,
    TmuxGone,
    TmuxTargetGone,
    TmuxTooOld,
)
from remuda.tmux.address import Address
from remuda.tmux.command import arguments_of, cut_rows, error_of, literal, row_format


def test_arguments_of_commands_escapes_only_a_last_semicolon() -> None:
    arguments = arguments_of(["a", ";", "b;c", "d\\;"], ["e", "#{f}"])
    assert arguments == ["a", "\\;", "b;c", "d\\\\;", ";", "e", "#{f}"]


@pytest.mark.parametrize("words", [[], [""], ["", "x"], ["x", "a\0b"]], ids=repr)
def test_arguments_of_words_that_tmux_cannot_take_raises(words: list[str]) -> None:
    with pytest.raises(LocalProtocolError):
        arguments_of(words)


def test_literal_doubles_what_begins_a_format() -> None:
    assert literal("#{pane_id} #1") == "##{pane_id} ##1"


@pytest.mark.parametrize(
    ("complaint", "kind"),
    [
        ("no server running on /tmp/x", TmuxGone),
        ("error connecting to /tmp/x (No such file or directory)", TmuxGone),
        ("error connecting to /tmp/x (Connection refused)", TmuxGone),
        ("error connecting to /tmp/x (Permission denied)", PermissionRefused),
        ("server exited unexpectedly", TmuxGone),
        ("lost server", TmuxGone),
        ("protocol version mismatch (client 8, server 7)", TmuxTooOld),
        ("can't find pane: %9", TmuxTargetGone),
        ("can't find client: /dev/pts/1", TmuxTargetGone),
        ("unknown command: nonsense", TmuxError),
        ("", TmuxError),
    ],
)
def test_error_of_what_tmux_says_is_of_its_kind(complaint: str, kind: type[RemudaError]) -> None:
    error = error_of(complaint + "\n", Address("/tmp/x"))
    assert type(error) is kind
    assert complaint in str(error)


# ── rows ──


def test_cut_rows_values_with_anything_in_them_are_kept_apart() -> None:
    fields, mark = ("a", "b"), "7f3a"
    rows = [["", "x\ny"], ["%end 1 2 3", "tab\t: . }"], ["\udcff", "é"]]
    lines = ["".join(f"{mark}:{value}" for value in row) + f"{mark}." for row in rows]
    output = "\n".join(["a hook says", *lines, "and this", ""]).encode("utf-8", "surrogateescape")
    assert cut_rows(output, fields, mark) == rows
    assert row_format(fields, mark) == "7f3a:#{a}7f3a:#{b}7f3a."
    assert cut_rows(b"", fields, mark) == []


def test_cut_rows_of_another_width_is_an_error() -> None:
    with pytest.raises(TmuxError):
        cut_rows(b"7f3a:one7f3a.\n", ("a", "b"), "7f3a")
