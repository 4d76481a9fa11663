"""A call whose answer cannot be printed, or whose folder is gone: one line, one exit code, nothing left."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.commands import Commands
from support.keeper import Process, until
from support.print_calls import PATIENCE, Calls, no_reader, write_program

FORMATS = (["text"], ["json"], ["json", "--verbose"], ["stream-json", "--verbose"])
FULL = "remuda print: cannot write to standard output: No space left on device\n"


@pytest.fixture
def calls(remuda: Commands) -> Iterator[Calls]:
    made = Calls(remuda)
    yield made
    made.close()


def printed_to(calls: Calls, path: Path, *words: str) -> tuple[int, str]:
    with path.open("wb") as output:
        return printed_into(calls, output.fileno(), *words)


def printed_into(calls: Calls, output: int, *words: str) -> tuple[int, str]:
    """Its exit code, and what it said on standard error."""
    done = subprocess.run(
        calls.words(*words),
        env=calls.env,
        cwd=calls.cwd,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize("output", FORMATS, ids=" ".join)
@pytest.mark.parametrize("backend", ["terminal", "stream"])
def test_a_full_disk_is_reported_in_one_line(calls: Calls, backend: str, output: list[str]) -> None:
    words = ("hello", "--backend", backend, "--output-format", *output)
    assert printed_to(calls, Path("/dev/full"), *words) == (2, FULL)
    calls.assert_nothing_left()


def test_an_error_that_cannot_be_printed_is_reported_as_that(calls: Calls) -> None:
    words = ("SLOW 60 x", "--timeout", "1", "--output-format", "json")
    assert printed_to(calls, Path("/dev/full"), *words) == (2, FULL)
    calls.assert_nothing_left()


@pytest.mark.parametrize("words", [("hello",), ("SLOW 60 x", "--timeout", "1", "--output-format", "json")])
def test_a_reader_that_has_gone_ends_the_call_without_a_word(calls: Calls, words: tuple[str, ...]) -> None:
    with no_reader() as output:
        assert printed_into(calls, output, *words) == (1, "")
    calls.assert_nothing_left()


@pytest.mark.parametrize("words", [("--backend", "terminal"), ("--backend", "stream"), ("--pool",)])
def test_a_folder_that_is_gone_is_reported(calls: Calls, words: tuple[str, ...]) -> None:
    gone = calls.home / "gone"
    gone.mkdir()
    in_it = ["sh", "-c", 'cd "$0" && rmdir "$0" && exec "$@"', str(gone)]
    said = calls("hello", *words, code=2, prefix=in_it).err
    assert said == "remuda print: the current folder no longer exists; change to another folder\n"


def test_an_agent_that_dies_at_once_is_reported_with_its_last_words(remuda: Commands) -> None:
    program = write_program(
        remuda.home / "broken", "#!/bin/sh\necho first\necho no interpreter >&2\nexit 127\n"
    )
    said = Calls(remuda, program)("hello", code=2).err
    assert said.startswith("remuda print: the agent exited: ")
    assert said.endswith("exit code 127; last output: no interpreter\n")


def test_what_the_shell_started_before_a_stream_call_is_not_ended_with_it(calls: Calls) -> None:
    """The shell becomes the call, and its children are the call's then."""
    copy, bystander = calls.home / "copy", calls.home / "bystander"
    agent = calls.home / "streaming"
    result = '{"type":"result","subtype":"success","is_error":false,"result":"all of it"}'
    write_program(agent, f"#!/bin/sh\ncat > /dev/null\nsleep 300 &\necho '{result}'\n")
    script = (
        f"sleep 300 > /dev/null 2>&1 & echo $! > {bystander}\n"
        f'exec "$@" --backend stream hello > >(cat > {copy}.part; mv {copy}.part {copy})'
    )
    words = ["bash", "-c", script, "bash", *Calls(calls.remuda, agent).words()]
    done = subprocess.run(
        words, env=calls.env, cwd=calls.cwd, stdin=subprocess.DEVNULL, timeout=PATIENCE, check=False
    )
    spared = Process(int(bystander.read_text()))
    try:
        assert (done.returncode, spared.alive) == (0, True)
        until(copy.exists, "what reads the answer")
        assert copy.read_text() == "all of it\n"
    finally:
        spared.signal(signal.SIGKILL)
        spared.close()


# ── a descriptor that does not block, and a standard error that cannot be written ──


def streaming(calls: Calls, *, size: int = 0, says: str = "") -> Calls:
    """Calls on an agent whose answer is that long."""
    agent = calls.home / "streaming"
    head, tail = '{"type":"result","subtype":"success","is_error":false,"result":"answer', '"}'
    more = f"head -c {size} /dev/zero | tr '\\0' x"
    said = f"echo '{says}' >&2" if says else ":"
    write_program(agent, f"#!/bin/sh\ncat > /dev/null\n{said}\nprintf '%s' '{head}'\n{more}\necho '{tail}'\n")
    return Calls(calls.remuda, agent)


def test_a_long_answer_is_printed_whole_where_writing_does_not_block(calls: Calls) -> None:
    """As node makes the pipes of what it starts."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    call = streaming(calls, size=300_000).begin("--backend", "stream", "hello", stdout=writing)
    os.close(writing)

    def is_full() -> bool:
        waiting = struct.unpack("i", fcntl.ioctl(reading, termios.FIONREAD, b"    "))[0]
        return waiting > 32768 or call.process.poll() is not None

    until(is_full, "more than the pipe takes")
    with open(reading, "rb") as answer:
        printed = answer.read()
    code, _, err = call.ended()
    assert (code, len(printed)) == (0, len("answer") + 300_000 + 1), err


@pytest.mark.parametrize("backend", ["terminal", "stream"])
def test_a_full_disk_under_both_outputs_has_the_exit_code_of_a_full_disk(calls: Calls, backend: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            calls.words("hello", "--backend", backend),
            env=calls.env,
            cwd=calls.cwd,
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=full,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 2
    calls.assert_nothing_left()


@pytest.mark.parametrize("words", [["--backend", "stream"], ["--trace", "--backend", "stream"], ["--trace"]])
def test_a_standard_error_that_no_one_reads_changes_nothing(calls: Calls, words: list[str]) -> None:
    which = streaming(calls, says="a warning") if "stream" in words else calls
    with no_reader() as stderr, Path("/dev/null").open("wb") as unreadable:  # which is told, too
        done = subprocess.run(
            which.words("hello", *words),
            env=calls.env,
            cwd=calls.cwd,
            stdin=unreadable,
            stdout=subprocess.PIPE,
            stderr=stderr,
            timeout=PATIENCE,
            check=False,
        )
    assert (done.returncode, done.stdout) == (
        0,
        b"answer\n" if which is not calls else b"REPLY#1 to: hello\n",
    )
    calls.assert_nothing_left()


def test_an_error_that_no_one_reads_has_its_exit_code(calls: Calls) -> None:
    for words, code in ((["--no-such-flag"], 2), ([" "], 4)):
        with no_reader() as stderr:
            done = subprocess.run(
                calls.words(*words),
                env=calls.env,
                cwd=calls.cwd,
                stdin=subprocess.DEVNULL,
                stderr=stderr,
                timeout=PATIENCE,
                check=False,
            )
        assert done.returncode == code
