"""The screen: what it shows, what it answers, and that its paint is its state."""

from __future__ import annotations

import ctypes
import gc
import json
import re
import weakref
from collections.abc import Iterator
from pathlib import Path

import pyghostty  # type: ignore[import-untyped]
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyghostty import ffi, lib

from remuda.terminal import libghostty
from remuda.terminal.ghostty import GhosttyScreen
from remuda.terminal.libghostty import ENUMS, STRUCTS, Struct
from remuda.terminal.screen import (
    ClipboardWritten,
    Cursor,
    NotificationShown,
    Screen,
    Signals,
    open_screen,
    unavailable_reason,
)

COLS, ROWS = 20, 6


@pytest.fixture
def screen() -> Iterator[GhosttyScreen]:
    screen = GhosttyScreen(COLS, ROWS)
    yield screen
    screen.close()


# --- the binding


def described() -> dict[str, dict[str, object]]:
    types: dict[str, dict[str, object]] = json.loads(libghostty.load().ghostty_type_json())["types"]
    return types


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: str(struct.c_name))
def test_struct_against_library_has_same_layout(struct: type[Struct]) -> None:
    theirs = described()[struct.c_name]
    fields = {name: getattr(struct, name) for name, *_ in struct._fields_}
    assert ctypes.sizeof(struct) == theirs["size"]
    assert {name: (field.offset, field.size) for name, field in fields.items()} == {
        name: (field["offset"], field["size"])
        for name, field in theirs["fields"].items()  # type: ignore[attr-defined]
    }


@pytest.mark.parametrize("name", ENUMS)
def test_enum_against_library_has_same_values(name: str) -> None:
    theirs = described()[name]["values"]
    assert {member.name: member.value for member in ENUMS[name]}.items() <= theirs.items()  # type: ignore[attr-defined]


def test_point_value_against_library_is_the_union_we_pass() -> None:
    types = described()
    coordinate: dict[str, dict[str, int]] = types["GhosttyPointCoordinate"]["fields"]  # type: ignore[assignment]
    assert ctypes.sizeof(libghostty.PointValue) == types["GhosttyPointValue"]["size"]
    for name in ("x", "y"):
        field = getattr(libghostty.PointValue, name)
        assert (field.offset, field.size) == (coordinate[name]["offset"], coordinate[name]["size"])


def test_open_screen_without_library_gives_none_and_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    libghostty.load.cache_clear()
    monkeypatch.setattr(libghostty, "VERSION", "9.9.9")
    try:
        assert open_screen(80, 24) is None
        assert unavailable_reason() == "pyghostty is 0.1.3, not 9.9.9"
    finally:
        monkeypatch.undo()
        libghostty.load.cache_clear()
    assert unavailable_reason() is None


# --- what it shows


def test_lines_after_text_are_all_rows_without_trailing_blanks(screen: Screen) -> None:
    screen.feed("one  \r\n\r\n中文 x".encode())
    assert screen.lines() == ["one", "", "中文 x", "", "", ""]
    assert screen.last_line == "中文 x"


def test_blank_screen_has_blank_lines_and_empty_last_line(screen: Screen) -> None:
    assert screen.lines() == [""] * ROWS
    assert screen.last_line == ""
    assert screen.title == ""


def test_last_line_after_output_and_a_resize_is_the_new_one(screen: Screen) -> None:
    screen.feed(b"one two")
    assert screen.last_line == "one two"
    screen.feed(b" three")
    assert screen.last_line == "one two three"
    screen.resize(8, ROWS)
    assert screen.last_line == "three"


def test_cursor_title_and_screen_follow_the_program(screen: Screen) -> None:
    screen.feed("\x1b]0;✳ Claude\x07\x1b[3;5H\x1b[?25l".encode())
    assert screen.cursor == Cursor(4, 2, visible=False)
    assert screen.title == "✳ Claude"
    assert not screen.alternate
    screen.feed(b"\x1b[?1049h")
    assert screen.alternate


def test_modes_follow_the_program(screen: Screen) -> None:
    screen.feed(b"\x1b[?1h\x1b=\x1b[?1002h\x1b[?1006h\x1b[?1004h\x1b[?2004h\x1b[?2031h\x1b[>5u\x1b[5 q")
    assert screen.modes.dec >= {1, 66, 1002, 1006, 1004, 2004, 2031}
    assert screen.modes.kitty_keyboard == 5
    assert screen.modes.cursor_style == 5
    screen.feed(b"\x1b[?1002l\x1b[<u\x1b[4 q")
    assert 1002 not in screen.modes.dec
    assert (screen.modes.kitty_keyboard, screen.modes.cursor_style) == (0, 4)


