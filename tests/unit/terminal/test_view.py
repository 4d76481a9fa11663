"""The view: what it draws is the session and the bar, whatever the program sends and whatever the sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remuda.terminal.ghostty import GhosttyScreen
from remuda.terminal.reports import Area, MouseTranslator
from remuda.terminal.screen import ClipboardWritten, NotificationShown
from remuda.terminal.view import LEAVE, ScreenView, bar_text

COLS, ROWS = 20, 6
BAR = ("work", "idle")


class Attached:
    """A session's screen, the view of it, and a terminal that the view draws on."""

    def __init__(self, cols: int = COLS, rows: int = ROWS + 1, *, bar: bool = True) -> None:
        self.session = GhosttyScreen(COLS, ROWS)
        self.outer = GhosttyScreen(cols, rows)
        self.view = ScreenView(self.session, cols, rows, bar=bar)
        self.outer.feed(self.view.enter())
        self.draw()

    def draw(self) -> bytes:
        drawn = self.view.render(*BAR)
        self.outer.feed(drawn)
        return drawn

    def run(self, data: bytes) -> bytes:
        self.session.feed(data)
        return self.draw()

    def close(self) -> None:
        self.session.close()
        self.outer.close()


@pytest.fixture
def attached() -> Iterator[Attached]:
    attached = Attached()
    yield attached
    attached.close()


def expected(attached: Attached) -> list[str]:
    """What the outer terminal should show, from the session's cells and not by way of the view."""
    session, area = attached.session, attached.view.area
    probe = GhosttyScreen(attached.outer.cols, max(area.rows, 1))
    probe.feed(b"\x1b[?7l")
    for i in range(area.rows):
        row = session.styled_row(area.top + i, area.cols, area.left)
        probe.feed(b"\x1b[%d;1H%b" % (i + 1, row))
    lines = probe.lines()[: area.rows]
    probe.close()
    return lines


def check(attached: Attached) -> None:
    """The session's part, blank margins, the bar, and the cursor where the program has it."""
    lines, area = attached.outer.lines(), attached.view.area
    assert lines[: area.rows] == expected(attached)
    assert not any(lines[area.rows : -1])
    assert lines[-1] == bar_text(*BAR, attached.outer.cols).rstrip()
    cursor, shown = attached.session.cursor, attached.outer.cursor
    if shown.visible:
        assert (shown.x, shown.y) == (cursor.x - area.left, cursor.y - area.top)
    assert shown.visible == cursor.visible


BREAKERS = {
    "full reset": b"\x1bc",
    "margins over the bar": b"\x1b[1;7r\n\n\n\n\n\n\n\n",
    "margins": b"\x1b[2;3r\x1b[3;1H\n\n\n",
    "erase all": b"\x1b[2J",
    "erase history": b"\x1b[3J",
    "alternate screen": b"\x1b[?1049h",
    "and back": b"\x1b[?1049h\x1b[?1049l",
    "alignment test": b"\x1b#8",
    "cursor far away": b"\x1b[999;999Hx",
    "line feeds": b"\n" * 50,
    "origin mode": b"\x1b[2;4r\x1b[?6h\x1b[99;1Hx",
    "wrap at the end": b"\x1b[6;20Hxyz",
    "no wrap": b"\x1b[?7l\x1b[6;20Hxyz",
    "insert": b"\x1b[4habc\x1b[1;1Hdef",
    "scroll down": b"\x1b[T\x1b[3T",
    "index at the bottom": b"\x1b[6;1H\x1bD\x1bD",
    "reverse index": b"\x1b[H\x1bM\x1bM",
    "132 columns": b"\x1b[?40h\x1b[?3h",
    "soft reset": b"\x1b[!p",
    "title": b"\x1b]0;evil\x07",
    "unfinished": b"abc\x1b]0;never",
    "size request": b"\x1b[8;50;100t\x1b[4;1;1t",
    "left and right margins": b"\x1b[?69h\x1b[3;5sabcdefgh",
    "hidden cursor": b"\x1b[?25l",
    "wide characters": "中文字".encode() * 20,
    "coloured erase": b"\x1b[41m\x1b[2J\x1b[3;3Hx",
}


