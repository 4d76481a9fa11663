"""`remuda launch` and heartbeat-launch, as they are installed and as scripts and people run them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest

from remuda.agents.claude.launch import IDENTITY_VARIABLES
from remuda.testing.real_cli import PlainTerminal
from support.keeper import AWAKE, Process, end_processes

LAUNCH = [str(Path(sys.executable).with_name("heartbeat-launch"))]
AS_REMUDA = [str(Path(sys.executable).with_name("remuda")), "launch"]
PATIENCE = 30.0
# Starts one below itself, one in a process session of its own and one whose parent is gone; tells their pids.
FAMILY = "sleep 600 & echo $!; setsid sleep 600 & echo $!; (setsid sleep 600 & echo $!); echo up; "


class Done(NamedTuple):
    code: int
    out: str
    err: str


Begin: TypeAlias = "Callable[..., subprocess.Popen[bytes]]"


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts heartbeat-launch beside the test."""
    begun: list[subprocess.Popen[bytes]] = []

    def one(*words: str, **more: Any) -> subprocess.Popen[bytes]:
        # Anyone who runs the tests may have some signals ignored, and that is inherited.
        argv = ["env", "--default-signal=HUP,INT,TERM", *more.pop("prefix", ()), *LAUNCH, *words]
        given: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "cwd": tmp_path}
        begun.append(subprocess.Popen(argv, stderr=subprocess.PIPE, **{**given, **more}))
        return begun[-1]

    yield one
    for process in begun:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=PATIENCE)


def launch(
    *words: str, env: Mapping[str, str] | None = None, program: Sequence[str] = LAUNCH, **more: Any
) -> Done:
    """Run it to its end."""
    done = subprocess.run(
        [*program, *words],
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        **more,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def lines_until(process: subprocess.Popen[bytes], last: str) -> list[str]:
    """What it printed before this line."""
    assert process.stdout is not None
    found: list[str] = []
    while line := process.stdout.readline():
        if line.decode().strip() == last:
            return found
        found.append(line.decode().strip())
    raise AssertionError(f"{last!r} was not printed: {found}")


def family(process: subprocess.Popen[bytes]) -> list[Process]:
    return [Process(int(line)) for line in lines_until(process, "up") if line.isdigit()]


def all_ended(processes: list[Process]) -> bool:
    ended = [process.ended() for process in processes]
    for process in processes:
        process.close()
    return all(ended)


# ── what it runs ──


@pytest.mark.parametrize("program", [LAUNCH, AS_REMUDA], ids=["heartbeat-launch", "remuda-launch"])
def test_launch_prints_what_the_program_prints_and_ends_with_it(program: list[str], tmp_path: Path) -> None:
    done = launch("--", "echo", "hello", "a b", program=program, cwd=tmp_path)
    assert (done.code, done.out) == (0, "hello a b\r\n")
    called = "heartbeat-launch" if program == LAUNCH else "remuda launch"
    assert done.err == f"{called}: spawning echo hello 'a b' in {tmp_path} with 3600s timeout\n"


@pytest.mark.parametrize(
    ("script", "code"), [("exit 1", 1), ("exit 123", 123), ("exit 124", 123), ("exit 137", 123)]
)
def test_launch_ends_with_the_programs_code_up_to_123(script: str, code: int) -> None:
    assert launch("--", "sh", "-c", script).code == code


@pytest.mark.parametrize(("program", "code"), [(LAUNCH, 1), (AS_REMUDA, 123)], ids=["heartbeat", "remuda"])
def test_launch_of_a_program_that_a_signal_ends_has_the_code_of_its_name(
    program: list[str], code: int
) -> None:
    assert launch("--", "sh", "-c", "kill -9 $$", program=program).code == code


def test_launch_runs_in_the_folder_that_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    done = launch("--cwd", "link", "--", "pwd", "-L", cwd=tmp_path)
    assert (done.code, done.out.strip()) == (0, str(tmp_path.resolve() / "real"))


def test_launch_gives_a_terminal_of_50_rows_and_200_columns() -> None:
    assert launch("--", "sh", "-c", "[ -t 1 ] && echo tty || echo notty").out == "tty\r\n"
    assert launch("--", "stty", "size").out == "50 200\r\n"


def test_launch_words_after_the_command_are_the_commands_own() -> None:
    assert launch("echo", "--timeout", "x", "--", "--help").out == "--timeout x -- --help\r\n"


def test_launch_hides_the_identity_of_the_agent_it_runs_in() -> None:
    given = dict.fromkeys(IDENTITY_VARIABLES, "theirs")
    kept = {"CLAUDE_EFFORT": "high", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "TMUX": "x", "TERM": "vt100"}
    found = dict(line.split("=", 1) for line in launch("--", "env", env={**given, **kept}).out.splitlines())
    assert {"CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_CHILD_SESSION", "CLAUDE_CODE_ENTRYPOINT",
            "CLAUDE_CODE_EXECPATH", "AI_AGENT"} <= given.keys()  # fmt: skip
    assert not given.keys() & found.keys()
    assert {**kept, "PATH": os.environ["PATH"]}.items() <= found.items()


def test_launch_lifts_the_block_cap_unless_the_user_set_one() -> None:
    asked = ("--", "sh", "-c", "echo $CLAUDE_CODE_STOP_HOOK_BLOCK_CAP")
    assert launch(*asked).out == "0\r\n"
    assert launch(*asked, env={"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": "20"}).out == "20\r\n"


# ── what it refuses ──


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--"],
        ["--timeout", "soon", "--", "true"],
        ["--timeout", "-1", "--", "true"],
        ["--max-idle-retries", "-1", "--", "true"],
        ["--no-such-flag", "--", "true"],
        ["--idle-prompt", "one\ntwo", "--", "true"],
        ["--idle-prompt", "\x1b[201~", "--", "true"],
    ],
)
def test_launch_of_a_bad_command_line_ends_with_2_and_one_line(words: list[str]) -> None:
    done = launch(*words)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith("heartbeat-launch: ")
    assert "remuda" not in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cwd", "/no/such", "--", "true"], "heartbeat-launch: working folder /no/such does not exist"),
        (["--cwd", "/etc/passwd", "--", "true"], "working folder /etc/passwd is not a folder"),
        (["--", "no-such-program"], "no-such-program: command not found"),
        (["--", "/etc/passwd"], "/etc/passwd: not an executable file"),
        (["--exit-signal", "/dev", "--", "true"], "cannot remove the old exit signal /dev"),
    ],
)
def test_launch_of_what_cannot_be_run_ends_with_1_and_says_why(words: list[str], said: str) -> None:
    done = launch(*words)
    assert (done.code, done.out) == (1, "")
    assert said in done.err


