"""The commands on sessions, as a user runs them: ls, status, screen, logs, resize, kill."""

from __future__ import annotations

import re
import signal
import sys

import pytest

from remuda._version import __version__
from support.commands import SIZER, Commands, run_to_end, until_line, wait_for_connection, watch
from support.heimdall_client import PATIENCE
from support.keeper import Process, output_until, until

# A state that lasts for as long as a test may take on a busy machine.
LIVELY = ("--idle-threshold-ms", "600000")


# ── ls ──


def test_ls_of_nothing_says_how_to_begin(remuda: Commands) -> None:
    assert remuda("ls").out == "no sessions; start one with: remuda start NAME --agent claude\n"
    assert remuda.json("ls") == []


def test_ls_shows_a_row_for_each_session_by_name(remuda: Commands) -> None:
    (remuda.home / "there").mkdir()
    remuda.start(
        "b", "--cwd", str(remuda.home / "there"), *LIVELY, "--", "sh", "-c", "echo the last line; exec cat"
    )
    remuda.start("a", "--", "cat")
    with watch(remuda, "b") as client:
        output_until(client, b"the last line")
    until(lambda: remuda.json("status", "b")["clients"] == 0, "the leave of the one who watched")
    head, first, second = remuda("ls").out.splitlines()
    assert head.split() == ["NAME", "STATE", "SINCE", "AGENT", "WHERE", "CWD", "LAST", "LINE"]
    assert first.split()[:2] == ["a", "idle"]
    assert re.fullmatch(r"b     active  \S+ +simple  kept   ~/there  the last line", second)


def test_ls_json_has_one_document_a_session(remuda: Commands) -> None:
    pid = remuda.start("work", "--", "cat")
    (document,) = remuda.json("ls")
    wanted = {"name": "work", "pid": pid, "alive": True, "argv": ["cat"], "keeper_version": __version__}
    assert wanted.items() <= document.items()


def test_ls_all_shows_the_dead_with_how_they_ended(remuda: Commands) -> None:
    assert run_to_end(remuda, "ended", "--", "sh", "-c", "exit 7") == 7
    remuda.start("crashed", "--", "cat")
    remuda.kill_keeper("crashed")
    remuda.start("alive", "--", "cat")
    assert [one["name"] for one in remuda.json("ls")] == ["alive"]
    rows = {line.split()[0]: line for line in remuda("ls", "--all").out.splitlines()}
    assert rows["ended"].endswith("exit code 7")
    assert "dead" in rows["ended"]
    assert rows["crashed"].endswith("its keeper was killed")


def test_ls_sweeps_the_files_of_a_killed_keeper(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    remuda.kill_keeper("work")
    remuda("ls")
    assert sorted(path.name for path in remuda.sessions.iterdir()) == [
        "work.history",
        "work.json",
        "work.log",
    ]


def test_ls_watch_goes_on_with_the_sessions_and_ends_on_an_interrupt(remuda: Commands) -> None:
    remuda.start("first", "--", "cat")
    watching = remuda.begin("ls", "--watch")
    assert watching.stdout is not None
    assert b"first" in until_line(watching, b"first")
    remuda.start("second", "--", "cat")
    assert b"second" in until_line(watching, b"second")
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=PATIENCE)
    assert (watching.returncode, err) == (0, b"")


# ── status ──


def test_status_reports_state_source_and_terminal(remuda: Commands) -> None:
    pid = remuda.start("work", "--", "sh", "-c", "exec cat 'a b' -")
    lines = dict(line.split(None, 1) for line in remuda("status", "work").out.splitlines())
    assert lines["session"] == "work"
    assert re.fullmatch(r"\w+ for \S+ \(by \w+.*\)", lines["state"])
    assert lines["pid"] == str(pid)
    assert lines["command"] == """sh -c 'exec cat '"'"'a b'"'"' -'"""
    assert lines["terminal"] == "220x50 (latest), 0 watching"