@pytest.mark.parametrize("size", [(COLS, ROWS + 1), (9, 4), (40, 12), (20, 2), (1, 3)], ids=str)
@pytest.mark.parametrize("breaker", BREAKERS)
def test_bar_after_sequence_that_would_break_it_is_intact(breaker: str, size: tuple[int, int]) -> None:
    attached = Attached(*size)
    attached.run(b"one\r\ntwo\r\nthree")
    attached.run(BREAKERS[breaker])
    check(attached)
    attached.run(b"more\r\ntext")
    check(attached)
    attached.close()


PIECES = st.one_of(
    st.text(st.sampled_from("abc é中文"), min_size=1, max_size=30).map(str.encode),
    st.sampled_from(sorted(BREAKERS.values())),
    st.tuples(st.integers(0, 30), st.integers(0, 30), st.sampled_from("ABCDHJKLMPSTXr@")).map(
        lambda p: f"\x1b[{p[0]};{p[1]}{p[2]}".encode()
    ),
    st.sampled_from(
        [b"\x1b[31m", b"\x1b[44m", b"\x1b[7m", b"\x1b[0m", b"\x1b]8;;http://x\x07", b"\x1b]8;;\x07"]
    ),
    st.binary(max_size=5),
)


@given(
    st.lists(st.lists(PIECES, max_size=8).map(b"".join), max_size=6), st.integers(1, 30), st.integers(2, 12)
)
@example([b"\x1b[6;20H", "中".encode()], 19, 5)
@example([b"a", "\u0300".encode()], 2, 2)
def test_view_of_any_stream_on_any_size_shows_session_and_bar(
    feeds: list[bytes], cols: int, rows: int
) -> None:
    attached = Attached(cols, rows)
    for data in feeds:
        attached.run(data)
        check(attached)
    attached.close()


@given(st.lists(PIECES, max_size=20).map(b"".join), st.lists(PIECES, max_size=8).map(b"".join))
def test_view_drawn_in_steps_equals_view_drawn_at_once(before: bytes, after: bytes) -> None:
    stepwise, at_once = Attached(), Attached()
    stepwise.run(before)
    stepwise.run(after)
    at_once.session.feed(before)
    at_once.run(after)
    for y in range(ROWS + 1):
        assert stepwise.outer.styled_row(y, COLS) == at_once.outer.styled_row(y, COLS)
    stepwise.close()
    at_once.close()


# --- the short way for an echo


class Echoing(Attached):
    """Attached as a client that passes on what it may, and enters it into its screen in time."""

    def __init__(self, cols: int = COLS, rows: int = ROWS + 1) -> None:
        self.owed = b""
        self.room = 0
        super().__init__(cols, rows)

    def draw(self) -> bytes:
        drawn = super().draw()
        self.room = self.view.room()
        return drawn

    def run(self, data: bytes) -> bytes:
        if len(data) <= self.room and not data.translate(None, PRINTABLE):
            self.room -= len(data)
            self.owed += data
            self.outer.feed(data)
            return data
        self.enter()
        return super().run(data)

    def enter(self) -> bool:
        owed, self.owed = self.owed, b""
        self.session.feed(owed)
        return not owed or self.view.wrote(owed)


PRINTABLE = bytes(range(0x20, 0x7F))
KEYS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=4).map(str.encode)


def assert_same_picture(one: Attached, other: Attached) -> None:
    for y in range(one.outer.rows):
        assert one.outer.styled_row(y, one.outer.cols) == other.outer.styled_row(y, one.outer.cols)
    assert one.outer.cursor == other.outer.cursor


@given(
    st.lists(st.one_of(KEYS, KEYS, st.just(b""), PIECES), max_size=25),
    st.integers(1, 30),
    st.integers(2, 12),
)
@example([b"ab", b"c", b"", b"d", b"\r", b"e"], COLS, ROWS + 1)
@example([b"\x1b[4h\x1b[1;1H", b"x", b"y"], COLS, ROWS + 1)
@example(["中文".encode(), b"\r", b"x"], COLS, ROWS + 1)
@example(["中文".encode(), b"\x1b[2G", b"x"], COLS, ROWS + 1)
@example([b"\x1b[1$}", b"swallowed"], COLS, ROWS + 1)
@example([b"\x1bN", b"x"], COLS, ROWS + 1)
def test_picture_with_echoes_passed_through_equals_the_drawn_one(
    feeds: list[bytes], cols: int, rows: int
) -> None:
    echoing, drawing = Echoing(cols, rows), Attached(cols, rows)
    for data in feeds:  # nothing is what a quiet moment brings
        if data:
            echoing.run(data)
            drawing.run(data)
        else:
            echoing.enter()
            echoing.draw()
    echoing.enter()
    echoing.draw()
    assert_same_picture(echoing, drawing)
    check(echoing)
    echoing.close()
    drawing.close()


