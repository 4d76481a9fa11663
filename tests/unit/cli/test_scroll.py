"""Where someone is who scrolls back, and what the keys do."""

from __future__ import annotations

import pytest

from remuda.cli.scroll import Scroll, scrolling_key
from remuda.terminal.reports import WheelReader
from remuda.terminal.view import clipped

LINES = [f"line {i}" for i in range(100)]
PAGE_UP, PAGE_DOWN, WHEEL_UP, WHEEL_DOWN = b"\x1b[5~", b"\x1b[6~", b"\x1b[<64;5;5M", b"\x1b[<65;5;5M"


def first(scroll: Scroll) -> str:
    return scroll.page(80)[0].decode()


def test_keys_and_wheel_move_through_the_lines() -> None:
    scroll = Scroll(LINES, 10)
    assert first(scroll) == "line 90"
    for keys, wanted in [
        (PAGE_UP, "line 81"),
        (b"k\x1b[A\x1bOA", "line 78"),
        (WHEEL_UP * 2, "line 72"),
        (WHEEL_DOWN + b"j", "line 76"),
        (PAGE_DOWN, "line 85"),
        (b"g", "line 0"),
        (PAGE_UP + WHEEL_UP + b"k", "line 0"),
        (b"x\r\x1b[200~rm\x1b[201~\x1b[<0;3;3M\x1b[<0;3;3m", "line 0"),
    ]:
        assert scroll.type(keys)
        assert first(scroll) == wanted
    assert (scroll.lines_above, scroll.lines_below) == (0, 90)


@pytest.mark.parametrize(
    "key", [b"q", b"\x1b", b"\x1b[F", b"G", b"\x03", PAGE_DOWN * 2, WHEEL_DOWN * 9, b"j" * 9]
)
def test_leaving_keys_and_the_way_down_return_to_the_session(key: bytes) -> None:
    scroll = Scroll(LINES, 10)
    assert scroll.type(PAGE_UP)
    assert not scroll.type(key)


def test_report_or_key_that_is_cut_waits_for_its_end() -> None:
    for keys in (WHEEL_UP, PAGE_UP):
        for at in range(2, len(keys)):
            scroll = Scroll(LINES, 10)
            assert scroll.type(keys[:at])
            assert first(scroll) == "line 90"
            assert scroll.type(keys[at:])
            assert first(scroll) < "line 90"


def test_resize_keeps_the_place_and_short_history_has_none() -> None:
    scroll = Scroll(LINES, 10)
    scroll.move(-40)
    scroll.resize(20)
    assert scroll.lines_below == 40
    short = Scroll(LINES[:3], 10)
    assert short.type(PAGE_UP)
    assert (short.lines_above, short.lines_below, short.page(80)) == (0, 0, [b"line 0", b"line 1", b"line 2"])


def test_page_up_alone_asks_to_scroll_and_nothing_that_only_holds_it() -> None:
    keys = (PAGE_UP, b"\x1b[5;2~", b"x" + PAGE_UP, PAGE_DOWN, b"")
    assert [scrolling_key(key) for key in keys] == ["plain", "shift", "", "", ""]


def test_wheel_moves_and_other_mouse_reports_are_dropped() -> None:
    wheel = WheelReader()
    assert wheel.take(b"a" + WHEEL_UP * 3 + WHEEL_DOWN + b"\x1b[<0;1;1Mb") == (2, b"ab")
    assert wheel.take(WHEEL_UP[:5]) == (0, b"")
    assert wheel.holds
    assert wheel.take(WHEEL_UP[5:]) == (1, b"")


def test_line_is_cut_to_the_columns_with_its_colours_closed() -> None:
    assert clipped("\x1b[31mred\x1b[0m and more", 5) == "\x1b[31mred\x1b[0m a"
    assert clipped("ab中文\x1b[0m", 5) == "ab中\x1b[0m"


def test_paste_is_dropped_whole_and_none_of_it_is_a_key() -> None:
    pasted = b"\x1b[200~quit\nG \x1b[F\x03" + b"q" * 9 + b"\x1b[201~"
    for at in range(2, len(pasted)):
        scroll = Scroll(LINES, 10)
        assert scroll.type(PAGE_UP)
        assert scroll.type(pasted[:at])
        assert scroll.type(pasted[at:])
        assert not scroll.type(b"q")