# ── its limit ──


def test_launch_at_its_timeout_kills_the_program_and_all_that_it_started(begin: Begin) -> None:
    process = begin("--timeout", "8", "--", "sh", "-c", f"trap '' TERM HUP; {FAMILY} sleep 600")
    started = family(process)
    assert process.wait(PATIENCE) == 124
    assert all_ended(started)


def test_launch_without_a_timeout_says_so() -> None:
    done = launch("--timeout", "0", "--", "true")
    assert done.code == 0
    assert done.err.endswith(" with no timeout\n")


def test_launch_times_out_though_no_one_reads_its_output(begin: Begin) -> None:
    assert begin("--timeout", "1", "--", "yes").wait(PATIENCE) == 124


def test_launch_spares_what_its_own_process_started_before(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "script").write_text('sleep 600 & echo $!; exec "$@"')
    process = begin("--timeout", "8", "--", "sh", "-c", "echo up; sleep 600", prefix=["sh", "script"])
    (stranger,) = family(process)
    assert process.wait(PATIENCE) == 124
    assert stranger.alive
    stranger.close()
    assert not end_processes([stranger.pid])


# ── the exit-signal file ──


def test_launch_is_ended_by_the_exit_signal_and_removes_it(begin: Begin, tmp_path: Path) -> None:
    process = begin("--exit-signal", "done", "--", "sh", "-c", "echo up; read line")
    lines_until(process, "up")
    (tmp_path / "done").touch()
    assert process.wait(PATIENCE) == 0
    assert not (tmp_path / "done").exists()


def test_launch_removes_a_stale_exit_signal_before_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "done").touch()
    done = launch("--exit-signal", "done", "--", "sh", "-c", "[ -e done ] || exit 5", cwd=tmp_path)
    assert done.code == 5


