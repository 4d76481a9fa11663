"""The format of a session's history: what is written is read, whatever is cut or damaged."""

from __future__ import annotations

import pytest

from remuda.terminal import history_format
from remuda.terminal.history_format import (
    MAGIC,
    Begun,
    Gap,
    HistoryEvent,
    HistoryParser,
    Kind,
    Output,
    Painted,
    Position,
    Resized,
)
from remuda.wire.frames import frame

EVENTS: list[HistoryEvent] = [
    Begun(1700000000.5, 80, 24),
    Output(b"one\r\n\x00\xff"),
    Resized(100, 30),
    Gap(1 << 40),
    Painted(b"\x1b[2Jx"),
    Output(b""),
]
DATA = b"".join(
    [
        MAGIC,
        history_format.begun_record(1700000000.5, 80, 24),
        frame(Kind.OUTPUT, b"one\r\n\x00\xff"),
        history_format.resized_record(100, 30),
        history_format.gap_record(1 << 40),
        history_format.painted_record(b"\x1b[2Jx"),
        frame(Kind.OUTPUT, b""),
    ]
)


def parse(*pieces: bytes) -> tuple[list[HistoryEvent | Position], HistoryParser]:
    parser = HistoryParser()
    return [event for piece in pieces for event in parser.feed(piece)], parser


def test_records_split_at_any_byte_are_the_same_events() -> None:
    for at in range(len(DATA) + 1):
        events, parser = parse(DATA[:at], DATA[at:])
        assert events == EVENTS
        assert not parser.damaged
        assert parser.pending_bytes == 0


def test_record_that_is_cut_is_left_out_and_the_rest_is_read() -> None:
    whole = 0
    for at in range(len(DATA)):
        events, parser = parse(DATA[:at])
        assert events == EVENTS[: len(events)]
        assert len(events) >= whole
        whole = len(events)
        assert not parser.damaged


@pytest.mark.parametrize(
    "damage",
    [
        b"\x02\xff\xff\xff\xff",
        frame(history_format.Kind.RESIZED, b"xxx"),
        frame(history_format.Kind.GAP, b""),
    ],
    ids=["length", "size", "gap"],
)
def test_damage_ends_the_file_and_is_reported(damage: bytes) -> None:
    events, parser = parse(DATA + damage + DATA[len(MAGIC) :], DATA)
    assert events == EVENTS
    assert parser.damaged


def test_file_of_another_kind_is_damaged_and_unknown_records_are_skipped() -> None:
    assert parse(b"#!/bin/sh\necho no\n")[1].damaged
    events, parser = parse(MAGIC + frame(99, b"later") + frame(Kind.OUTPUT, b"x"))
    assert (events, parser.damaged) == ([Output(b"x")], False)


def test_screen_too_large_for_a_record_is_left_out() -> None:
    assert history_format.painted_record(bytes((1 << 20) + 1)) == b""
