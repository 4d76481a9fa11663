"""What is left of a pool that was killed together with its keepers: the next pool takes away that alone."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from remuda import Client, Inbox
from remuda.keeper.claim import live_names, read_holder
from remuda.keeper.record import SessionRecord
from remuda.oneshot.leftovers import leftovers
from remuda.paths import SessionPaths
from support.commands import Commands
from support.keeper import until
from support.print_calls import processes_of, scripted_agent

POOL = """
import asyncio, sys
from remuda import Client, Inbox

async def main():
    async with Client(claude_binary=sys.argv[1], runtime_dir=sys.argv[2], pool_size=2) as client:
        await client.prewarm()
        print("warm", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
LONG_AGO = 3600.0


@pytest.fixture
def folder(remuda: Commands) -> Path:
    remuda.sessions.mkdir(mode=0o700, exist_ok=True)
    return remuda.sessions


@pytest.fixture
def killed(remuda: Commands, folder: Path) -> set[str]:
    """Names of sessions whose keepers were killed, and the program of the pool with them."""
    program = subprocess.Popen(
        [sys.executable, "-c", POOL, str(scripted_agent(remuda.home)), str(folder)],
        env=remuda.env,
        cwd=remuda.cwd,
        stdout=subprocess.PIPE,
    )
    assert program.stdout is not None
    try:
        assert program.stdout.readline() == b"warm\n"
        names = set(live_names(folder))
        program.send_signal(signal.SIGSTOP)  # or it would remove them itself
        for name in names:
            holder = read_holder(SessionPaths(folder, name))
            assert holder is not None
            os.kill(holder.keeper_pid, signal.SIGKILL)
    finally:
        program.kill()
        program.wait()
        program.stdout.close()
    until(
        lambda: not any(read_holder(SessionPaths(folder, name)) for name in names), "the end of its keepers"
    )
    until(lambda: not any(list(processes_of(name)) for name in names), "the end of its agents")
    return names


def age(folder: Path) -> None:
    for path in folder.iterdir():
        os.utime(path, (time.time() - LONG_AGO,) * 2)


def left(folder: Path, names: set[str]) -> list[str]:
    return [entry for entry in os.listdir(folder) if entry.partition(".")[0] in names]


def test_the_next_pool_removes_what_a_killed_one_has_left(
    remuda: Commands, folder: Path, killed: set[str]
) -> None:
    assert len(killed) == 2
    assert {paths.name for paths in leftovers(folder)} == killed
    assert not list(leftovers(folder, min_age=60.0))  # it may be on its way
    age(folder)

    async def next_pool() -> None:
        binary = str(scripted_agent(remuda.home))
        async with Client(claude_binary=binary, runtime_dir=folder, env=remuda.env, cwd=remuda.cwd) as client:
            assert (await client.run("hello")).text == "REPLY#1 to: hello"

    asyncio.run(next_pool())
    until(lambda: not os.listdir(folder), "the end of all that was left")


def test_a_call_and_its_check_take_it_away_too(remuda: Commands, folder: Path, killed: set[str]) -> None:
    told = remuda("print", "--check", "--claude-binary", str(scripted_agent(remuda.home))).out
    assert all(name in told for name in killed)
    age(folder)
    remuda("print", "hello", "--claude-binary", str(scripted_agent(remuda.home)))
    until(lambda: not left(folder, killed), "the end of all that was left")


def test_a_session_of_the_user_with_such_a_name_is_left_alone(folder: Path) -> None:
    name = "pool-0123456789ab"
    paths = SessionPaths(folder, name)
    SessionRecord(name, "claude", ["claude"], "/", 0.0).save(paths.record)
    age(folder)
    assert not list(leftovers(folder))
    SessionRecord(name, "claude", ["claude"], "/", 0.0, ephemeral=True).save(paths.record)
    assert [found.name for found in leftovers(folder)] == [name]


def test_call_whose_keeper_was_killed_before_it_wrote_a_record_is_taken_away(folder: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    name = f"print-{gone.pid}-0123ab"
    paths = SessionPaths(folder, name)
    paths.log.touch(0o600)
    paths.inbox.mkdir(0o700)
    with Inbox(paths.inbox) as inbox:
        inbox.put("the prompt", message_id=name)
    assert [found.name for found in leftovers(folder)] == [name]
    with Inbox(paths.inbox) as inbox:
        kept = inbox.put("of somebody else")
    assert not list(leftovers(folder)), "a message waits"
    with Inbox(paths.inbox) as inbox:
        inbox.take_back(kept.id)
    paths.history.touch(0o600)
    assert not list(leftovers(folder)), "a session of the user's"