def test_launch_sees_an_exit_signal_in_a_folder_that_comes_later(begin: Begin, tmp_path: Path) -> None:
    process = begin("--exit-signal", "a/b/done", "--", "sh", "-c", f"{FAMILY} read line")
    started = family(process)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "done").touch()
    assert process.wait(PATIENCE) == 0
    assert all_ended(started)


def test_launch_kills_a_program_that_does_not_heed_the_exit_signal(begin: Begin, tmp_path: Path) -> None:
    script = f"trap '' TERM HUP; {FAMILY} while :; do read line; sleep 600; done"
    process = begin("--exit-signal", "done", "--", "sh", "-c", script)
    started = family(process)
    (tmp_path / "done").touch()
    assert process.wait(PATIENCE) == 0
    assert all_ended(started)


def test_launch_lets_the_program_say_goodbye_at_the_exit_signal(begin: Begin, tmp_path: Path) -> None:
    process = begin(
        "--exit-signal", "done", "--", "sh", "-c", f"trap 'echo bye; exit' TERM HUP; echo up; {AWAKE}"
    )
    lines_until(process, "up")
    (tmp_path / "done").touch()
    lines_until(process, "bye")
    assert process.wait(PATIENCE) == 0


# ── the idle prompt ──


def test_launch_prompts_a_silent_program_with_escapes_text_and_return() -> None:
    script = "stty raw -echo; head -c 13 | od -An -tx1 -w13"
    done = launch("--idle-timeout", "6", "--idle-prompt", "Go on, é!", "--", "sh", "-c", script)
    assert done.code == 0
    assert bytes.fromhex(done.out) == b"\x1b\x1b" + "Go on, é!".encode() + b"\r"
    assert "no output; sending prompt 1 of 3" in done.err


def test_launch_gives_up_a_program_that_stays_silent(begin: Begin) -> None:
    words = ("--idle-timeout", "1", "--max-idle-retries", "2")
    process = begin(*words, "--", "sh", "-c", f"stty -echo; {FAMILY} sleep 600")
    started = family(process)
    assert process.wait(PATIENCE) == 125
    assert all_ended(started)
    assert process.stderr is not None
    assert process.stderr.read().count(b"no output; sending prompt") == 2


# ── its output ──


def test_launch_loses_nothing_of_a_flood() -> None:
    done = launch("--", "seq", "400000")
    assert done.code == 0
    assert done.out == "".join(f"{number}\r\n" for number in range(1, 400001))


def test_launch_loses_nothing_when_its_reader_is_slow(begin: Begin) -> None:
    process = begin("--", "sh", "-c", "seq 200000; echo up")
    assert process.stdout is not None
    assert process.stdout.read(1) == b"1"
    numbers = lines_until(process, "up")
    assert len(numbers) == 200000
    assert numbers[-1] == "200000"
    assert process.wait(PATIENCE) == 0


