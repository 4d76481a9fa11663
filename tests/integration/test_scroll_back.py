"""Scrolling back while attached, on a real terminal: the program notices nothing, and no output moves it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuda.wire.connection import ClientConnection
from support.attach import COLS, DETACH, PRINTER, ROWS, attach, find_attach, has_bar, is_restored, tell
from support.commands import Commands, watch
from support.keeper import output_until, until
from support.tmux import Pane

WHEEL_UP, WHEEL_DOWN = b"\x1b[<64;5;5M", b"\x1b[<65;5;5M"
PAGE_UP, PAGE_DOWN, SHIFT_PAGE_UP, END = b"\x1b[5~", b"\x1b[6~", b"\x1b[5;2~", b"\x1b[F"
HEIGHT = ROWS - 1
# Prints 200 lines, then everything that is typed, byte by byte, as `cat -v` writes it.
ECHOER = "stty -echo; seq -f 'line %g' 200; stty raw; printf ready; exec cat -v"


def is_at(lines: list[str], first: int) -> bool:
    return lines[:-1] == [f"line {first + i}" for i in range(HEIGHT)] and "q: back" in lines[-1]


def started(remuda: Commands, pane: Pane, *options: str) -> None:
    remuda.start("work", "--cols", str(COLS), "--rows", str(HEIGHT), "--", "bash", "-c", ECHOER)
    attach(pane, *options)
    pane.until_shows("ready")


@pytest.mark.parametrize("leave", [b"q", b"\x1b", END, PAGE_DOWN * 2], ids=["q", "esc", "end", "down"])
def test_page_up_and_wheel_scroll_back_and_nothing_reaches_the_program(
    remuda: Commands, pane: Pane, leave: bytes
) -> None:
    started(remuda, pane)
    pane.send(PAGE_UP)
    pane.until(lambda lines: is_at(lines, 181))  # the last screen begins with 191
    pane.send(WHEEL_UP * 2)
    pane.until(lambda lines: is_at(lines, 175))
    pane.send(b"x\r" + WHEEL_DOWN)
    pane.until(lambda lines: is_at(lines, 178))
    pane.send(b"g")
    pane.until(lambda lines: is_at(lines, 1) and " 0 above" in lines[-1])
    pane.send(b"\x1b[5;2~" + PAGE_DOWN * 17)
    pane.until(lambda lines: is_at(lines, 171))
    pane.send(leave)
    lines = pane.until(has_bar)
    assert lines[HEIGHT - 1] == "ready", "nothing was typed into it"
    pane.send(b"z")
    pane.until(lambda lines: lines[HEIGHT - 1] == "readyz")


def test_new_output_does_not_move_the_view_and_is_there_afterwards(remuda: Commands, pane: Pane) -> None:
    started(remuda, pane)
    pane.send(WHEEL_UP)
    pane.until(lambda lines: is_at(lines, 188))
    with watch(remuda, "work") as client:
        client.send(ClientConnection.input(b"NEW"))
        output_until(client, b"NEW")
    pane.resize(COLS, ROWS + 2)
    pane.until(lambda lines: lines[:2] == ["line 186", "line 187"])
    pane.send(b"q")
    pane.until(lambda lines: has_bar(lines) and "readyNEW" in lines)
    pane.send(WHEEL_UP)
    pane.until(lambda lines: "q: back" in lines[-1])
    pane.send(DETACH)
    pane.until_shows("[detached from session work]")
    assert is_restored(pane)


def test_program_with_a_mouse_of_its_own_keeps_wheel_and_page_up(remuda: Commands, pane: Pane) -> None:
    remuda.start(
        "work", "--", "bash", "-c", r"stty raw -echo; printf '\033[?1000h\033[?1006hready'; exec cat -v"
    )
    attach(pane)
    pane.until_shows("ready")
    pane.send(WHEEL_UP)
    pane.until_shows("^[[<64;5;5M")
    pane.send(PAGE_UP)
    pane.until_shows("^[[5~")
    pane.send(SHIFT_PAGE_UP)
    pane.until_shows("q: back")


def test_alternate_screen_is_scrolled_back_to_what_was_before(remuda: Commands, pane: Pane) -> None:
    full = r"printf '\033[?1049h\033[2J\033[Hfull screen'"
    program = f"stty -echo; seq -f 'line %g' 40; stty raw; {full}; exec cat -v"
    remuda.start("work", "--", "bash", "-c", program)
    attach(pane)
    pane.until_shows("full screen")
    pane.send(PAGE_UP)
    pane.until_shows("^[[5~")
    pane.send(SHIFT_PAGE_UP)
    pane.until(lambda lines: is_at(lines, 21))
    pane.send(b"q")
    pane.until(lambda lines: lines[0].startswith("full screen") and has_bar(lines))


def test_clicks_are_not_typed_and_no_mouse_leaves_the_terminal_its_own(remuda: Commands, pane: Pane) -> None:
    started(remuda, pane)
    pane.until_asked(mouse_any_flag="1")
    pane.send(b"\x1b[<0;3;3M\x1b[<0;3;3ma")
    pane.until(lambda lines: lines[HEIGHT - 1] == "readya")
    pane.send(DETACH)
    pane.until_shows("rc=0")
    attach(pane, "--no-mouse")
    assert pane.ask("mouse_any_flag") == ["0"]
    pane.send(PAGE_UP)
    pane.until_shows("q: back")


def test_read_only_is_marked_in_the_bar_and_can_scroll(remuda: Commands, pane: Pane) -> None:
    started(remuda, pane, "--read-only")
    assert "work (read-only)" in pane.lines()[-1]
    pane.send(PAGE_UP)
    pane.until(lambda lines: "line 190" in lines and "(read-only)" in lines[-1] and "q: back" in lines[-1])


def test_session_without_history_says_that_there_is_none(remuda: Commands, pane: Pane) -> None:
    remuda.start("work", "--history-bytes", "0", "--", "bash", "-c", PRINTER)
    attach(pane)
    pane.until_shows("ready")
    pane.send(PAGE_UP)
    pane.until_shows("no history above")
    tell(remuda, "work", b"still here\n")
    pane.send(b"q")
    pane.until_shows("still here")


SYS_POLL = "7"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="NOT TESTED: knows the numbers of x86-64 only")
def test_scrolling_costs_nothing_while_no_one_turns(remuda: Commands, pane: Pane) -> None:
    started(remuda, pane)
    pane.send(PAGE_UP)
    pane.until(lambda lines: is_at(lines, 181))
    process = find_attach(pane)

    def waits_long() -> bool:
        """Whether it waits for something to come, or for the next second of its bar."""
        call = Path(f"/proc/{process.pid}/syscall").read_text().split()
        return call[0] == SYS_POLL and int(call[3], 16) >= 500

    until(waits_long, "rest")
    tell(remuda, "work", b"x")
    until(lambda: "x" in remuda("screen", "work").out, "its output")
    until(waits_long, "rest after output")
    process.close()
