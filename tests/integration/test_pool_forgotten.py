"""A program that runs a loop for each of its tasks and closes no client: their agents end all the same."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from remuda.proctree import descendants
from support.commands import Commands
from support.keeper import end_processes, until
from support.pool_terminals import TerminalBench

PROGRAM = """
import asyncio, gc, sys, threading, time
from remuda import Client

backend, when, binary, cwd, home, folder = sys.argv[1:]


async def job():
    asked = asyncio.Event()

    async def decide(_):
        asked.set()
        await asyncio.Event().wait()

    agent = {"claude_binary": binary, "cwd": cwd, "env": {"HOME": home}, "runtime_dir": folder}
    client = Client(backend=backend, permissions=decide, **agent)
    if when == "it rests":
        print((await client.run("hello")).text, flush=True)
    elif when == "it works":
        task = asyncio.create_task(client.run("RUNBASH touch made"))
        await asked.wait()
        print("works", flush=True)
    else:
        task = asyncio.create_task(client.prewarm())
        while not client.stats()["sessions"]:
            await asyncio.sleep(0)
        print("starts", flush=True)


asyncio.run(job())
while threading.active_count() > 1:  # a start that nobody waits for any more
    gc.collect()
    time.sleep(0.01)
gc.collect()
print("forgotten", flush=True)
sys.stdin.readline()
"""


@contextmanager
def program(bench: TerminalBench, *words: str) -> Iterator[subprocess.Popen[str]]:
    given = [str(bench.binary), str(bench.folder), bench.env["HOME"], str(bench.sessions)]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words, *given],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        end_processes([process.pid, *descendants(process.pid)])
        process.communicate()


@pytest.mark.parametrize("when", ["it rests", "it works", "it starts"])
@pytest.mark.parametrize("backend", ["terminal", "stream"])
def test_agent_of_a_client_that_was_forgotten_with_its_loop_ends(
    remuda: Commands, backend: str, when: str
) -> None:
    bench = TerminalBench(remuda.home)
    with program(bench, backend, when) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline()
        assert owner.stdout.readline() == "forgotten\n"
        until(lambda: not set(bench.processes()) - {owner.pid}, "the end of all agents")
        assert owner.poll() is None  # it was not its end that ended them
    if backend == "terminal":
        until(lambda: not list(bench.sessions.glob("*pool-*")), "the end of their traces")
