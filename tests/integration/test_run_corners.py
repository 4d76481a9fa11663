"""`remuda run` where input never ends, output cannot be written, or its folder is gone: warm and cold."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from remuda.pool.pool_connection import request
from support.commands import COMMAND, Commands
from support.keeper import until
from support.pool_servers import fake_pool
from support.print_calls import PATIENCE, scripted_agent


@pytest.fixture
def pool(remuda: Commands) -> Iterator[Path]:
    """Where it is served."""
    with fake_pool(remuda) as path:
        yield path


def cold(remuda: Commands) -> list[str]:
    """Words for a run on the scripted agent, where no one serves."""
    return ["--claude-binary", str(scripted_agent(remuda.home))]


def printed_to(remuda: Commands, path: str, *words: str) -> tuple[int, list[str]]:
    with open(path, "wb") as output:
        done = subprocess.run(
            [*COMMAND, "run", *words],
            env=remuda.env,
            cwd=remuda.cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
            check=False,
        )
    return done.returncode, done.stderr.decode().splitlines()


@pytest.mark.parametrize("more", [[], ["--json"], ["--stream"], ["--json", "--stream"]], ids=" ".join)
def test_a_full_disk_is_reported_in_one_line(remuda: Commands, pool: Path, more: list[str]) -> None:
    code, said = printed_to(remuda, "/dev/full", "hello", *more)
    assert (code, said) == (2, ["remuda: cannot write to standard output: No space left on device"])


@pytest.mark.parametrize("more", [[], ["--json"]], ids=" ".join)
def test_a_full_disk_is_reported_by_a_cold_run_too(remuda: Commands, more: list[str]) -> None:
    code, said = printed_to(remuda, "/dev/full", "hello", *cold(remuda), *more)
    assert code == 2
    assert said[1:] == ["remuda print: cannot write to standard output: No space left on device"]


@pytest.mark.parametrize("more", [[], ["--json"]], ids=" ".join)
def test_output_that_the_caller_closed_is_no_error(remuda: Commands, pool: Path, more: list[str]) -> None:
    remuda("run", "hello", *more, prefix=["sh", "-c", 'exec "$0" "$@" >&-'])


@pytest.mark.parametrize("more", [[], ["--json"]], ids=" ".join)
def test_a_full_disk_under_both_outputs_has_the_exit_code_of_a_full_disk(
    remuda: Commands, pool: Path, more: list[str]
) -> None:
    both = ["sh", "-c", 'exec "$0" "$@" > /dev/full 2>&1']
    remuda("run", "hello", *more, code=2, prefix=both)


def test_standard_input_that_never_ends_is_waited_for_within_the_timeout(
    remuda: Commands, pool: Path
) -> None:
    for begun in (b"", b"something"):
        reading, writing = os.pipe()
        os.write(writing, begun)
        done = subprocess.run(
            [*COMMAND, "run", "-", "--timeout", "0.3"],
            env=remuda.env,
            cwd=remuda.cwd,
            stdin=reading,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
        os.close(reading)
        os.close(writing)
        assert (done.returncode, done.stdout) == (124, b"")
        assert b"remuda: --timeout: standard input" in done.stderr


def test_a_folder_that_is_gone_is_reported(remuda: Commands, pool: Path) -> None:
    gone = remuda.home / "gone"
    gone.mkdir()
    in_it = ["sh", "-c", 'cd "$0" && rmdir "$0" && exec "$@"', str(gone)]
    assert "no longer exists" in remuda.refused("run", "hello", code=2, prefix=in_it)


@pytest.mark.parametrize("prompt", ["a\0b", " \n "])
def test_a_prompt_that_no_agent_can_be_given_is_wrong_input(
    remuda: Commands, pool: Path, prompt: str
) -> None:
    done = subprocess.run(
        [*COMMAND, "run", "-"],
        env=remuda.env,
        cwd=remuda.cwd,
        input=prompt.encode(),
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (4, b"")


def test_a_name_that_no_request_can_have_is_refused_cold_as_well(remuda: Commands) -> None:
    said = remuda("run", "hello", "--request-id", "../x", *cold(remuda), code=2).err
    assert "'../x' is not a valid request_id" in said


@pytest.mark.parametrize("flag", ["--resume=x", "--output-format=json"])
def test_a_flag_that_no_pool_can_honour_is_refused_cold_as_well(remuda: Commands, flag: str) -> None:
    said = remuda("run", "hello", f"--arg={flag}", *cold(remuda), code=2).err
    assert f"{flag.partition('=')[0]} cannot be used" in said


def test_an_interrupted_run_ends_its_json_with_the_error(remuda: Commands, pool: Path) -> None:
    running = remuda.begin("run", "HANG", "--json")
    until(lambda: request(str(pool), {"type": "status"})["status"]["requests"], "the request")
    running.send_signal(signal.SIGTERM)
    out, _ = running.communicate(timeout=PATIENCE)
    assert running.returncode == 130
    assert json.loads(out)["error"]["code"] == "INTERRUPTED"


def test_an_interrupted_run_whose_output_cannot_be_written_says_so(remuda: Commands, pool: Path) -> None:
    with open("/dev/full", "wb") as full:
        running = remuda.begin("run", "HANG", "--json", stdout=full.fileno())
    until(lambda: request(str(pool), {"type": "status"})["status"]["requests"], "the request")
    running.send_signal(signal.SIGTERM)
    said = running.communicate(timeout=PATIENCE)[1].decode()
    assert running.returncode == 2
    assert said == "remuda: cannot write to standard output: No space left on device\n"
