"""Calls that meet a pool in the moment of its end: what was not begun is told so, and runs elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from remuda.errors import ClientClosed, PoolNotServed
from remuda.pool.pool_connection import PoolConnection
from remuda.pool.protocol import encode, hello
from remuda.pool.remote import RemoteClient
from support.commands import Commands
from support.pool_in_loop import RUN, Busy, served, within
from support.pool_servers import HELLO, bad_server, say
from support.print_calls import Calls

LATE = {"type": "error", "code": "CLIENT_CLOSED", "message": "the pool is shutting down", "hint": None}
NOT_BEGUN = {**LATE, "begun": False}
TOKEN = encode({"type": "token", "text": "x"})

# ── what the server says ──


def test_request_after_the_hello_of_a_server_that_ends_learns_that_nothing_was_begun(home: Path) -> None:
    async def test() -> None:
        async with served(home) as pool:
            pool.server.refuse()
            with pool.talk() as talk:
                await talk.run()
                assert await talk.all() == [NOT_BEGUN]
            with pytest.raises(PoolNotServed, match="the request was not started"):
                await pool.remote.run("x")
            with pytest.raises(PoolNotServed, match="the request was not started"):
                await pool.remote.prewarm(1)

    within(test())


def test_request_that_ran_when_the_pool_was_closed_is_no_request_that_was_not_begun(home: Path) -> None:
    async def test() -> None:
        busy = Busy()
        async with served(home, busy.agent) as pool:
            running = asyncio.create_task(pool.remote.run("x"))
            await busy.begun.wait()
        with pytest.raises(ClientClosed):
            await running

    within(test())


def test_peers_who_wait_to_be_heard_when_the_server_ends_learn_it(home: Path) -> None:
    async def test() -> None:
        async with served(home) as pool:
            # The loop of the server comes to none of them before its end begins.
            waiting = [pool.talk() for _ in range(5)]
            for one in waiting:
                await one.say(hello(), RUN)
        for one in waiting:
            greeting, error = await one.all()
            assert (greeting["type"], error) == ("hello", NOT_BEGUN)
            one.close()

    within(test())


def test_peers_who_have_not_asked_when_the_server_ends_learn_it(home: Path) -> None:
    async def test() -> None:
        async with served(home) as pool:
            silent, greeted = pool.talk(), pool.talk()
            await greeted.greet()
        assert await silent.all() == await greeted.all() == [NOT_BEGUN]
        silent.close()
        greeted.close()

    within(test())


# ── what a peer makes of it ──


def ask(path: Path) -> None:
    with PoolConnection(str(path)) as line:
        line.ask(RUN)
        for _ in line.messages():
            pass


def test_peer_takes_what_was_not_begun_for_a_pool_that_is_not_there(home: Path) -> None:
    path = home / "pool.sock"
    with bad_server(path, say(HELLO, encode(NOT_BEGUN))):
        with pytest.raises(PoolNotServed, match="the request was not started"):
            ask(path)
        with pytest.raises(PoolNotServed, match="the request was not started"):
            asyncio.run(RemoteClient(path).run("x"))


@pytest.mark.parametrize(
    "said",
    [
        encode(LATE),  # an older server, which may have begun
        encode({**LATE, "begun": True}),
        TOKEN + encode(NOT_BEGUN),
    ],
    ids=["silent about it", "begun", "told"],
)
def test_peer_takes_what_may_have_begun_for_an_error(home: Path, said: bytes) -> None:
    path = home / "pool.sock"
    with bad_server(path, say(HELLO, said)):
        with PoolConnection(str(path)) as line:
            line.ask(RUN)
            assert [message["type"] for message in line.messages()][-1] == "error"
        with pytest.raises(ClientClosed):
            asyncio.run(RemoteClient(path).run("x"))


# ── the commands ──


def test_run_and_print_go_on_cold_when_nothing_was_begun(calls: Calls) -> None:
    binary = ["--claude-binary", str(calls.binary)]
    with bad_server(calls.home / "pool.sock", say(HELLO, encode(NOT_BEGUN))):
        cold = calls.remuda("run", "hello", *binary)
        assert cold.out == "REPLY#1 to: hello\n"
        assert "the pool is shutting down; the request was not started; running cold" in cold.err
        refused = calls.remuda("run", "hello", "--no-fallback", *binary, code=3)
        assert "the request was not started" in refused.err
        printed = calls.remuda("print", "hello", "--pool", *binary)
        assert printed.out == "REPLY#1 to: hello\n"


def test_run_is_an_error_when_the_pool_was_closed_during_the_call(remuda: Commands) -> None:
    with bad_server(remuda.home / "pool.sock", say(HELLO, encode(LATE))):
        assert "shutting down" in remuda("run", "hello", code=2).err
