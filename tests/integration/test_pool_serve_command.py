"""`remuda pool serve` as a process, on the scripted agent: its beginning, its end, and what a kill leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from commands import COMMAND, Commands
from heimdall_client import PATIENCE
from keeping import Process, until
from printing import Calls
from remuda.pool.line import request
from remuda.proctree import descendants


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
    # Below our own home it would be mended; so it is reached by another name.
    elsewhere = {"REMUDA_HOME": str(calls.home / "elsewhere")}
    assert "others may write" in calls.remuda.refused(
        "pool", "serve", "--socket", path, code=4, env=elsewhere
    )


def test_serve_prewarmed_has_agents_for_this_folder_before_the_first_call(calls: Calls) -> None:
    with serving(calls, "--size", "2", "--prewarm", "2") as server:
        until(
            lambda: [one["state"] for one in server.status()["pool"]["sessions"]] == ["idle"] * 2,
            "two agents",
        )
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
        assert (calls.home / "pool.sock").exists()  # nobody could remove it
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


def test_serve_more_prewarmed_than_there_are_is_refused(remuda: Commands) -> None:
    assert "--size 2" in remuda.refused("pool", "serve", "--size", "2", "--prewarm", "3", code=2)