def test_resize_of_screen_changes_size_and_lines(screen: Screen) -> None:
    screen.feed(b"abc")
    screen.resize(40, 9)
    assert (screen.cols, screen.rows, len(screen.lines())) == (40, 9, 9)
    screen.take_replies()
    screen.feed(b"\x1b[18t")
    assert screen.take_replies() == b"\x1b[8;9;40t"


def test_size_after_program_asks_for_132_columns_stays(screen: GhosttyScreen) -> None:
    screen.feed(b"\x1b[?40h\x1b[?3h" + b"x" * 200)
    screen.feed(b"\x1b[999;999H")
    assert screen.cursor == Cursor(COLS - 1, ROWS - 1, visible=True)
    assert max(map(len, screen.lines())) <= COLS


# --- what it says back


@pytest.mark.parametrize(
    ("query", "reply"),
    [
        (b"\x1b[c", rb"\x1b\[\?62;22c"),
        (b"\x1b[>c", rb"\x1b\[>\d+;\d+;\d+c"),
        (b"\x1b[>0q", rb"\x1bP>\|remuda\([\d.]+\)\x1b\\"),
        (b"\x1b[?u", rb"\x1b\[\?0u"),
        (b"\x1b[5n", rb"\x1b\[0n"),
        (b"\x1b[2;3H\x1b[6n", rb"\x1b\[2;3R"),
        (b"\x1b[?2026$p", rb"\x1b\[\?2026;2\$y"),
        (b"\x1b[14t", rb"\x1b\[4;96;160t"),
        (b"\x1b[18t", rb"\x1b\[8;6;20t"),
        (b"\x1b]4;1;?\x07", rb"\x1b\]4;1;rgb:[0-9a-f/]+\x07"),
        (b"\x1b]11;#102030\x07\x1b]11;?\x07", rb"\x1b\]11;rgb:1010/2020/3030\x07"),
    ],
)
def test_query_is_answered_once(screen: Screen, query: bytes, reply: bytes) -> None:
    screen.feed(query)
    assert re.fullmatch(reply, screen.take_replies())
    assert screen.take_replies() == b""


@pytest.mark.parametrize("query", [b"\x1b]11;?\x07", b"\x1b_Gi=1,a=q,f=24,s=1,v=1;AAAA\x1b\\", b"\x1b[?996n"])
def test_query_about_what_no_one_knows_is_not_answered(screen: Screen, query: bytes) -> None:
    screen.feed(query)
    assert screen.take_replies() == b""


def test_replies_to_many_queries_are_kept_in_order(screen: Screen) -> None:
    screen.feed(b"\x1b[5n\x1b[6n" * 1000)
    assert screen.take_replies() == b"\x1b[0n\x1b[1;1R" * 1000


def test_signals_are_given_once_and_bounded(screen: Screen) -> None:
    screen.feed(b"\x07\x07\x1b]52;c;aGVsbG8=\x07\x1b]52;p;eA==\x07\x1b]9;body\x07\x1b]777;notify;T;B\x1b\\")
    signals = screen.take_signals()
    assert signals.bells == 2
    assert signals.clipboard[0] == ClipboardWritten("c", b"hello")
    assert signals.notifications == (NotificationShown("", "body"), NotificationShown("T", "B"))
    assert screen.take_signals() == Signals()
    screen.feed(b"\x1b]9;body\x07" * 1000)
    assert len(screen.take_signals().notifications) == 16


# --- rows


def test_styled_row_on_wide_character_at_either_edge_leaves_it_out(screen: Screen) -> None:
    screen.feed("ab中文".encode())
    assert screen.styled_row(0, 20) == "ab中文".encode()
    assert screen.styled_row(0, 3) == b"ab"
    assert screen.styled_row(0, 4) == "ab中".encode()
    assert screen.styled_row(0, 3, left=3) == " 文".encode()
    assert screen.styled_row(0, 2, left=3) == b""
    assert screen.styled_row(0, 5, left=20) == b""


def test_styled_row_is_self_contained(screen: Screen) -> None:
    screen.feed(b"\x1b[1;31mred\x1b[0m \x1b]8;;http://a/\x07link\x1b]8;;\x07\x1b[44m\x1b[K")
    row = screen.styled_row(0, 20)
    assert b"\x1b]8;;http://a/\x1b\\link\x1b]8;;\x1b\\" in row
    assert row.startswith(b"\x1b[0m")
    assert b"\x1b[48;5;4m" + b" " * 12 + b"\x1b[0m" in row
    again = GhosttyScreen(COLS, ROWS)
    again.feed(row)
    assert again.styled_row(0, 20) == row
    again.close()


