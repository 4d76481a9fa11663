"""Output as lines: what a terminal would have shown, with nothing in it that commands one."""

from __future__ import annotations

import re

import pytest

from remuda.terminal.history_format import Begun, Gap, HistoryEvent, Output, Painted, Resized
from remuda.terminal.history_lines import HistoryLines, PlainTranscript

SGR = re.compile(r"\x1b\[[0-9;:]*m")
SIZE = Begun(0.0, 20, 4)


def lines(*events: HistoryEvent, styled: bool = False, unwrap: bool = True) -> list[str]:
    transcript = HistoryLines(styled=styled, unwrap=unwrap)
    found = [*transcript.take(events), *transcript.rest()]
    transcript.close()
    return found


def shown(data: bytes, **how: bool) -> list[str]:
    return lines(SIZE, Output(data), **how)


def test_lines_come_in_order_with_blank_ones_and_without_those_at_the_end() -> None:
    data = b"one\r\n\r\n\r\ntwo\r\n" + b"".join(b"%d\r\n\r\n" % i for i in range(9)) + b"\r\n\r\n"
    wanted = ["one", "", "", "two", *(one for i in range(9) for one in (str(i), ""))][:-1]
    assert shown(data) == wanted


def test_long_line_is_one_line_and_is_broken_only_where_rows_are_wanted() -> None:
    data = b"a" * 50 + b"\r\n" + b"b" * 100 + b"\r\nend"
    assert shown(data) == ["a" * 50, "b" * 100, "end"]
    assert shown(data, unwrap=False) == ["a" * 20, "a" * 20, "a" * 10, *["b" * 20] * 5, "end"]


def test_what_was_drawn_over_is_shown_as_it_was_at_last() -> None:
    assert shown(b"10%\r20%\r100%\r\ndone\x1b[K") == ["100%", "done"]


def test_output_in_any_pieces_gives_the_same_lines() -> None:
    data = "".join(
        f"\x1b[3{i % 8}mzeile {i} – é🙂\x1b[0m{'x' * (i * 7 % 45)}\r\n" for i in range(40)
    ).encode()
    whole = shown(data, styled=True)
    assert len(whole) == 40
    for size in (1, 3, 7, 64):
        pieces = [Output(data[at : at + size]) for at in range(0, len(data), size)]
        assert lines(SIZE, *pieces, styled=True) == whole


def test_styled_lines_hold_colours_and_no_other_control() -> None:
    hostile = (
        b"\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b]52;c;cm0gLXJm\x07\x1b]8;;http://x/\x07link\x1b]8;;\x07"
        b"\x9b31m\x1bP+q544e\x1b\\\x1b[6n\x1b[5;99H\x1b[?1000h\x07end\r\n"
    )
    found = "\n".join(shown(hostile * 3, styled=True))
    assert "\x1b[" in found
    assert "red" in found
    assert SGR.sub("", found).replace("\n", "").isprintable()


def test_cleared_scrollback_is_still_history() -> None:
    data = b"".join(b"line %d\r\n" % i for i in range(30)) + b"\x1b[H\x1b[2J\x1b[3Jafter"
    found = shown(data)
    assert found[:5] == [f"line {i}" for i in range(5)]
    assert found[-1] == "after"


def test_alternate_screen_comes_after_what_it_covers() -> None:
    assert shown(b"before\r\n\x1b[?1049h\x1b[2J\x1b[HTUI") == ["before", "TUI"]
    assert shown(b"before\r\n\x1b[?1049h\x1b[2J\x1b[HTUI\x1b[?1049lafter") == ["before", "after"]


def test_gap_is_reported_and_a_second_life_begins_on_a_blank_screen() -> None:
    found = lines(SIZE, Output(b"one\x1b[31"), Gap(7), Painted(b"two"), SIZE, Output(b"three"))
    assert found[0] == "one"
    assert "7 bytes of output are missing" in found[1]
    assert found[2:] == ["two", "three"]


def test_resize_loses_no_line() -> None:
    data = b"".join(b"line %d\r\n" % i for i in range(10))
    found = lines(SIZE, Output(data), Resized(10, 8), Output(data), Resized(30, 3), Output(data))
    assert [line for line in found if line] == [f"line {i}" for _ in range(3) for i in range(10)]


