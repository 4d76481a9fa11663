"""What is the same for every command: refusals, pipes, colours."""

from __future__ import annotations

import os
import pty
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import COMMAND, ORDINARY, Commands, run_to_end, wait_for_connection, watch
from support.heimdall_client import PATIENCE
from support.keeper import output_until


@pytest.mark.parametrize("words", [["status"], ["screen"], ["kill"], ["resize", "80x24"]])
def test_command_on_an_unknown_session_is_refused(remuda: Commands, words: list[str]) -> None:
    command, *more = words
    said = remuda.refused(command, "nope", *more, code=3)
    assert said == "session 'nope' not found; 'remuda ls --all' lists all"


def test_logs_of_an_unknown_session_are_refused(remuda: Commands) -> None:
    assert "session 'nope' not found" in remuda.refused("logs", "nope", code=3)
    assert "session 'nope' not found" in remuda.refused("logs", "--keeper", "nope", code=3)


@pytest.mark.parametrize("command", ["status", "kill"])
def test_command_on_a_dead_session_says_how_it_ended_and_how_to_bring_it_back(
    remuda: Commands, command: str
) -> None:
    run_to_end(remuda, "work", "--", "sh", "-c", "exit 9")
    said = remuda.refused(command, "work", code=6)
    assert said == "session 'work' has ended with exit code 9; 'remuda start work --resume' brings it back"


@pytest.mark.parametrize("command", ["status", "screen", "kill", "logs"])
def test_command_on_a_bad_name_is_refused(remuda: Commands, command: str) -> None:
    assert "'../x' cannot name a session" in remuda.refused(command, "../x", code=4)


def test_attach_without_a_terminal_is_refused_and_says_what_else_there_is(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    said = remuda.refused("attach", "work", code=4)
    assert said.startswith("attach needs a terminal on standard input and output; in a script use ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["foo"], "unknown command 'foo'; 'remuda help' lists the commands"),
        (["attch"], "unknown command 'attch'; did you mean 'attach'?"),
        (["stop"], "unknown command 'stop'; did you mean 'kill'?"),
        (["boss", "start"], "no such command 'start'; did you mean 'up'? usage: remuda boss "),
        (["inbox", "list"], "no such command 'list'; did you mean 'ls'? usage: remuda inbox "),
        (["setup", "inbox"], "no inbox given; name its file: --inbox PATH"),
        (["logs", "x", "-n", "x"], "'x' is not an integer; usage: remuda logs "),
        (["logs", "x", "-n", "-4"], "-4 is less than 0; usage: remuda logs "),
        (["logs", "--since", "5"], "no such option '--since'; usage: remuda logs "),
        (["logs", "--line", "5"], "no such option '--line'; did you mean '--lines'? usage: remuda logs "),
        (["dashboard"], "unknown command 'dashboard'; did you mean 'dash'?"),
        (["help", "snd"], "command or topic 'snd' not found; did you mean 'send'?"),
        (["completion"], "no shell given; for example: remuda completion "),
        (["--bogus"], "no such option"),
        (["ls", "extra"], "got unexpected extra argument (extra); usage: remuda ls"),
    ],
)
def test_command_line_that_is_wrong_is_refused_in_one_line(
    remuda: Commands, words: list[str], said: str
) -> None:
    assert said in remuda.refused(*words, code=2)


@pytest.mark.parametrize("command", ["ls", "clean", "logs"])
def test_folder_that_cannot_be_read_is_an_error_without_a_traceback(remuda: Commands, command: str) -> None:
    remuda.sessions.mkdir(mode=0o000)
    words = [command, "work"] if command == "logs" else [command]
    said = remuda.refused(*words, code=4, prefix=ORDINARY)
    assert "Permission denied" in said
    assert str(remuda.sessions) in said