def test_echo_at_the_end_of_a_line_is_passed_through_and_draws_nothing_more() -> None:
    attached = Echoing()
    attached.run("❯ ".encode())
    for key in (b"l", b"s", b" ", b"-l"):
        assert attached.run(key) == key
    assert attached.enter()
    assert attached.draw() == b""
    check(attached)
    attached.close()


@pytest.mark.parametrize(
    "before",
    [
        b"\x1b[1m",
        b"\x1b[4h",
        b"\x1b(0",
        b"\x1b]8;;http://x\x07",
        b"\x1b[?69h\x1b[1;5s",
        b"\x1b[?2026h",
        b"\x1b[?25l",
        b"\x1b[1;20H",
        b"\x1b[1;20Hx",
        b"\x1b[",
        b"\xe4\xb8",
        "中\x1b[2G".encode(),
        "中\r".encode(),
    ],
)
def test_no_room_for_an_echo_where_it_could_look_otherwise(attached: Attached, before: bytes) -> None:
    assert attached.view.room() == COLS - 1
    attached.run(before)
    assert attached.view.room() == 0


def test_room_for_an_echo_ends_before_the_last_column_shown() -> None:
    clipped = Attached(9, 4)
    clipped.run(b"abc")
    assert clipped.view.room() == 5
    clipped.run(b"\x1b(B\x1b[m")  # how many programs leave a style
    assert clipped.view.room() == 5
    clipped.close()


def test_echo_that_the_screen_took_otherwise_is_drawn_over() -> None:
    attached = Echoing()
    attached.run(b"\x1b[1$}")  # text goes to a status line that is not shown
    attached.run(b"x")
    assert attached.outer.lines()[0] == "x"
    assert not attached.enter()
    attached.draw()
    assert attached.outer.lines()[0] == ""
    check(attached)
    attached.close()


# --- what is written


def test_render_without_change_is_empty(attached: Attached) -> None:
    attached.run(b"text")
    assert attached.draw() == b""


def test_render_after_one_character_draws_one_row(attached: Attached) -> None:
    attached.run(b"\x1b[3;1Hsome text")
    drawn = attached.run(b"x")
    assert drawn == b"\x1b[?25l\x1b[3;1H\x1b[Ksome textx\x1b[3;11H\x1b[?25h"


def test_render_after_cursor_move_only_moves_the_cursor(attached: Attached) -> None:
    attached.run(b"text")
    assert attached.run(b"\x1b[2;3H") == b"\x1b[2;3H"
    assert attached.run(b"\x1b[?25l") == b"\x1b[?25l"
    assert attached.run(b"\x1b[?25h") == b"\x1b[2;3H\x1b[?25h"


def test_render_of_many_rows_is_one_synchronized_update(attached: Attached) -> None:
    drawn = attached.run(b"\x1b[2J\x1b[Ha\r\nb\r\nc")
    assert drawn.startswith(b"\x1b[?25l\x1b[?2026h")
    assert drawn.endswith(b"\x1b[?25h\x1b[?2026l")


def test_render_of_other_bar_draws_only_the_bar(attached: Attached) -> None:
    drawn = attached.view.render("work", "thinking")
    assert drawn == b"\x1b[?25l\x1b[7;1H\x1b[7mwork        thinking\x1b[0m\x1b[1;1H\x1b[?25h"


def test_view_without_bar_uses_all_rows() -> None:
    attached = Attached(COLS, ROWS, bar=False)
    attached.run(b"\x1b[6;1Hlast")
    assert attached.outer.lines()[-1] == "last"
    attached.close()