def test_status_explain_shows_every_vote_and_which_decided(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    out = remuda("status", "work", "--explain").out
    assert re.search(r"^ +process +starting +\S+ ago  started$", out, re.MULTILINE)
    assert re.search(r"^ +▶ timing +idle +\S+ ago  silence$", out, re.MULTILINE)
    assert "silence" not in remuda("ls").out  # the last line is empty
    votes = remuda.json("status", "work", "--explain")["votes"]
    assert [(vote["source"], vote["decides"]) for vote in votes] == [("process", False), ("timing", True)]


# ── screen, logs, resize ──


def test_screen_prints_what_is_shown_and_no_more(remuda: Commands) -> None:
    remuda.start("work", "--cols", "40", "--", "sh", "-c", r"printf '\033[31mred\033[0m\nlast'; exec cat")
    with watch(remuda, "work") as client:
        output_until(client, b"last")
    assert remuda("screen", "work").out == "red\nlast\n"
    assert remuda("screen", "work", "--styled").out.startswith("\x1b[")
    shown = remuda.json("screen", "work")
    assert (shown["lines"][:2], shown["cols"]) == (["red", "last"], 40)
    assert (shown["cursor"]["x"], shown["cursor"]["y"]) == (4, 1)


def test_logs_of_the_keeper_print_the_last_lines(remuda: Commands) -> None:
    assert run_to_end(remuda, "work", "--", "true") == 0
    lines = remuda("logs", "--keeper", "work").out.splitlines()
    assert "started pid" in "\n".join(lines)
    assert lines[-1].endswith("exit code 0")
    assert remuda("logs", "--keeper", "work", "-n", "1").out.splitlines() == lines[-1:]
    assert remuda("logs", "--keeper", "work", "-n", "0").out == ""


def test_logs_of_the_keeper_follow_ends_with_the_session(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    following = remuda.begin("logs", "--keeper", "-f", "work")
    until_line(following, b"started pid")
    remuda("kill", "work")
    out, err = following.communicate(timeout=PATIENCE)
    assert out.splitlines()[-1].endswith(b"exit code 143")
    assert (following.returncode, err) == (0, b"")


def test_resize_gives_the_program_its_size(remuda: Commands) -> None:
    remuda.start("work", "--", sys.executable, "-c", SIZER)
    with watch(remuda, "work") as client:
        output_until(client, b"50 220")
        assert remuda("resize", "work", "100x30").out == "work is 100x30\n"
        output_until(client, b"30 100")
    status = remuda.json("status", "work")
    assert (status["cols"], status["rows"]) == (100, 30)


def test_resize_to_what_is_no_size_is_refused(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    for size in ("80", "0x0", "80x-3", "99999x10", "80x24x3", ""):
        remuda.refused("resize", "work", "--", size, code=2)
    assert remuda.json("status", "work")["cols"] == 220


# ── kill ──


def test_kill_ends_the_program_and_says_how(remuda: Commands) -> None:
    process = Process(remuda.start("work", "--", "cat"))
    assert remuda("kill", "work").out == "work ended\n"
    assert process.ended(0)
    process.close()
    assert not (remuda.sessions / "work.sock").exists()


def test_kill_of_several_ends_all_that_there_are(remuda: Commands) -> None:
    for name in ("a", "b"):
        remuda.start(name, "--", "cat")
    done = remuda("kill", "a", "nope", "b", "a", code=3)
    assert done.out.splitlines() == ["a ended", "b ended"]
    assert done.err == "remuda: session 'nope' not found; 'remuda ls --all' lists all\n"


def test_kill_all_ends_every_session(remuda: Commands) -> None:
    for name in ("a", "b", "c"):
        remuda.start(name, "--", "cat")
    assert remuda("kill", "--all").out.count("ended") == 3
    assert remuda.json("ls") == []
    assert remuda("kill", "--all").out == "no sessions\n"


def test_kill_with_no_grace_ends_what_ignores_term_and_all_its_children(remuda: Commands) -> None:
    # The grandchild is in a process session of its own, as an agent's tools are.
    script = "trap '' TERM HUP; setsid sleep 1000 & echo $! > child; echo ready; while :; do read x; done"
    process = Process(remuda.start("work", "--grace", "1000", "--", "bash", "-c", script))
    with watch(remuda, "work") as client:
        output_until(client, b"ready")
    child = Process(int((remuda.cwd / "child").read_text()))
    assert remuda("kill", "--grace", "0", "work").out == "work ended, with SIGKILL\n"
    assert process.ended(0)
    assert child.ended(0)
    process.close()
    child.close()


def test_kill_of_a_session_whose_keeper_hangs_says_what_ends_it(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    keeper = remuda.keeper("work")
    keeper.signal(signal.SIGSTOP)
    try:
        said = remuda.refused("kill", "work", code=7)
    finally:
        keeper.signal(signal.SIGCONT)
        keeper.close()
    assert said.startswith(f"the keeper of 'work' does not answer; 'kill -9 {keeper.pid}' ends it")


def test_kill_of_a_session_whose_keeper_dies_meanwhile_ends_what_is_left(remuda: Commands) -> None:
    process = Process(remuda.start("work", "--", "sh", "-c", "trap '' HUP; exec sleep 1000"))
    keeper = remuda.keeper("work")
    keeper.signal(signal.SIGSTOP)
    killing = remuda.begin("kill", "work")
    wait_for_connection(remuda.sessions, killing)
    keeper.signal(signal.SIGKILL)
    out, err = killing.communicate(timeout=PATIENCE)
    assert (killing.returncode, out, err) == (0, b"work ended 1 processes that were left\n", b"")
    assert process.ended(0)
    keeper.close()
    process.close()


def test_kill_with_an_endless_grace_ends_the_program(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    assert remuda("kill", "--grace", "1000000000", "work").out == "work ended\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["kill"], 2, "no session given; name at least one, or pass --all"),
        (["kill", "--all", "x"], 2, "session names do not go with --all; use one of them"),
        (["kill", "--grace", "-1", "x"], 2, "'-1' is not a time"),
        (["kill", "--grace", "soon", "x"], 2, "'soon' is not a time"),
    ],
)
def test_kill_with_bad_input_is_refused(remuda: Commands, words: list[str], code: int, said: str) -> None:
    assert said in remuda.refused(*words, code=code)