def test_styled_row_of_erased_cells_keeps_their_background(screen: Screen) -> None:
    screen.feed(b"\x1b[44m\x1b[K\x1b[3G\x1b[48;2;1;2;3m\x1b[2X\x1b[0m\x1b[5G\x1b[K")
    assert screen.styled_row(0, 20) == b"\x1b[0m\x1b[48;5;4m  \x1b[0m\x1b[48;2;1;2;3m  \x1b[0m"
    assert screen.styled_row(1, 20) == b""


def test_styled_row_after_encoded_c1_character_has_no_control(screen: Screen) -> None:
    screen.feed("a\x9b31mb".encode())
    assert not re.search(rb"\xc2[\x80-\x9f]", screen.styled_row(0, 20) + screen.paint())


def test_take_dirty_names_the_rows_that_changed(screen: Screen) -> None:
    screen.take_dirty()
    assert screen.take_dirty() == set()
    screen.feed(b"a")
    screen.take_dirty()
    screen.feed("\u0301\r\n".encode())  # the library itself misses it
    assert 0 in (screen.take_dirty() or set())
    screen.feed(b"\x1b[4;1Hx")
    assert 3 in (screen.take_dirty() or set())
    screen.feed(b"\x1bc")
    assert screen.take_dirty() in (None, set(range(ROWS)))


# --- paint


def numbers(limit: int) -> st.SearchStrategy[str]:
    return st.one_of(st.just(""), st.integers(0, limit).map(str))


def csi(finals: str, limit: int = 24, count: int = 2) -> st.SearchStrategy[bytes]:
    arguments = st.lists(numbers(limit), max_size=count).map(";".join)
    return st.tuples(arguments, st.sampled_from(finals)).map(lambda p: f"\x1b[{p[0]}{p[1]}".encode())


DEC_MODES = (1, 5, 6, 7, 12, 25, 45, 66, 69, 1000, 1002, 1003, 1004, 1006, 1047, 1049, 2004, 2026, 2031)
# No b: behind a cut CSI it would repeat a character, which is carried only if it stands before the cursor.
TEXT = st.text(st.sampled_from("acdxyz 012é中文日🙂\u0301ー"), min_size=1, max_size=30).map(str.encode)
PIECES = st.one_of(
    TEXT,
    st.sampled_from([b"\r\n", b"\n", b"\r", b"\b", b"\t", b"x" * 45]),
    csi("ABCDEFGHIJKLMPSTXZ`adefgr"),
    csi("s", count=2),
    csi("m", 108, 5),
    st.sampled_from([b"\x1b[38;2;1;2;3m", b"\x1b[48;5;99m", b"\x1b[4:3m", b"\x1b[58:5:9m", b"\x1b[0m"]),
    st.tuples(st.sampled_from(DEC_MODES), st.sampled_from("hl")).map(
        lambda m: f"\x1b[?{m[0]}{m[1]}".encode()
    ),
    st.sampled_from([b"\x1b[4h", b"\x1b[4l", b"\x1b[20h", b"\x1b[20l"]),
    st.sampled_from(
        [b"\x1b7", b"\x1b8", b"\x1bD", b"\x1bE", b"\x1bM", b"\x1bH", b"\x1b=", b"\x1b>", b"\x1bc"]
    ),
    st.sampled_from([b"\x1b#8", b"\x1b[!p", b"\x1b(0lqk\x1b(B", b"\x1b)0\x0ex\x0f", b"\x1b[3J", b"\x1b[2J"]),
    st.sampled_from(
        [b"\x1b[>1u", b"\x1b[>5u", b"\x1b[<u", b"\x1b[=3;1u", b"\x1b[>4;2m", b"\x1b[3 q", b"\x1b[6 q"]
    ),
    st.sampled_from(
        [b"\x1b]0;title\x07", b"\x1b]2;\xe2\x9c\xb3 x\x1b\\", b"\x1b]4;3;#123456\x07", b"\x1b]104\x07"]
    ),
    st.sampled_from(
        [b"\x1b]8;;http://x/y\x07", b"\x1b]8;;\x07", b"\x1b]10;#abcdef\x07", b"\x1b]7;file:///t\x07"]
    ),
    st.sampled_from(
        [b"\x1b[", b"\x1b[3", b"\x1b]0;ha", b"\x1bP1$", b"\xe4\xb8", b"\x1b_G", b"\x1b", b"\x18"]
    ),
    st.binary(max_size=6),
)
STREAMS = st.lists(PIECES, max_size=40).map(b"".join)

