"""The stream backend next to what the CLI says: messages on standard input, and words on standard error."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from support.commands import Commands
from support.print_calls import PATIENCE, Calls, write_program

MESSAGES = (
    "--backend",
    "stream",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
)


@pytest.fixture
def calls(remuda: Commands) -> Iterator[Calls]:
    made = Calls(remuda)
    yield made
    made.close()


def message(text: str) -> bytes:
    return json.dumps({"type": "user", "message": {"role": "user", "content": text}}).encode() + b"\n"


def result_of(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    for line in process.stdout:
        if (found := json.loads(line)).get("type") == "result":
            assert isinstance(found, dict)
            return found
    raise AssertionError("it ended without a result")


def test_messages_are_answered_as_they_come(calls: Calls) -> None:
    process = subprocess.Popen(
        calls.words(*MESSAGES),
        env=calls.env,
        cwd=calls.cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdin is not None
        for number, prompt in enumerate(("one", "two"), 1):
            process.stdin.write(message(prompt))  # the second when the first is answered
            process.stdin.flush()
            found = result_of(process)
            assert (found["result"], found["backend"]) == (f"REPLY#{number} to: {prompt}", "stream")
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, err) == (0, b"", b"")


def test_no_message_at_all_is_no_error(calls: Calls) -> None:
    assert calls(*MESSAGES, "a word that is passed over") == ("", "")


def test_messages_need_the_output_that_they_need_with_claude(calls: Calls) -> None:
    said = calls(*MESSAGES[:4], "--output-format", "json", code=2).err
    assert "needs --output-format stream-json" in said


def test_what_the_agent_warns_of_is_passed_on(remuda: Commands) -> None:
    program = write_program(
        remuda.home / "warning",
        f"#!/bin/sh\necho 'Warning: first\nsecond' >&2\n"
        f'exec {sys.executable} -P -m remuda.testing.scripted_agent "$@"\n',
    )
    calls = Calls(remuda, program)
    done = calls("hello", "--backend", "stream")
    assert done == ("REPLY#1 to: hello\n", "Warning: first\nsecond\n")