def test_resize_of_terminal_draws_everything_anew(attached: Attached) -> None:
    attached.run(b"text")
    attached.outer.resize(30, 5)
    attached.outer.feed(b"\x1b[2J")
    attached.view.resize(30, 5)
    attached.draw()
    check(attached)


def test_resize_of_session_draws_its_new_size(attached: Attached) -> None:
    attached.run(b"\x1b[6;1Hlow")
    attached.session.resize(10, 3)
    attached.draw()
    check(attached)


def test_clipped_view_of_session_that_shrinks_uses_all_its_rows() -> None:
    attached = Attached(COLS, 4)
    attached.run(b"\x1b[6;1Hlow")
    assert attached.view.area.top == 3
    attached.session.resize(COLS, 4)
    attached.draw()
    assert attached.view.area == Area(left=0, top=1, cols=COLS, rows=3)
    check(attached)
    attached.close()


def test_terminal_of_the_view_never_wraps(attached: Attached) -> None:
    attached.outer.feed(b"\x1b[?7$p")
    assert attached.outer.take_replies() == b"\x1b[?7;2$y"


def test_clipped_view_follows_the_cursor_and_comes_back() -> None:
    attached = Attached(10, 4)
    attached.run(b"\x1b[1;1Htop\x1b[6;20H")
    assert attached.view.area == Area(left=10, top=3, cols=10, rows=3)
    attached.run(b"\x1b[H")
    assert attached.view.area == Area(left=0, top=0, cols=10, rows=3)
    assert attached.outer.lines()[0] == "top"
    attached.close()


@pytest.mark.parametrize(
    ("left", "right", "cols", "text"),
    [
        ("work", "idle", 12, "work    idle"),
        ("work", "idle", 9, "work idle"),
        ("work", "idle", 7, "work id"),
        ("work", "idle", 3, "wor"),
        ("中文", "x", 6, "中文 x"),
        ("中文", "", 3, "中 "),
        ("a\x1b[2Jb\n", "", 8, "a [2Jb  "),
        ("", "", 0, ""),
    ],
)
def test_bar_text_has_exactly_the_columns(left: str, right: str, cols: int, text: str) -> None:
    assert bar_text(left, right, cols) == text


# --- modes


def test_modes_of_the_program_reach_the_terminal_and_leave_undoes_them(attached: Attached) -> None:
    attached.run(
        b"\x1b[?1h\x1b=\x1b[?1002h\x1b[?1004h\x1b[?2004h\x1b[?2031h\x1b[>5u\x1b[6 q\x1b]0;\xe2\x9c\xb3 t\x07"
    )
    outer = attached.outer.modes
    assert outer.dec == {1, 66, 1002, 1004, 1006, 2004, 2031}
    assert (outer.kitty_keyboard, outer.cursor_style) == (5, 6)
    assert attached.outer.title == "✳ t"
    attached.run(b"\x1b[?1002l\x1b[=1;1u\x1b>")
    assert attached.outer.modes.dec == {1, 1004, 2004, 2031}
    assert attached.outer.modes.kitty_keyboard == 1
    attached.outer.feed(attached.view.leave())
    assert attached.outer.modes.dec == {1007}
    assert attached.outer.modes.kitty_keyboard == 0


def test_wheel_sends_arrows_only_on_the_alternate_screen(attached: Attached) -> None:
    assert 1007 not in attached.outer.modes.dec
    attached.run(b"\x1b[?1049h")
    assert 1007 in attached.outer.modes.dec
    attached.run(b"\x1b[?1049l")
    assert 1007 not in attached.outer.modes.dec


def test_leave_restores_main_screen_and_cursor_and_comes_once() -> None:
    session, outer = GhosttyScreen(COLS, ROWS), GhosttyScreen(COLS, ROWS)
    outer.feed(b"shell$ \x1b[?1049h\x1b[?1049l")
    fresh = (outer.lines(), outer.cursor, outer.modes)
    view = ScreenView(session, COLS, ROWS, bar=True)
    assert view.leave() == b""
    outer.feed(view.enter())
    session.feed(b"\x1b[?25l\x1b[?1003h\x1b[>1u\x1b[4 q\x1b[?1049htext")
    outer.feed(view.render())
    leaving = view.leave()
    outer.feed(leaving)
    assert (outer.lines(), outer.cursor, outer.modes) == fresh
    assert leaving.endswith(LEAVE)
    assert view.leave() == b""