ASK = (
    b"\x18\x1b[6n\x1b[?u\x1bP$qm\x1b\\\x1bP$qr\x1b\\\x1bP$qs\x1b\\\x1bP$q q\x1b\\\x1b]4;3;?\x07\x1b]10;?\x07"
)
MODES = (
    b"".join(b"\x1b[?%d$p" % mode for mode in DEC_MODES if mode not in (1047, 1049)) + b"\x1b[4$p\x1b[20$p"
)
PROBES = [ASK + MODES, b"\x1b8X" + ASK, b"\x1b[<u\x1b[?u" * 9, b"\x1b[?1049l\x1b[?1047lX" + ASK]
PROBES += [b"\x1b8Y" + ASK, b"\x1b[<u\x1b[?u" * 9, b"\x1b[?6l\x1b[?69l\x1b[r\x1b[H" + b"\t\x1b[6n" * 6]


BEFORE_LINKS = re.compile(rb" +(?=\x1b\[\d+G|$)")


def state(screen: Screen) -> dict[str, object]:
    rows = [screen.styled_row(y, screen.cols) for y in range(screen.rows)]
    return {
        "replies": screen.take_replies(),
        "lines": screen.lines(),
        # A written space and a cell never written look alike.
        "rows": [BEFORE_LINKS.sub(b"", row) for row in rows],
        "cursor": screen.cursor,
        "modes": screen.modes,
        "alternate": screen.alternate,
        "title": screen.title,
    }


@given(before=STREAMS, stale=STREAMS, after=STREAMS)
def test_paint_on_any_terminal_makes_it_equal_for_good(before: bytes, stale: bytes, after: bytes) -> None:
    ours, copy = GhosttyScreen(COLS, ROWS), GhosttyScreen(COLS, ROWS)
    ours.feed(before)
    copy.feed(stale)
    copy.feed(ours.paint())
    ours.take_replies(), copy.take_replies()
    assert state(copy) == state(ours)
    for data in [after, *PROBES]:
        ours.feed(data)
        copy.feed(data)
        assert state(copy) == state(ours), data
    ours.close()
    copy.close()


def colours_of_erased(terminal: pyghostty.Terminal, x: int, y: int) -> object:
    """What a cell shows when it was erased in a colour; the library does not count it as style."""
    cell, tag, rgb = ffi.new("uint64_t*"), ffi.new("int*"), ffi.new("GhosttyColorRgb*")
    lib.ghostty_grid_ref_cell(terminal.ref(x, y), cell)
    lib.ghostty_cell_get(cell[0], lib.GHOSTTY_CELL_DATA_CONTENT_TAG, tag)
    if tag[0] == lib.GHOSTTY_CELL_CONTENT_BG_COLOR_PALETTE:
        index = ffi.new("uint8_t*")
        lib.ghostty_cell_get(cell[0], lib.GHOSTTY_CELL_DATA_COLOR_PALETTE, index)
        return ("palette", index[0])
    if tag[0] == lib.GHOSTTY_CELL_CONTENT_BG_COLOR_RGB:
        lib.ghostty_cell_get(cell[0], lib.GHOSTTY_CELL_DATA_COLOR_RGB, rgb)
        return ("rgb", (rgb.r, rgb.g, rgb.b))
    return None


def is_spacer_head(terminal: pyghostty.Terminal, x: int, y: int) -> bool:
    cell, wide = ffi.new("uint64_t*"), ffi.new("int*")
    lib.ghostty_grid_ref_cell(terminal.ref(x, y), cell)
    lib.ghostty_cell_get(cell[0], lib.GHOSTTY_CELL_DATA_WIDE, wide)
    return bool(wide[0] == lib.GHOSTTY_CELL_WIDE_SPACER_HEAD)


def looks(data: bytes) -> list[object]:
    """Text and style of every cell, read through the package's own binding: none of our code takes part.

    None stands for the one cell whose style is not carried.
    """
    terminal = pyghostty.Terminal(COLS, ROWS)
    terminal.feed(data)
    cells: list[object] = ["\n".join(line.rstrip() for line in terminal.text().split("\n")).rstrip()]
    for y in range(ROWS):
        for x in range(COLS):
            style = terminal.style(x, y)
            style["bg"] = style["bg"] or colours_of_erased(terminal, x, y)
            cells.append(None if is_spacer_head(terminal, x, y) else style)
    terminal.close()
    return cells