def test_keeper_that_dies_while_it_is_asked_is_an_error_without_a_traceback(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    keeper = remuda.keeper("work")
    keeper.signal(signal.SIGSTOP)
    asking = remuda.begin("status", "work")
    wait_for_connection(remuda.sessions, asking)
    keeper.signal(signal.SIGKILL)
    out, err = asking.communicate(timeout=PATIENCE)
    keeper.close()
    assert (asking.returncode, out) == (6, b"")
    assert err.startswith(b"remuda: session 'work' has ended: its keeper was killed")
    assert err.count(b"\n") == 1


@pytest.mark.parametrize(
    "words", [["ls"], ["ls", "--json"], ["status", "work"], ["screen", "work"], ["--help"], ["-V"]]
)
def test_broken_pipe_is_silent(remuda: Commands, words: list[str]) -> None:
    remuda.start("work", "--", "sh", "-c", "seq 100; exec cat")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, *words], env=remuda.env, cwd=remuda.cwd, stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def run_with_full_disk(remuda: Commands, *words: str, stream: str = "stdout") -> tuple[int, str]:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, *words],
            env=remuda.env,
            cwd=remuda.cwd,
            stdin=subprocess.DEVNULL,
            check=False,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: full},  # type: ignore[call-overload]
        )
    return done.returncode, (done.stderr or b"").decode()


LOST = "standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize("more", [[], ["--wait"], ["--json"]])
def test_send_whose_output_is_lost_says_that_the_message_was_accepted(
    remuda: Commands, more: list[str]
) -> None:
    remuda.start("work", "--agent", "demo")
    code, complaint = run_with_full_disk(remuda, "send", "work", "hi", *more)
    (message,) = remuda.json("messages", "work")
    assert (code, complaint) == (1, f"remuda: {message['id']} was accepted, but {LOST}")


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_lost_output_of_what_was_done_says_that_it_was_done(remuda: Commands, more: list[str]) -> None:
    start = ("start", "work", "--agent", "demo", "--detach", *more)
    assert run_with_full_disk(remuda, *start) == (1, f"remuda: work was started, but {LOST}")
    code, complaint = run_with_full_disk(remuda, "inbox", "put", "work", "hi", *more)
    (message,) = remuda.json("messages", "work")
    assert (code, complaint) == (1, f"remuda: {message['id']} was accepted, but {LOST}")


HELP_OF_EACH_KIND = [
    ["-V"],
    ["--help"],
    ["ls"],
    ["ls", "--help"],
    ["start", "--help"],
    ["stop-hook", "--help"],
]


@pytest.mark.parametrize("words", HELP_OF_EACH_KIND)
def test_lost_output_is_one_line_and_no_traceback(remuda: Commands, words: list[str]) -> None:
    assert run_with_full_disk(remuda, *words) == (1, f"remuda: {LOST}")


def test_help_is_printed_in_every_encoding(remuda: Commands) -> None:
    remuda.env["PYTHONIOENCODING"] = "ascii"
    assert "--log-filter NAME=LEVEL,?" in remuda("start", "--help").out


def test_lost_error_message_keeps_the_exit_code(remuda: Commands) -> None:
    assert run_with_full_disk(remuda, "show", "zzz", stream="stderr")[0] == 3


@pytest.mark.parametrize(
    ("closed", "words"),
    [
        (closed, words)
        for closed in ("<&-", "<&- >&- 2>&-")
        for words in (["kill", "work"], ["doctor"], ["demo", "--fast"], ["setup"])
        if (closed, words[0]) != ("<&-", "demo")  # it takes 17 s, and the other has the same closed input
    ],
)
def test_closed_standard_streams_change_nothing(remuda: Commands, words: list[str], closed: str) -> None:
    remuda.start("work", "--agent", "demo")
    command = shlex.join([*COMMAND, *words])
    done = subprocess.run(
        ["sh", "-c", f"{command} {closed}"], env=remuda.env, cwd=remuda.cwd, capture_output=True
    )
    assert (b"Traceback" in done.stderr, done.returncode) == (False, 2 if words == ["setup"] else 0)


