"""`remuda pool serve`, `remuda run` and `remuda print --pool` on the real Claude Code."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support.commands import COMMAND, Commands
from support.json_differences import differences
from support.keeper import until
from support.print_calls import PATIENCE, Calls

# What the CLI only says of a process that has answered before.
LATER = {
    "+result.request_sent_wall_ms",
    "+result.first_request_input_tokens",
    "+result.first_request_cache_read_input_tokens",
}
STREAM = ("--output-format", "stream-json", "--verbose")
backends = pytest.mark.parametrize("backend", ["terminal", "stream"])


@pytest.fixture
def calls(home: Path, cli: RealCli) -> Iterator[Calls]:
    commands = Commands(home)
    made = Calls(commands, cli.binary, cli.env, cli.project)
    yield made
    made.close()
    commands.close()


@contextmanager
def serving(calls: Calls, backend: str) -> Iterator[subprocess.Popen[str]]:
    """Ended with SIGTERM, as a service is; with 0, and nothing is left."""
    words = ["--backend", backend, "--size", "2", "--claude-binary", str(calls.binary)]
    server = subprocess.Popen(
        [*COMMAND, "pool", "serve", *words], env=calls.env, cwd="/", stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        assert "serving up to 2 agents" in server.stdout.readline()
        yield server
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE) == 0
    finally:
        server.kill()
        server.communicate()
    calls.assert_nothing_left()


def ours(calls: Calls, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [*COMMAND, *words],
        env=calls.env,
        cwd=calls.cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )
    assert done.returncode == code, (words, done)
    assert done.stderr == ""
    return done.stdout


def messages(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@backends
def test_run_is_warm_the_second_time_and_each_call_is_a_conversation_of_its_own(
    calls: Calls, cli: RealCli, model: LoopbackModel, backend: str
) -> None:
    with serving(calls, backend):
        assert ours(calls, "run", "hello") == "REPLY#1 to: hello\n"
        found = json.loads(ours(calls, "run", "again", "--json"))
        assert found["text"] == "REPLY#1 to: again"
        assert found["warm"]
        assert found["backend"] == backend
        assert found["usage"]["output_tokens"] > 0
        assert "API Error: 400" in ours(calls, "run", "err 400", "--json", code=1)
    assert "hello" not in json.dumps(model.wait_for("again").body)
    until(lambda: not cli.running(), "the end of every process of the CLI")


@backends
def test_print_through_the_pool_prints_what_print_prints(calls: Calls, cli: RealCli, backend: str) -> None:
    prompt, tools = "RUNBASH echo one", ("--allowedTools", "Bash")
    with serving(calls, backend):
        ours(calls, "print", "--pool", "first", *tools)
        for words in (("--output-format", "text"), ("--output-format", "json"), STREAM):
            cold = ours(calls, *calls.words("--backend", backend, *words, *tools, "--", prompt)[3:])
            warm = ours(calls, "print", "--pool", *words, *tools, "--", prompt)
            if words[1] == "text":
                assert warm == cold
            else:
                assert differences(messages(cold), messages(warm)) <= LATER
    until(lambda: not cli.running(), "the end of every process of the CLI")


def test_first_ask_after_the_pool_is_ready_starts_no_agent(calls: Calls, cli: RealCli) -> None:
    words = ("--detach", "--json", "--claude-binary", str(calls.binary))
    try:
        assert json.loads(ours(calls, "pool", "serve", *words))["ready"] == 1
        assert ours(calls, "ask", "hello") == "REPLY#1 to: hello\n"
        pool = json.loads(ours(calls, "pool", "status", "--json"))["pool"]
        assert (pool["spawns"], [one["served"] for one in pool["sessions"]]) == (1, [1])
    finally:
        ours(calls, "pool", "stop")
    until(lambda: not cli.running(), "the end of every process of the CLI")