@given(STREAMS)
@example(b"\x1b[41m0\x1b[0m\x1b[5G0")
@example(b"\x1b[4mab  \x1b[8Gc\x1b[44m\x1b[K")
def test_paint_of_any_stream_has_the_style_of_every_cell(stream: bytes) -> None:
    screen = GhosttyScreen(COLS, ROWS)
    screen.feed(stream)
    painted = screen.paint()
    screen.close()
    pairs = [pair for pair in zip(looks(painted), looks(stream), strict=True) if None not in pair]
    assert [copy for copy, _ in pairs] == [ours for _, ours in pairs]


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (b"main\x1b[?1049h\x1b[Halt", b"\x1b[?1049lX", "mainX"),
        (b"\x1b(0", b"qqq", "───"),
        (b"\x1b)0\x0e", b"q\x0fq", "─q"),
        (b"ab\x1b[", b"3b", "abbbb"),
        (b"ab\xe4\xb8", b"\xadx", "ab中x"),
        (b"x" * 20, b"y", "x" * 20),
        (b"x" * 20 + b"\x1b[?1047h", b"y", ""),
        (b"\x1b[2;5H\x1b[31m\x1b7\x1b[H\x1b[0m", b"a\x1b8b", "a"),
        (b"\x1b]0;one", b" two\x07x", "x"),
        (b"\x1b[3g\x1b[1;4H\x1bH\x1b[H", b"\tx", "   x"),
        (b"\x1b[2;3r\x1b[?6h", b"x\r\ny\r\nz\x1b[?6l\x1b[r\x1b[Ha", "a"),
    ],
)
def test_paint_between_two_halves_shows_the_whole(before: bytes, after: bytes, shown: str) -> None:
    ours, copy = GhosttyScreen(COLS, ROWS), GhosttyScreen(COLS, ROWS)
    ours.feed(before)
    copy.feed(ours.paint())
    for screen in (ours, copy):
        screen.feed(after)
    assert copy.lines() == ours.lines()
    assert copy.lines()[0] == shown
    assert copy.title == ours.title
    ours.close()
    copy.close()


def test_paint_of_keyboard_flags_carries_the_whole_stack(screen: Screen) -> None:
    screen.feed(b"\x1b[>1u\x1b[>5u\x1b[?1049h\x1b[>3u")
    copy = GhosttyScreen(COLS, ROWS)
    copy.feed(screen.paint())
    flags = []
    for data in (b"", b"\x1b[<u", b"\x1b[?1049l", b"\x1b[<u", b"\x1b[<u"):
        copy.feed(data)
        flags.append(copy.modes.kitty_keyboard)
    assert flags == [3, 0, 5, 1, 0]
    copy.close()


def test_paint_after_long_history_is_as_short_as_after_none(screen: Screen) -> None:
    screen.feed(b"line\r\n" * ROWS)
    short = screen.paint()
    screen.feed(b"line\r\n" * 100_000)
    assert len(screen.paint()) == len(short)


def test_paint_within_sequence_beyond_the_bound_still_paints_the_cells(screen: Screen) -> None:
    screen.feed(b"text\x1b]52;c;" + b"A" * (2 << 20))
    copy = GhosttyScreen(COLS, ROWS)
    copy.feed(screen.paint())
    assert copy.lines() == screen.lines()
    copy.close()


# --- memory


def rss_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs procfs")
def test_memory_over_many_screens_and_paints_stays_flat() -> None:
    def work() -> None:
        for _ in range(20):
            screen = GhosttyScreen(COLS, ROWS)
            for _ in range(10):
                screen.feed(b"\x1b[31mtext\x1b[0m \x1b]8;;u\x07l\x1b]8;;\x07\r\n\x1b[c\x1b[?1049h\x07")
                screen.paint(), screen.take_replies(), screen.take_dirty(), screen.lines()
            screen.close()

    work()
    gc.collect()
    before = rss_kib()
    for _ in range(5):
        work()
    gc.collect()
    assert rss_kib() - before < 2048


def test_screen_without_close_is_freed_with_its_object() -> None:
    screen = GhosttyScreen(COLS, ROWS)
    screen.feed(b"x\x1b[c")
    alive = weakref.ref(screen)
    gc.disable()
    try:
        del screen
        assert alive() is None
    finally:
        gc.enable()