INTERRUPTED_AT_AN_IMPORT = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
from remuda.__main__ import main
module = sys.argv.pop(1)
sys.meta_path.insert(0, Interrupt())
main()
"""


@pytest.mark.parametrize(
    ("module", "given"),
    [
        ("remuda.oneshot.output", ["ls"]),
        ("remuda.cli.quick", ["ls"]),
        ("remuda.cli.ls", ["ls"]),
        ("remuda.cli.app", ["ls", "--"]),
        ("click", ["ls", "--"]),
    ],
)
def test_interrupt_while_a_command_is_loaded_is_silent(
    remuda: Commands, module: str, given: list[str]
) -> None:
    words = [sys.executable, "-c", INTERRUPTED_AT_AN_IMPORT, module, *given]
    done = subprocess.run(words, env=remuda.env, cwd=remuda.cwd, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, b"", b"")


def test_terminal_without_a_type_gets_no_colours(remuda: Commands) -> None:
    remuda.env["TERM"] = ""
    assert b"\x1b[" not in on_a_terminal(remuda, "help")
    del remuda.env["TERM"]
    assert b"\x1b[" not in on_a_terminal(remuda, "help")


def on_a_terminal(remuda: Commands, *words: str) -> bytes:
    """The same, with its output on a terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *words], env=remuda.env, cwd=remuda.cwd, stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    pieces = []
    try:
        while piece := os.read(master, 65536):
            pieces.append(piece)
    except OSError:  # its last writer is gone
        pass
    os.close(master)
    assert process.wait(PATIENCE) == 0
    return b"".join(pieces)


@pytest.mark.parametrize("words", [["ls"], ["status", "work", "--explain"], ["doctor"], ["screen", "work"]])
def test_colours_are_for_terminals_alone(remuda: Commands, words: list[str]) -> None:
    remuda.start("work", "--", "sh", "-c", r"printf '\033[31mred\033[0m'; exec cat")
    with watch(remuda, "work") as client:
        output_until(client, b"red")
    assert "\x1b" not in remuda(*words).out
    assert b"\x1b[" in on_a_terminal(remuda, *words)


def run_from_a_shell(remuda: Commands, script: str) -> subprocess.CompletedProcess[str]:
    program = f'remuda() {{ {shlex.join(COMMAND)} "$@"; }}; {script}'
    return subprocess.run(
        ["sh", "-c", program], env=remuda.env, cwd=remuda.cwd, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "words", ["ls --json", "status work", "screen work", "inbox status work", "kill work"]
)
def test_command_in_a_folder_that_was_removed_works(remuda: Commands, words: str) -> None:
    remuda.start("work", "--agent", "demo")
    done = run_from_a_shell(remuda, f"mkdir gone && cd gone && rmdir ../gone && remuda {words}")
    assert (done.returncode, done.stderr) == (0, "")
    assert "work" in done.stdout or words == "screen work"


def test_start_in_a_folder_that_was_removed_says_so_and_takes_another(remuda: Commands) -> None:
    gone = "mkdir gone && cd gone && rmdir ../gone && remuda start work -d"
    done = run_from_a_shell(remuda, f"{gone} -- cat")
    assert (done.returncode, done.stderr) == (
        4,
        "remuda: the working folder was removed; change to another folder\n",
    )
    done = run_from_a_shell(remuda, f"{gone} --cwd / -- cat")
    assert (done.returncode, done.stderr) == (0, "")
    assert remuda.json("status", "work")["cwd"] == "/"


@pytest.mark.parametrize("words", ["ls", "status work", "version"])
def test_command_without_standard_output_ends_well(remuda: Commands, words: str) -> None:
    remuda.start("work", "--", "cat")
    done = run_from_a_shell(remuda, f"remuda {words} >&-")
    assert (done.returncode, done.stderr) == (0, "")


def test_session_outlives_the_process_group_that_started_it(remuda: Commands) -> None:
    script = f"{COMMAND[0]} -m remuda start work -d -- cat; kill -HUP 0"
    shell = subprocess.Popen(
        ["sh", "-c", script],
        env=remuda.env,
        cwd=remuda.cwd,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert shell.wait(PATIENCE) == -signal.SIGHUP
    assert remuda.json("status", "work")["alive"]