def test_launch_writes_to_a_file_as_to_a_pipe(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        subprocess.run([*LAUNCH, "--", "seq", "50000"], stdout=out, timeout=PATIENCE, check=True)
    assert (tmp_path / "out").read_text().split() == [str(number) for number in range(1, 50001)]


def test_launch_ends_when_no_one_reads_its_output_any_more(begin: Begin) -> None:
    process = begin("--", "sh", "-c", f"{FAMILY} yes")
    started = family(process)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.wait(PATIENCE) == 128 + signal.SIGPIPE
    assert all_ended(started)


def test_launch_goes_on_when_its_output_cannot_be_written(tmp_path: Path) -> None:
    script = "seq 1000; echo kept > kept; exit 3"
    with open("/dev/full", "wb") as full:
        words = [*LAUNCH, "--", "sh", "-c", script]
        done = subprocess.run(
            words, stdout=full, stderr=subprocess.PIPE, cwd=tmp_path, timeout=PATIENCE, check=False
        )
    assert done.returncode == 3
    assert (tmp_path / "kept").read_text() == "kept\n"
    assert done.stderr.count(b"cannot be written") == 1


def test_launch_with_closed_standard_streams_runs_the_program(tmp_path: Path) -> None:
    words = ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", *LAUNCH, "--", "sh", "-c", "echo heard; echo kept > kept"]
    assert subprocess.run(words, cwd=tmp_path, timeout=PATIENCE, check=False).returncode == 0
    assert (tmp_path / "kept").read_text() == "kept\n"


# ── signals ──


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_launch_that_is_asked_to_end_ends_every_descendant(begin: Begin, number: signal.Signals) -> None:
    process = begin("--", "sh", "-c", f"{FAMILY} sleep 600")
    started = family(process)
    process.send_signal(number)
    assert process.wait(PATIENCE) == 128 + number
    assert all_ended(started)


def test_launch_that_is_asked_to_end_twice_does_not_wait(begin: Begin) -> None:
    process = begin("--", "sh", "-c", f"trap 'echo told' TERM HUP; echo up; {AWAKE}")
    lines_until(process, "up")
    process.terminate()
    lines_until(process, "told")
    process.terminate()
    assert process.wait(PATIENCE) == 128 + signal.SIGTERM


def test_launch_under_nohup_heeds_no_hangup(begin: Begin) -> None:
    process = begin("--", "sh", "-c", "echo up; read line", prefix=["nohup"])
    lines_until(process, "up")
    ignored = Path(f"/proc/{process.pid}/status").read_text().partition("SigIgn:")[2].split()[0]
    assert int(ignored, 16) & 1 << (signal.SIGHUP - 1)


# ── on a terminal ──


def on_terminal(*words: str, cwd: Path) -> PlainTerminal:
    return PlainTerminal(words, cwd=cwd, env={**os.environ, "TERM": "xterm"}, columns=90, rows=31)


def test_launch_on_a_terminal_has_its_size_and_what_is_typed(tmp_path: Path) -> None:
    with on_terminal(
        *LAUNCH, "--", "sh", "-c", "stty size; read line; echo got $line", cwd=tmp_path
    ) as terminal:
        terminal.wait_for(b"31 90")
        terminal.write(b"a horse\r")
        terminal.wait_for(b"got a horse")
        assert terminal.process.wait(PATIENCE) == 0


def test_launch_on_a_terminal_leaves_ctrl_c_to_the_program(tmp_path: Path) -> None:
    script = f"trap 'echo INT; exit 3' INT; echo up; {AWAKE}"
    with on_terminal(*LAUNCH, "--", "sh", "-c", script, cwd=tmp_path) as terminal:
        terminal.wait_for(b"up\r\n")
        terminal.write(b"\x03")
        terminal.wait_for(b"INT")
        assert terminal.process.wait(PATIENCE) == 3


@pytest.mark.parametrize("key", [b"\x1a", b"\x1b[122;5u"])
def test_launch_on_a_terminal_sends_a_program_on_that_suspends_itself(tmp_path: Path, key: bytes) -> None:
    program = tmp_path / "program.py"  # not in the words of the command, which are printed
    program.write_text(
        "import os, signal, tty\n"
        "tty.setraw(0)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCONT])\n"
        "print('up', flush=True)\n"
        "os.read(0, 99)\n"
        "signal.sigwait([signal.SIGCONT])\n"
        "print('awake', flush=True)\n"
    )
    with on_terminal(*LAUNCH, "--", sys.executable, "program.py", cwd=tmp_path) as terminal:
        terminal.wait_for(b"up")
        terminal.write(key)
        terminal.wait_for(b"awake")
        assert terminal.process.wait(PATIENCE) == 0


def test_launch_puts_the_terminal_back_whatever_ends_the_program(tmp_path: Path) -> None:
    # A shell that watches over its jobs, so that the launch has a process group of its own in the foreground.
    script = 'set -m; before=$(stty -g); "$@"; [ "$(stty -g)" = "$before" ] && echo same || echo other'
    limited = [*LAUNCH, "--timeout", "1", "--", "sh", "-c", "printf '\\033[?1049h'; sleep 600"]
    with on_terminal("sh", "-c", script, "sh", *limited, cwd=tmp_path) as terminal:
        said = terminal.wait_for(b"same\r\n")
    assert b"\x1b[?1047l" in said
    assert said.endswith(b"same\r\n")


def test_launch_in_the_background_does_not_touch_the_terminal(tmp_path: Path) -> None:
    script = 'set -m; "$@" & wait $!; echo ended $?'
    with on_terminal("sh", "-c", script, "sh", *LAUNCH, "--", "stty", "size", cwd=tmp_path) as terminal:
        said = terminal.wait_for(b"ended 0")
    assert b"50 200" in said
