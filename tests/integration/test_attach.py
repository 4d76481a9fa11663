"""Attach on a real terminal: what is shown, what is typed, and the terminal as it was on every way out."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from remuda.keeper.client import KeeperClient
from remuda.wire.connection import ClientConnection
from support.attach import (
    COLS,
    DETACH,
    PRINTER,
    REMUDA,
    ROWS,
    attach,
    find_attach,
    has_bar,
    is_restored,
    tell,
)
from support.commands import COMMAND, SIZER, Commands
from support.heimdall_client import PATIENCE
from support.keeper import output_until, until
from support.tmux import Pane, Tmux


@pytest.fixture
def tmux(remuda: Commands) -> Iterator[Tmux]:
    with Tmux(remuda.env, remuda.cwd, COLS, ROWS) as server:
        yield server


@pytest.fixture
def pane(tmux: Tmux) -> Pane:
    first = tmux.first()
    first.until_shows("$")
    return first


def size_of(remuda: Commands, name: str) -> tuple[int, int]:
    found = remuda.json("status", name)
    return found["cols"], found["rows"]


# ── what is shown ──


def test_attach_shows_the_screen_and_a_bar(remuda: Commands, pane: Pane) -> None:
    remuda.start("work", "--", "sh", "-c", "echo one; echo two; exec cat")
    attach(pane)
    lines = pane.until(lambda lines: lines[:2] == ["one", "two"])
    assert lines[2:-1] == [""] * (ROWS - 3)
    assert pane.ask("alternate_on") == ["1"]


@pytest.mark.parametrize(("typed", "shown"), [("", "two"), ("2", "one"), ("first", "one")])
def test_attach_without_a_name_asks_which_of_several(
    remuda: Commands, pane: Pane, typed: str, shown: str
) -> None:
    remuda.start("first", "--", "sh", "-c", "echo one; exec cat")
    remuda.start("second", "--", "sh", "-c", "echo two; exec cat")
    pane.enter(f"{REMUDA} attach")
    lines = pane.until_shows("Attach to number or name [1]:")
    assert [line.split() for line in lines if line.strip()[:1].isdigit()] == [["1", "second"], ["2", "first"]]
    pane.enter(typed)
    pane.until(lambda lines: lines[0] == shown)


def test_attach_types_into_the_program_and_shows_its_answer(remuda: Commands, pane: Pane) -> None:
    remuda.start("work", "--", "sh", "-c", "stty -echo; echo ready; while read x; do echo [$x]; done")
    attach(pane)
    pane.until_shows("ready")
    pane.enter("hello")
    assert pane.until_shows("[hello]")[:2] == ["ready", "[hello]"]
    pane.type("no enter")
    pane.enter(" yet")
    pane.until_shows("[no enter yet]")


@pytest.mark.parametrize(
    "key", [DETACH, b"\x1b[92;5u", b"\x1b[27;5;92~"], ids=["byte", "csi-u", "modify-other"]
)
def test_attach_leaves_on_the_detach_key_in_every_encoding(remuda: Commands, pane: Pane, key: bytes) -> None:
    remuda.start("work", "--", "cat")
    attach(pane)
    pane.send(key)
    lines = pane.until_shows("rc=0")
    assert "[detached from session work]" in lines
    assert is_restored(pane)
    assert remuda.json("status", "work")["alive"]
    assert remuda("screen", "work").out == "", "nothing of the key reached the program"


def test_attach_with_another_detach_key_passes_the_usual_one_on(remuda: Commands, pane: Pane) -> None:
    config = remuda.home / "xdg" / "remuda" / "remuda.toml"
    config.parent.mkdir(parents=True)
    config.write_text("detach_key = 1\n")
    remuda.start("work", "--", "sh", "-c", "stty raw -echo; echo ready; exec cat -v")
    pane.enter(f"XDG_CONFIG_HOME={remuda.home}/xdg {REMUDA} attach work; echo rc=$?")
    pane.until_shows("Ctrl-A detaches")
    pane.until_shows("ready")
    pane.send(DETACH)
    pane.until_shows("^\\")
    pane.send(b"\x01")
    pane.until_shows("rc=0")


def test_bar_of_a_narrow_terminal_shows_the_key_alone_and_no_half_word(remuda: Commands, pane: Pane) -> None:
    remuda.start("work-on-the-engine", "--", "cat")
    attach(pane, name="work-on-the-engine")
    pane.resize(40, 8)
    pane.until(lambda lines: re.search(r"^ work-on-the-engine +[a-z]+ \w+  Ctrl-\\$", lines[-1]) is not None)


def test_attach_gives_the_program_the_size_above_the_bar_and_follows_the_window(
    remuda: Commands, pane: Pane
) -> None:
    remuda.start("work", "--", sys.executable, "-c", SIZER)
    attach(pane)
    pane.until_shows(f"{ROWS - 1} {COLS}")
    pane.resize(90, 20)
    lines = pane.until(lambda lines: "19 90" in lines and has_bar(lines))
    assert len(lines) == 20
    pane.resize(50, 8)
    pane.until(lambda lines: "7 50" in lines and has_bar(lines))


def test_attach_without_a_bar_uses_every_row(remuda: Commands, pane: Pane) -> None:
    remuda.start("work", "--", sys.executable, "-c", SIZER)
    pane.enter(f"{REMUDA} attach --no-bar work; echo rc=$?")
    lines = pane.until_shows(f"{ROWS} {COLS}")
    assert not any("Ctrl-" in line for line in lines)


@pytest.mark.parametrize(
    "attack",
    [
        r"\033c",
        r"\033[1;999r\033[999;999H\n\n\n",
        r"\033[2;4r\033[?6h\033[99;99H\n\n",
        r"\033[999;999Hx\033[999;999Hyyyy",
        r"\033[2J\033[H",
        r"\033[?1049h\033[2J\033[999;1Hlow",
        r"\033#8",
        r"\033[!p\033[?25l",
        r"\033[99S\033[99T\033[99L\033[99M",
    ],
    ids=["ris", "decstbm", "origin", "999", "clear", "alternate", "decaln", "softreset", "scroll"],
)
def test_bar_stays_intact_whatever_the_program_sends(remuda: Commands, pane: Pane, attack: str) -> None:
    remuda.start("work", "--", "bash", "-c", PRINTER)
    attach(pane)
    pane.until_shows("ready")
    tell(remuda, "work", f"{attack}\n".encode())
    tell(remuda, "work", rb"\033[2;3HEND" + b"\n")
    pane.until_shows("END")
    shown = [line.rstrip() for line in remuda.json("screen", "work")["lines"]]
    pane.until(lambda lines: has_bar(lines) and lines[:-1] == shown)


def test_flood_while_attached_ends_with_the_session_s_own_screen(remuda: Commands, pane: Pane) -> None:
    remuda.start("work", "--", "sh", "-c", "read go; seq 200000; exec cat")
    attach(pane)
    pane.enter("")
    pane.until(lambda lines: "200000" in lines)
    shown = [line.rstrip() for line in remuda.json("screen", "work")["lines"]]
    pane.until(lambda lines: has_bar(lines) and lines[:-1] == shown)


def test_bar_reports_the_state_as_it_changes(remuda: Commands, pane: Pane) -> None:
    remuda.start("work", "--idle-threshold-ms", "600000", "--", "cat")
    attach(pane)
    pane.until(lambda lines: " idle " in lines[-1])
    pane.enter("x")
    pane.until(lambda lines: " active " in lines[-1])


# ── several at once ──


def test_two_attached_see_the_same_and_the_last_to_type_has_the_size(
    remuda: Commands, tmux: Tmux, pane: Pane
) -> None:
    remuda.start("work", "--", "cat")
    attach(pane)
    other = tmux.another(40, 9)
    other.until_shows("$")
    attach(other)
    until(lambda: remuda.json("status", "work")["clients"] == 2, "two clients")
    until(lambda: size_of(remuda, "work") == (40, 8), "the size of the second")
    pane.enter("from the first")
    for one in (pane, other):
        one.until(lambda lines: lines[:2] == ["from the first"] * 2)
    until(lambda: size_of(remuda, "work") == (COLS, ROWS - 1), "the size of the first")


def test_read_only_sees_all_types_nothing_and_never_resizes(remuda: Commands, tmux: Tmux, pane: Pane) -> None:
    remuda.start("work", "--", "cat")
    attach(pane)
    watcher = tmux.another(52, 9)
    watcher.until_shows("$")
    attach(watcher, "--read-only")
    watcher.enter("not to be seen")
    watcher.resize(46, 7)
    watcher.until(lambda lines: len(lines) == 7 and has_bar(lines))
    process = find_attach(watcher)
    process.signal(signal.SIGINT)
    process.close()
    pane.enter("typed")
    for one in (pane, watcher):
        one.until(lambda lines: lines[:2] == ["typed"] * 2)
    assert remuda("screen", "work").out == "typed\ntyped\n"
    assert size_of(remuda, "work") == (COLS, ROWS - 1)
    watcher.send(DETACH)
    watcher.until_shows("rc=0")


# ── every way out ──


@pytest.mark.parametrize("code", [0, 7])
def test_attach_ends_with_the_exit_code_of_the_session(remuda: Commands, pane: Pane, code: int) -> None:
    remuda.start("work", "--", "sh", "-c", f"read go; exit {code}")
    attach(pane)
    pane.enter("")
    lines = pane.until_shows(f"rc={code}")
    assert f"[session work exited with code {code}]" in lines
    assert is_restored(pane)


def test_start_of_a_quick_command_shows_what_it_said_and_its_exit_code(remuda: Commands, pane: Pane) -> None:
    pane.enter(f"{REMUDA} start quick -- sh -c 'echo so be $((40 + 2)); exit 3'; echo rc=$?")
    lines = pane.until_shows("rc=3")
    assert lines.index("so be 42") < lines.index("[session quick exited with code 3]")


def test_session_that_drew_on_the_alternate_screen_leaves_nothing_of_it(remuda: Commands, pane: Pane) -> None:
    remuda.start("work", "--", "sh", "-c", r"printf '\033[?1049hpicture'; read go; exit 0")
    attach(pane)
    pane.until_shows("picture")
    pane.enter("")
    lines = pane.until_shows("rc=0")
    assert not [line for line in lines if "picture" in line]


def test_attach_killed_for_sure_leaves_the_session_and_a_new_one_paints_the_same(
    remuda: Commands, tmux: Tmux, pane: Pane
) -> None:
    script = r"printf '\033[31mred\033[0m plain\n\033[?1049h\033[2J\033[3;5Hmiddle\033[7;1H'; exec cat"
    remuda.start("work", "--", "sh", "-c", script)
    attach(pane)
    pane.until_shows("middle")
    pane.enter("typed")
    before = pane.until(lambda lines: lines.count("typed") == 2)
    process = find_attach(pane)
    process.kill()
    process.close()
    other = tmux.another(COLS, ROWS)
    other.until_shows("$")
    attach(other)
    other.until(lambda lines: lines[:-1] == before[:-1])
    other.until_asked(cursor_y="8")
    other.enter("more")
    other.until(lambda lines: lines.count("more") == 2)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGTERM, "[terminated]"),
        (signal.SIGQUIT, "[terminated]"),
        (signal.SIGHUP, "[terminal closed]"),
    ],
)
def test_attach_that_is_asked_to_end_restores_the_terminal(
    remuda: Commands, pane: Pane, number: signal.Signals, said: str
) -> None:
    # A program that has switched on all there is.
    modes = r"printf '\033[?1049h\033[?25l\033[?1000h\033[?2004h\033[?1h\033=\033[>1u\033]2;mine\007'"
    remuda.start("work", "--", "sh", "-c", f"{modes}; exec cat")
    pane.enter("stty -a > before; echo done")
    pane.until(lambda lines: "done" in lines)
    title = pane.ask("pane_title")
    attach(pane)
    pane.until_asked(pane_title="mine")
    process = find_attach(pane)
    process.signal(number)
    process.close()
    assert said in pane.until_shows("rc=0")
    assert is_restored(pane)
    assert pane.ask("pane_title", "keypad_flag", "keypad_cursor_flag") == [*title, "0", "0"]
    pane.enter("stty -a > after; echo done again")
    pane.until(lambda lines: "done again" in lines)
    assert (remuda.cwd / "before").read_text() == (remuda.cwd / "after").read_text()


def test_attach_whose_keeper_is_killed_says_so_and_restores_the_terminal(
    remuda: Commands, pane: Pane
) -> None:
    remuda.start("work", "--", "cat")
    attach(pane)
    remuda.kill_keeper("work")
    assert "[the keeper of session work has ended]" in pane.until_shows("rc=7")
    assert is_restored(pane)
    pane.enter("echo still $((1 + 1)) here")
    pane.until_shows("still 2 here")


def test_attach_whose_terminal_vanishes_ends_without_a_word(remuda: Commands) -> None:
    remuda.start("work", "--", "sh", "-c", "while :; do echo flood; done")
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "attach", "work"],
        env=remuda.env,
        cwd=remuda.cwd,
        stdin=slave,
        stdout=slave,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(slave)
    seen = b""
    while b"Ctrl-" not in seen:
        assert select.select([master], [], [], PATIENCE)[0]
        seen += os.read(master, 65536)
    os.close(master)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, b"")
    assert remuda.json("status", "work")["alive"]


# ── what is typed ahead ──


def test_typing_ahead_of_attach_is_not_lost_and_not_doubled(remuda: Commands, pane: Pane) -> None:
    remuda.start("work", "--", "sh", "-c", "stty -echo; echo ready; while read x; do echo [$x]; done")
    until(lambda: "ready" in remuda("screen", "work").out, "the program")
    pane.send(f"{REMUDA} attach work; echo rc=$?\rahead\r".encode())
    lines = pane.until_shows("[ahead]")
    assert [line for line in lines if "ahead" in line] == ["[ahead]"]
    pane.send(DETACH)
    pane.until_shows("rc=0")


def test_start_from_a_terminal_attaches_with_its_size(remuda: Commands, pane: Pane) -> None:
    pane.enter(f"{REMUDA} start work -- bash -c 'stty size; exec cat'; echo rc=$?")
    pane.until(lambda lines: has_bar(lines) and lines[0] == f"{ROWS - 1} {COLS}")
    pane.send(DETACH)
    pane.until_shows("rc=0")


def test_program_started_inside_tmux_does_not_take_itself_to_be_there(remuda: Commands, pane: Pane) -> None:
    pane.enter("echo outside=${TMUX:+set}")
    pane.until_shows("outside=set")
    pane.enter(f"{REMUDA} start work -- bash --norc --noprofile; echo rc=$?")
    pane.until(has_bar)
    pane.enter("echo inside=[$TMUX$TMUX_PANE] term=$TERM session=$REMUDA_SESSION")
    pane.until_shows("inside=[] term=xterm-256color session=work")


# ── raw, and refusals ──


def test_attach_raw_passes_everything_through_and_cleans_up(remuda: Commands, pane: Pane) -> None:
    script = r"""printf '\033[?1049h\033[?1000h\033[?25l'; exec "$0" "$@" """
    remuda.start("work", "--", "sh", "-c", script, sys.executable, "-c", SIZER)
    pane.enter(f"{REMUDA} attach --raw work; echo rc=$?")
    lines = pane.until_shows(f"{ROWS} {COLS}")
    assert not any("Ctrl-" in line for line in lines)
    pane.until_asked(alternate_on="1", cursor_flag="0", mouse_any_flag="1")
    pane.send(DETACH)
    pane.until_shows("rc=0")
    assert is_restored(pane)


@pytest.mark.parametrize("command", ["attach", "attach --raw"])
def test_attach_to_its_own_session_is_refused(remuda: Commands, command: str) -> None:
    remuda.start("work", "--", "sh", "-c", f"{REMUDA} {command} work; echo rc=$?; exec cat")
    with KeeperClient.connect("work", remuda.sessions) as client:
        client.send(ClientConnection.subscribe())
        output_until(client, b"rc=2")
    said = "remuda: cannot attach: this terminal is session 'work' itself; attach from another terminal"
    assert said in remuda("screen", "work").out


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [("nope", 3, "remuda: session 'nope' not found"), ("../x", 4, "remuda: '../x' cannot name a session")],
)
def test_attach_to_what_is_not_there_is_refused_and_touches_no_terminal(
    remuda: Commands, pane: Pane, name: str, code: int, said: str
) -> None:
    pane.enter(f"clear; {REMUDA} attach {name}; echo rc=$?")
    lines = pane.until_shows(f"rc={code}")
    assert any(line.startswith(said) for line in lines)
    assert is_restored(pane)