def test_synchronized_update_of_the_program_is_seen(attached: Attached) -> None:
    held = [attached.view.held]
    attached.run(b"\x1b[?2026h")
    held.append(attached.view.held)
    assert held == [False, True]
    assert 2026 not in attached.outer.modes.dec


def test_signals_of_the_program_are_passed_on_once(attached: Attached) -> None:
    attached.run(b"\x07\x07\x1b]52;c;aGk=\x07\x1b]9;done\x07\x1b]777;notify;T;B\x07")
    signals = attached.outer.take_signals()
    assert signals.bells == 1
    assert signals.clipboard == (ClipboardWritten("c", b"hi"),)
    assert signals.notifications == (NotificationShown("", "done"), NotificationShown("T", "B"))
    assert attached.draw() == b""


def test_view_asks_the_terminal_nothing(attached: Attached) -> None:
    attached.run(b"\x1b[c\x1b[6n\x1b[>0q\x1b[?u\x1b]11;?\x07" + b"".join(BREAKERS.values()))
    assert attached.outer.take_replies() == b""


# --- mouse

AREA = Area(left=10, top=3, cols=10, rows=3)
ALL = frozenset({1000, 1002, 1006})


@pytest.mark.parametrize(
    ("report", "modes", "translated"),
    [
        (b"\x1b[<0;1;1M", ALL, b"\x1b[<0;11;4M"),
        (b"a\x1b[<64;10;3Mb\x1b[<65;2;2M", ALL, b"a\x1b[<64;20;6Mb\x1b[<65;12;5M"),
        (b"\x1b[<0;1;4M", ALL, b""),  # the bar
        (b"\x1b[<0;11;1M", ALL, b""),  # a margin
        (b"\x1b[<35;1;4M", ALL, b""),  # a bare move
        (b"\x1b[<32;1;4M", ALL, b"\x1b[<32;11;6M"),  # a drag over the bar
        (b"\x1b[<0;99;99m", ALL, b"\x1b[<0;20;6m"),  # a release on it
        (b"\x1b[<0;1;1M", frozenset({1000}), b"\x1b[M +$"),
        (b"\x1b[<0;1;1m", frozenset({1000}), b"\x1b[M#+$"),
        (b"\x1b[<2;1;1M", frozenset({1000, 1015}), b"\x1b[34;11;4M"),
        (b"\x1b[<0;1;1M", frozenset({1000, 1016}), b"\x1b[<0;1;1M"),
        (b"\x1b[<0;1;1M", frozenset(), b"\x1b[<0;1;1M"),
        (b"\x1b[A\x1b[1;5C\x1bOP\x1b[200~x", ALL, b"\x1b[A\x1b[1;5C\x1bOP\x1b[200~x"),
    ],
)
def test_mouse_report_is_moved_and_encoded_for_the_session(
    report: bytes, modes: frozenset[int], translated: bytes
) -> None:
    assert MouseTranslator().translate(report, AREA, modes) == translated
    for cut in range(len(report)):
        halves = MouseTranslator()
        parts = [halves.translate(part, AREA, modes) for part in (report[:cut], report[cut:])]
        if re.search(rb"\x1b\[?\Z", report[:cut]):
            continue  # no one can tell a key from the start of a report here
        assert b"".join(parts) == translated


def test_mouse_report_beyond_the_oldest_encoding_is_dropped() -> None:
    wide = Area(0, 0, 300, 300)
    assert MouseTranslator().translate(b"\x1b[<0;224;1M", wide, frozenset({1000})) == b""


def test_escape_key_is_not_held_back() -> None:
    assert MouseTranslator().translate(b"\x1b", AREA, ALL) == b"\x1b"
    assert MouseTranslator().translate(b"\x1b[", AREA, ALL) == b"\x1b["


def test_view_translates_input_by_what_it_shows() -> None:
    attached = Attached(10, 4)
    attached.run(b"\x1b[?1000h\x1b[?1006h\x1b[6;20H")
    assert attached.view.translate_input(b"x\x1b[<0;1;1My") == b"x\x1b[<0;11;4My"
    attached.close()