def test_follower_is_given_each_line_once_as_soon_as_it_is_complete() -> None:
    transcript = HistoryLines(styled=False, unwrap=True)
    seen: list[str] = []
    for i in range(12):
        seen += transcript.take([SIZE, Output(b"0\r\n")] if i == 0 else [Output(b"%d\r\n" % i)])
        seen += transcript.settled()
        assert seen == [str(one) for one in range(i + 1)]
    seen += transcript.take([Output(b"w" * 30)])
    seen += transcript.settled()
    assert seen[-1] == "11", "a line that is not complete is not given"
    assert [*seen, *transcript.rest()][-1] == "w" * 30


def test_program_that_draws_below_its_cursor_is_followed_by_what_scrolls_off() -> None:
    transcript = HistoryLines(styled=False, unwrap=True)
    seen = [*transcript.take([SIZE, Output(b"one\r\n> \r\nfooter\x1b[2;3H")]), *transcript.settled()]
    assert seen == []
    seen = [
        *transcript.take([Output(b"\x1b[H\x1b[Jone\r\ntwo\r\nthree\r\nfour\r\n> ")]),
        *transcript.settled(),
    ]
    assert seen[0] == "one"


@pytest.mark.parametrize("data", [b"\n" * 40_000, b"\x1b[4S" * 9000], ids=["lines", "scrolling"])
def test_flood_of_blank_lines_is_taken(data: bytes) -> None:
    assert not any(shown(data))


def test_without_an_emulator_text_is_without_sequences() -> None:
    transcript = PlainTranscript()
    events: list[HistoryEvent] = [SIZE, Output(b"\x1b[31mred\x1b[0m\r\nha"), Output(b"lf\x07"), Gap(3)]
    found = [*transcript.take(events), *transcript.rest()]
    assert found[:2] == ["red", "half"]
    assert "3 bytes" in found[2]


RIS, ERASE = b"\x1bc", b"\x1b[H\x1b[2J"


@pytest.mark.parametrize(
    "clear",
    [
        RIS,
        b"\x1b[03J",
        b"\x1b[3;3J",
        b"\x1b\x00c",
        b"\x1b[\x003\x00J",
        b"\x1b[1" + RIS,
        b"\x1b[1\x1b[3J",
        b"\x1b]0;" + RIS,
        b"\x1b[?1049h" + RIS,
        b"\xc3\x1b[3J",
    ],
)
def test_no_way_to_clear_a_terminal_takes_lines_out_of_history(clear: bytes) -> None:
    data = b"".join(b"line %d\r\n" % i for i in range(30)) + clear + b"\x1b\\after\r\n"
    wanted = [f"line {i}" for i in range(26)]
    assert shown(data)[:26] == wanted
    for size in (1, 2, len(data) - 5):
        pieces = [Output(data[at : at + size]) for at in range(0, len(data), size)]
        assert lines(SIZE, *pieces)[:26] == wanted


@pytest.mark.parametrize("clear", [RIS, ERASE, b"\x1b[2J\x1b[H", b"\x1b[H\x1b[J"])
def test_follower_is_given_what_comes_after_a_clear(clear: bytes) -> None:
    transcript = HistoryLines(styled=False, unwrap=True)
    seen: list[str] = []
    for data in (b"one\r\ntwo\r\nthree\r\n", clear, b"four\r\n", b"five\r\n"):
        seen += transcript.take([SIZE, Output(data)] if not seen else [Output(data)])
        seen += transcript.settled()
    assert [*seen, *transcript.rest()] == ["one", "two", "three", "four", "five"]


def test_prompt_that_erases_below_itself_gives_no_line_twice() -> None:
    transcript = HistoryLines(styled=False, unwrap=True)
    seen = [*transcript.take([SIZE, Output(b"one\r\n\r\n\x1b[J$ ")]), *transcript.settled()]
    seen += [*transcript.take([Output(b"\r\x1b[J$ two\r\n")]), *transcript.settled()]
    assert seen == ["one", "", "$ two"]


def test_line_without_an_end_takes_no_memory_without_end() -> None:
    found = lines(SIZE, *[Output(b"x\x1b[9999b" * 50)] * 6)
    assert sum(map(len, found)) == 6 * 50 * 10_000
    assert max(map(len, found)) < 2 << 20
