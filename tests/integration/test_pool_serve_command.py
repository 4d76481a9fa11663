"""`remuda pool serve` as a process, on the scripted agent: its beginning, its end, and what a kill leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from remuda.pool.pool_connection import request
from remuda.proctree import descendants
from support.commands import COMMAND, Commands
from support.heimdall_client import PATIENCE
from support.keeper import Process, end_processes, until
from support.print_calls import Calls


class Server:
    def __init__(self, calls: Calls, process: subprocess.Popen[str], facts: dict[str, Any]) -> None:
        self.calls, self.process, self.facts = calls, process, facts

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = request(self.facts["socket"], {"type": "status"})["status"]
        return found

    def states(self) -> list[str]:
        return [one["state"] for one in self.status()["pool"]["sessions"]]

    def agents(self) -> list[Process]:
        """All that runs for it, but for what only helps for a moment."""
        return [Process(pid) for pid in descendants(self.process.pid)]


@contextmanager
def serving(calls: Calls, *words: str) -> Iterator[Server]:
    given = ["--backend", "stream", "--claude-binary", str(calls.binary), "--json", *words]
    process = subprocess.Popen(
        [*COMMAND, "pool", "serve", *given],
        env=calls.env,
        cwd=calls.cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        lines = ""
        while not lines.endswith("}\n"):
            line = process.stdout.readline()
            assert line, process.communicate()
            lines += line
        yield Server(calls, process, json.loads(lines))
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_says_where_and_ends_with_0_and_without_a_trace(calls: Calls, number: int) -> None:
    with serving(calls, "--size", "2") as server:
        assert server.facts["socket"] == str(calls.home / "pool.sock")
        assert server.facts["pid"] == server.process.pid
        assert calls.remuda("run", "hello").out == "REPLY#1 to: hello\n"
        agents = server.agents()
        assert agents
        server.process.send_signal(number)
        assert server.process.wait(PATIENCE) == 0
        assert all(agent.ended() for agent in agents)
    assert not [entry for entry in os.listdir(calls.home) if entry.startswith("pool")]


def test_serve_a_second_one_is_refused_and_the_first_serves_on(calls: Calls) -> None:
    with serving(calls) as server:
        said = calls.remuda.refused("pool", "serve", code=5)
        assert f"pid {server.process.pid}" in said
        assert calls.remuda("run", "hello").out == "REPLY#1 to: hello\n"


def test_serve_where_others_may_write_is_refused(calls: Calls) -> None:
    (calls.home / "open").mkdir()
    (calls.home / "open").chmod(0o777)
    path = str(calls.home / "open" / "pool.sock")
    # Below our own home it would be fixed; so it is reached by another name.
    elsewhere = {"REMUDA_HOME": str(calls.home / "elsewhere")}
    assert "other users can write" in calls.remuda.refused(
        "pool", "serve", "--socket", path, code=4, env=elsewhere
    )


@pytest.mark.parametrize("option", ["--warm", "--prewarm"])
def test_serve_warm_has_agents_for_this_folder_before_it_says_so(calls: Calls, option: str) -> None:
    with serving(calls, "--size", "2", option, "2") as server:
        assert server.states() == ["idle"] * 2
        assert json.loads(calls.remuda("run", "--json", "hello").out)["warm"]
        assert server.status()["pool"]["spawns"] == 2


def test_serve_lets_what_runs_end_before_it_ends(calls: Calls) -> None:
    with serving(calls) as server:
        call = calls.remuda.begin("run", "THINK 5 and answer")
        until(lambda: server.states() == ["busy"], "the turn")
        server.process.send_signal(signal.SIGTERM)
        out, err = call.communicate(timeout=PATIENCE)
        assert (call.returncode, out.decode(), err.decode()) == (0, "REPLY#1 to: THINK 5 and answer\n", "")
        assert server.process.wait(PATIENCE) == 0


def test_serve_killed_leaves_nothing_running_and_the_next_takes_its_place(calls: Calls) -> None:
    with serving(calls, "--size", "2") as server:
        calls.remuda("run", "hello")
        agents = server.agents()
        assert agents
        server.process.kill()
        server.process.wait()
        assert all(agent.ended() for agent in agents)
        assert (calls.home / "pool.sock").exists()  # no one could remove it
    assert "running cold" in calls.remuda("run", "hello", "--claude-binary", str(calls.binary)).err
    with serving(calls):
        assert calls.remuda("run", "hello").err == ""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--size", "0"], 2),
        (["--max-idle", "long"], 2),
        (["--backend", "telepathy"], 2),
        (["--default-timeout", "0"], 2),
        (["--max-body-bytes", "5"], 2),
        (["--backend", "print", "--warmup-prompt", "x"], 2),
    ],
)
def test_serve_with_options_that_cannot_be_is_refused(calls: Calls, words: list[str], code: int) -> None:
    calls.remuda.refused("pool", "serve", *words, code=code)
    assert not (calls.home / "pool.sock").exists()


def test_serve_more_warm_than_there_are_is_refused(remuda: Commands) -> None:
    assert "--size 2" in remuda.refused("pool", "serve", "--size", "2", "--warm", "3", code=2)


def test_serve_warm_in_front_says_when_agents_are_ready(calls: Calls) -> None:
    words = ("--backend", "stream", "--claude-binary", str(calls.binary), "--warm", "2")
    with calls.remuda.begin("pool", "serve", *words) as server:
        assert server.stderr is not None
        try:
            assert server.stderr.readline().decode().startswith("2 agents are ready for ")
        finally:
            calls.remuda("pool", "stop")


def test_serve_warm_detached_returns_when_the_agents_are_ready(remuda: Commands) -> None:
    remuda("pool", "serve", "--detach", "--demo", "--warm", "1")
    try:
        assert json.loads(remuda("run", "--json", "hello").out)["warm"]
    finally:
        remuda("pool", "stop")


@pytest.mark.parametrize("words", [[], ["--json"], ["--detach"]], ids=["in front", "json", "detached"])
@pytest.mark.parametrize(
    ("named", "code", "why"),
    [
        (
            ["--claude-binary", "no-claude"],
            127,
            "no-claude is not on the PATH, so no agent can be made ready",
        ),
        (["--agent", "codex"], 127, "codex is not on the PATH, so no agent can be made ready"),
        (["--backend", "stream", "--claude-binary", "/bin/false"], 1, "exited before it was ready"),
    ],
    ids=["missing", "another that is missing", "one that ends"],
)
def test_serve_warm_without_an_agent_fails_and_serves_nothing(
    calls: Calls, named: list[str], code: int, why: str, words: list[str]
) -> None:
    calls.remuda.env["PATH"] = "/usr/bin:/bin"
    done = calls.remuda("pool", "serve", "--warm", "1", *named, *words, code=code)
    assert why in done.err.splitlines()[-1]
    assert "traceback" not in done.err.lower()
    assert not (calls.home / "pool.sock").exists()


# ── ready, in the background, and without Claude Code ──


def test_serve_makes_one_agent_ready_so_that_the_first_call_is_warm(calls: Calls) -> None:
    with serving(calls) as server:
        assert (server.states(), server.facts["ready"]) == (["idle"], 1)
        assert json.loads(calls.remuda("run", "--json", "hello").out)["warm"]
    calls.cwd = calls.home
    with serving(calls) as server:
        assert (server.states(), server.facts["ready"]) == ([], 0)


@pytest.mark.parametrize("words", [[], ["--detach"]], ids=["in front", "detached"])
def test_serve_says_at_once_that_the_program_is_missing(calls: Calls, words: list[str]) -> None:
    refused = calls.remuda.refused("pool", "serve", *words, "--claude-binary", "no-claude", code=127)
    assert "no-claude is not on the PATH, so no agent can be made ready" in refused
    assert "--warm 0" in refused
    assert "cannot find the program" in calls.remuda.refused(
        "pool", "serve", *words, "--claude-binary", "/nowhere/x", code=127
    )


@pytest.mark.parametrize("words", [[], ["--detach"]], ids=["in front", "detached"])
def test_serve_with_warm_0_serves_requests_that_bring_their_own_path(calls: Calls, words: list[str]) -> None:
    given = ["--backend", "stream", "--warm", "0", "--claude-binary", "no-claude"]
    with calls.remuda.begin("pool", "serve", *words, *given) as server:
        assert server.stderr is not None
        try:
            said = server.stderr.readline().decode()
            assert said.startswith("remuda: no-claude is not on the PATH; ")
            assert re.search(r"agents +none, of 4\n", calls.remuda("pool", "status").out)
            (calls.home / "bin").mkdir()
            (calls.home / "bin" / "no-claude").symlink_to(calls.binary)
            calls.remuda.env["PATH"] = f"{calls.home / 'bin'}:/usr/bin:/bin"
            assert calls.remuda("run", "hello", "--no-fallback").out == "REPLY#1 to: hello\n"
        finally:
            calls.remuda("pool", "stop")


def test_serve_whose_own_agent_does_not_start_says_so_and_serves(calls: Calls) -> None:
    words = ("--backend", "stream", "--claude-binary", "/bin/false", "--detach")
    served = calls.remuda("pool", "serve", *words)
    calls.remuda("pool", "stop")
    assert "ready" not in served.out
    assert served.err.startswith("remuda: no agent is ready, so the first request will start one: ")


def test_serve_detached_goes_on_and_is_stopped(remuda: Commands) -> None:
    env = {"PATH": "/nowhere"}  # the demo agent needs no claude
    begun = remuda("pool", "serve", "--detach", "--demo", "--size", "2", env=env)
    path = remuda.home / "pool.sock"
    assert re.fullmatch(
        r"serving up to 2 agents \(terminal, demo agent, 1 ready\) at ~/\S*pool\.sock \(pid \d+\); "
        r"stop it with 'remuda pool stop'\n",
        begun.out,
    )
    assert begun.err == ""
    try:
        assert remuda("run", "hello", "--no-fallback", env=env).out == "REPLY#1 to: hello\n"
        assert remuda("print", "hello", "--pool", "--demo", env=env) == ("REPLY#1 to: hello\n", "")
        note = "the agent of the pool answers: demo; use --cold to ask claude\n"
        assert remuda("ask", "hello", env=env) == ("REPLY#1 to: hello\n", f"remuda ask: {note}")
        again = remuda.refused("pool", "serve", "--detach", "--demo", code=5)
        assert "a pool is already served" in again
    finally:
        remuda("pool", "stop")
    assert not path.exists()
    assert (remuda.home / "pool.log").stat().st_mode & 0o777 == 0o600


def test_serve_detached_interrupted_while_its_agent_starts_leaves_nothing_running(
    remuda: Commands, tmp_path: Path
) -> None:
    mark = tmp_path / "agent"
    program = tmp_path / "claude"
    program.write_text(f"#!/bin/sh\necho $$ > {mark}.new; mv {mark}.new {mark}; exec sleep 300\n")
    program.chmod(0o700)
    words = [
        "pool",
        "serve",
        "--detach",
        "--warm",
        "1",
        "--spawn-timeout",
        "1000",
        "--claude-binary",
        str(program),
    ]
    usual = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    starting = subprocess.Popen(
        [sys.executable, "-c", f"{usual}from remuda.__main__ import main; main()", *words],
        env=remuda.env,
        cwd=remuda.cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    until(mark.exists, "the agent")
    server = Process(request(str(remuda.home / "pool.sock"), {"type": "status"})["status"]["pid"])
    agent = Process(int(mark.read_text()))
    starting.send_signal(signal.SIGINT)
    assert starting.wait(PATIENCE) == 130
    try:
        assert server.ended()
        assert agent.ended()
    finally:
        end_processes([server.pid])
        starting.communicate()


def test_serve_detached_announces_json(remuda: Commands) -> None:
    told = json.loads(remuda("pool", "serve", "--detach", "--demo", "--prewarm", "0", "--json").out)
    try:
        assert (told["agent"], told["backend"], told["pool_size"]) == ("demo", "terminal", 4)
        assert remuda("run", "--demo", "--no-fallback", "hello").out == "REPLY#1 to: hello\n"
    finally:
        remuda("pool", "stop")


def test_serve_detached_passes_every_word_on(remuda: Commands) -> None:
    words = ["--detach", "--demo", "--warmup-prompt", "--json"]
    try:
        assert "demo agent" in remuda("pool", "serve", *words).out
    finally:
        remuda("pool", "stop")


def test_serve_detached_names_a_log_that_cannot_be_written(remuda: Commands) -> None:
    log = remuda.home / "pool.log"
    os.mkfifo(log)
    said = remuda.refused("pool", "serve", "--detach", "--demo", code=4)
    log.unlink()  # else anyone who reads the logs after the test waits for its writer
    assert f"cannot write the log {log}" in said


def test_a_pool_of_another_agent_is_refused(calls: Calls) -> None:
    with serving(calls, "--prewarm", "0"):
        assert "the pool's agent is claude, not demo" in calls.remuda.refused("run", "--demo", "x", code=2)


DEMO = """
from remuda import SyncClient
for backend in ("terminal", "stream", "print"):
    with SyncClient(agent="demo", backend=backend) as client:
        assert client.run("hello").text == "REPLY#1 to: hello", backend
"""


def test_client_of_the_demo_agent_needs_no_claude(remuda: Commands) -> None:
    subprocess.run(
        [sys.executable, "-c", DEMO],
        env={**remuda.env, "PATH": "/nowhere"},
        cwd=remuda.cwd,
        check=True,
        timeout=2 * PATIENCE,
    )
