"""Facts of real panes: where each is, what runs in it, and which one a process is in."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from remuda.errors import InvalidOptions, TmuxTargetGone
from remuda.tmux.panes import capture, paste
from support.keeper import end_processes, until
from support.tmux_attention import TmuxBench

STAY = "exec sleep 1000"


def test_snapshot_has_all_panes_of_all_sessions_with_their_facts(tmux: TmuxBench, home: Path) -> None:
    tmux.start("work", "other")
    tmux.run("split-window", "-t", "work:0", "-c", str(home), STAY)
    tmux.run("new-window", "-d", "-t", "work:5", "-n", "later", STAY)
    person = tmux.person("work")
    tmux.until(lambda seen: [pane.command for pane in seen.panes.values()].count("sleep") == 2, "sleepers")
    seen = tmux.panes()
    assert tmux.server is not None
    assert (seen.address, seen.server_pid) == (tmux.address, tmux.server.pid)
    assert seen.version in tmux.run("-V")
    places = {pane.address: pane for pane in seen.panes.values()}
    assert sorted(places) == ["other:0.0", "work:0.0", "work:0.1", "work:5.0"]
    split = places["work:0.1"]
    assert (split.cwd, split.is_active, split.is_zoomed, split.is_dead) == (str(home), True, False, False)
    assert split.places[0].is_attached
    assert split.places[0].is_current
    assert not places["work:5.0"].places[0].is_current
    assert not places["other:0.0"].places[0].is_attached
    assert places["work:5.0"].window_name == "later"
    assert tmux.client(person).pane_id == split.id
    assert split.activity > 1_700_000_000
    assert Path(split.tty).is_char_device()
    assert os.path.realpath(f"/proc/{split.pid}/exe").endswith(("sleep", "coreutils", "busybox"))


def test_snapshot_of_a_linked_window_has_the_pane_once_in_two_places(tmux: TmuxBench) -> None:
    tmux.start("work", "other")
    tmux.run("link-window", "-d", "-s", "work:0", "-t", "other:3")
    pane = tmux.pane("work:0")
    found = {(place.session_name, place.window_index, place.is_current) for place in pane.places}
    assert found == {("work", 0, True), ("other", 3, False)}


def test_snapshot_after_a_pane_has_moved_knows_it_by_the_same_id(tmux: TmuxBench) -> None:
    tmux.start("work", "other")
    tmux.run("split-window", "-t", "work:0", STAY)
    before = tmux.pane("work:0.1")
    tmux.run("break-pane", "-d", "-s", before.id, "-t", "other:7")
    after = tmux.panes().panes[before.id]
    assert (after.address, after.pid) == ("other:7.0", before.pid)
    assert after.window_id != before.window_id


def test_snapshot_after_a_pane_was_used_again_has_another_pid(tmux: TmuxBench) -> None:
    tmux.start("work")
    before = tmux.pane("work")
    tmux.run("respawn-pane", "-k", "-t", before.id, STAY)
    tmux.until(lambda seen: seen.panes[before.id].pid != before.pid, "another program")


def test_snapshot_shows_a_dead_pane_and_one_in_copy_mode(tmux: TmuxBench) -> None:
    tmux.start("work", "other")
    tmux.run("set-option", "-g", "remain-on-exit", "on")
    tmux.run("respawn-pane", "-k", "-t", "work", "true")
    tmux.run("copy-mode", "-t", "other")
    tmux.until(lambda _: tmux.pane("work").is_dead, "the dead pane")
    assert tmux.pane("other").in_mode
    assert not tmux.pane("work").in_mode


# ── which pane a process is in ──


def descendant(tmux: TmuxBench, target: str, home: Path, program: str) -> int:
    """A process that the shell in a pane starts: its pid, which it writes down itself."""
    note = home / f"pid-{target.replace(':', '-')}"
    script = home / f"{note.name}.py"
    script.write_text(
        "import os, pathlib, sys, time\n"
        f"def here():\n"
        f"    pathlib.Path('{note}.new').write_text(str(os.getpid()))\n"
        f"    os.rename('{note}.new', '{note}')\n"
        f"    time.sleep(1000)\n"
        f"{program}\n"
    )
    tmux.run("send-keys", "-t", target, f"{sys.executable} {script} &", "Enter")
    until(note.exists, "the process")
    return int(note.read_text())


DEEP = "if os.fork() == 0:\n    os.setsid()\n    here()\nos.wait()"
TERMINAL = "import pty\npid, fd = pty.fork()\nif pid == 0: here()\nos.waitpid(pid, 0)"
ORPHAN = "if os.fork() == 0:\n    time.sleep(0.1)\n    here()"


@pytest.mark.parametrize(
    "program", ["here()", DEEP, TERMINAL, ORPHAN], ids=["child", "own session", "own terminal", "orphan"]
)
def test_of_process_finds_the_pane_of_any_descendant(tmux: TmuxBench, home: Path, program: str) -> None:
    tmux.start("work", "other")
    pid = descendant(tmux, "other", home, program)
    try:
        found = tmux.panes().of_process(pid)
        assert found is not None
        assert found.id == tmux.pane("other").id
        tmux.run("swap-pane", "-s", "work:0.0", "-t", "other:0.0")
        moved = tmux.panes().of_process(pid)
        assert moved is not None
        assert (moved.id, moved.address) == (found.id, "work:0.0")
    finally:
        end_processes([pid])


def test_of_process_whose_program_gave_up_its_terminal_is_found_by_that_program(
    tmux: TmuxBench, home: Path
) -> None:
    tmux.start("work")
    pane = tmux.pane("work")
    script = home / "script.py"
    script.write_text(
        "import fcntl, os, signal, termios, time\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "fcntl.ioctl(0, termios.TIOCNOTTY)\n"
        "print('given up', flush=True)\n"
        "time.sleep(1000)\n"
    )
    tmux.run("respawn-pane", "-k", "-t", pane.id, f"exec {sys.executable} {script}")
    until(lambda: "given up" in capture(tmux.tmux, pane.id), "the program")
    seen = tmux.panes()
    found = seen.of_process(seen.panes[pane.id].pid)
    try:
        assert found is not None
        assert found.id == pane.id
    finally:
        end_processes([seen.panes[pane.id].pid])


def test_of_process_outside_and_gone_is_none(tmux: TmuxBench) -> None:
    tmux.start("work")
    pane = tmux.pane("work")
    found = tmux.panes().of_process(pane.pid)
    assert found is not None
    assert found.id == pane.id
    assert tmux.panes().of_process(os.getpid()) is None
    tmux.run("respawn-pane", "-k", "-t", "work", STAY)
    tmux.until(lambda seen: seen.of_process(pane.pid) is None, "the end of the shell")
    assert tmux.panes().of_process(2**22 + 1) is None


# ── what a pane shows, and pasting into it ──

TAKES = "printf '\\033[?2004h'; stty raw -echo; printf ready; exec cat -v"


def test_capture_gives_the_lines_and_those_above(tmux: TmuxBench) -> None:
    tmux.start("work")
    pane = tmux.pane("work")
    tmux.run("respawn-pane", "-k", "-t", pane.id, "seq 1 40; printf '\\033[31mréd\\033[0m; x'; " + STAY)
    until(lambda: "réd; x" in capture(tmux.tmux, pane.id), "its last line")
    shown = capture(tmux.tmux, pane.id)
    assert len(shown) == 24
    assert "17" not in shown
    assert "17" in capture(tmux.tmux, pane.id, history=1000)
    assert any("\x1b[31m" in line for line in capture(tmux.tmux, pane.id, styled=True))
    with pytest.raises(TmuxTargetGone):
        capture(tmux.tmux, "%99")


def test_paste_is_bracketed_exact_and_leaves_no_buffer(tmux: TmuxBench) -> None:
    tmux.start("work", "other")
    pane = tmux.pane("work")
    tmux.run("set-buffer", "-b", "mine", "the user's own")
    tmux.run("respawn-pane", "-k", "-t", pane.id, TAKES)
    until(lambda: "ready" in capture(tmux.tmux, pane.id)[0], "the program")
    paste(tmux.tmux, pane.id, "a;b #{x} $y é\n-t two".encode())
    until(lambda: any("201~" in line for line in capture(tmux.tmux, pane.id)), "the paste")
    joined = " ".join(" ".join(capture(tmux.tmux, pane.id)).split())
    assert joined == "ready^[[200~a;b #{x} $y M-CM-) -t two^[[201~"
    assert tmux.run("list-buffers", "-F", "#{buffer_name}") == "mine"
    paste(tmux.tmux, pane.id, b"")


def test_paste_of_much_arrives_whole(tmux: TmuxBench, home: Path) -> None:
    tmux.start("work")
    pane = tmux.pane("work")
    data = b"0123456789abcdef" * 20_000
    tmux.run(
        "respawn-pane",
        "-k",
        "-t",
        pane.id,
        f"stty raw -echo; echo ready; head -c {len(data)} > {home}/got; {STAY}",
    )
    until(lambda: "ready" in capture(tmux.tmux, pane.id)[0], "the program")
    paste(tmux.tmux, pane.id, data)
    until(lambda: (home / "got").read_bytes() == data, "all of it")


def test_paste_into_a_pane_that_goes_meanwhile_leaves_no_buffer(tmux: TmuxBench) -> None:
    tmux.start("work", "other")
    pane = tmux.pane("work")
    tmux.run("set-hook", "-g", "after-load-buffer", f"kill-pane -t {pane.id}")
    with pytest.raises(TmuxTargetGone):
        paste(tmux.tmux, pane.id, b"text")
    assert tmux.run("list-buffers") == ""


def test_paste_into_a_pane_that_is_gone_or_dead_is_an_error_and_hurts_no_one(tmux: TmuxBench) -> None:
    tmux.start("work", "other")
    tmux.run("set-option", "-g", "remain-on-exit", "on")
    dead = tmux.pane("work")
    tmux.run("respawn-pane", "-k", "-t", dead.id, "true")
    tmux.until(lambda seen: seen.panes[dead.id].is_dead, "its end")
    for target in (dead.id, "%99"):
        with pytest.raises(TmuxTargetGone):
            paste(tmux.tmux, target, b"text")
    with pytest.raises(InvalidOptions):
        paste(tmux.tmux, "%0 ; kill-server", b"text")
    assert tmux.run("list-buffers") == ""
    assert tmux.run("list-sessions", "-F", "#{session_name}") == "other\nwork"
