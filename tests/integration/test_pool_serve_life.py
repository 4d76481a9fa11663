"""The server of a pool: its socket, its limits, its end, and the page about it."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import stat
import textwrap
from pathlib import Path
from typing import Any

import pytest

from remuda.cli.pool_serve import command
from remuda.errors import FolderUnusable, LocalProtocolError, PoolExhausted, PoolNotServed, SessionExists
from remuda.pool.pool_connection import PoolConnection
from remuda.pool.pool_socket import PoolSocket
from remuda.pool.protocol import encode, hello
from remuda.pool.remote import RemoteClient
from remuda.pool.serve import ServeLimits
from support.heimdall_client import PATIENCE
from support.pool_in_loop import RUN, Busy, served, within

PAGE = (Path(__file__).parents[2] / "docs/reference/pool.md").read_text()

# ── the socket ──


def test_socket_is_for_this_user_alone(home: Path) -> None:
    async def test() -> None:
        before = os.umask(0)
        try:
            async with served(home / "new") as pool:
                assert stat.S_IMODE(pool.path.stat().st_mode) == 0o600
                assert stat.S_IMODE(pool.path.parent.stat().st_mode) == 0o700
        finally:
            os.umask(before)
        assert not os.listdir(home / "new")

    within(test())


def test_socket_of_a_live_server_is_refused_and_a_stale_one_replaced(home: Path) -> None:
    async def test() -> None:
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(home / "pool.sock"))
        async with served(home) as pool:
            with pytest.raises(SessionExists):
                PoolSocket(str(pool.path)).open()
            assert (await pool.remote.run("x")).text

    within(test())


def test_socket_of_a_stranger_who_listens_is_left_alone(home: Path) -> None:
    path = home / "pool.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(SessionExists):
            PoolSocket(str(path)).open()
        assert path.exists()
    assert os.listdir(home) == ["pool.sock"]


def test_socket_path_of_a_file_is_left_alone(home: Path) -> None:
    (home / "pool.sock").write_text("mine")
    with pytest.raises(FolderUnusable):
        PoolSocket(str(home / "pool.sock")).open()
    assert (home / "pool.sock").read_text() == "mine"


def test_socket_of_another_who_came_after_is_not_removed(home: Path) -> None:
    async def test() -> None:
        async with served(home) as pool:
            pool.path.unlink()
            with socket.socket(socket.AF_UNIX) as other:
                other.bind(str(pool.path))
            made = pool.path.stat().st_ino
        assert pool.path.stat().st_ino == made

    within(test())


def test_pool_without_a_server_is_not_running_and_a_file_is_no_socket(home: Path) -> None:
    async def test() -> None:
        remote = RemoteClient(home / "pool.sock")
        with pytest.raises(PoolNotServed):
            await remote.run("x")
        (home / "pool.sock").write_text("")
        with pytest.raises(FolderUnusable):
            await remote.run("x")

    within(test())


# ── limits ──


def test_limit_of_connections_is_reported_and_holds(home: Path) -> None:
    async def test() -> None:
        async with served(home, limits=ServeLimits(max_connections=2)) as pool:
            with pool.talk() as one, pool.talk() as two:
                await one.greet()
                await two.greet()
                with pytest.raises(PoolExhausted):
                    await pool.remote.run("x")
            while pool.server.status()["connections"]:
                await asyncio.sleep(0.01)
            assert (await pool.remote.run("x")).text

    within(test())


def test_limit_of_connections_is_reported_though_the_peer_still_sends(home: Path) -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with served(home, limits=ServeLimits(max_connections=1)) as pool:
            with pool.talk() as one, socket.socket(socket.AF_UNIX) as late:
                await one.greet()
                late.connect(str(pool.path))
                late.setblocking(False)
                async with asyncio.timeout(PATIENCE):
                    await loop.sock_sendall(late, encode(hello()) + b" " * (4 << 20))
                    assert b'"POOL_EXHAUSTED"' in await loop.sock_recv(late, 65536)

    within(test())


def test_limit_of_waiting_requests_is_reported_at_once(home: Path) -> None:
    async def test() -> None:
        busy = Busy()
        async with served(home, busy.agent, limits=ServeLimits(max_queue=1)) as pool:
            tasks = [asyncio.create_task(pool.remote.run("x")) for _ in range(2)]
            while pool.server.status()["requests"] < 2:
                await asyncio.sleep(0.01)
            with pytest.raises(PoolExhausted):
                await pool.remote.run("x")
            busy.go_on.set()
            assert [one.text for one in await asyncio.gather(*tasks)] == ["at last"] * 2

    within(test())


def test_limit_of_a_body_is_reported_though_the_peer_still_sends(home: Path) -> None:
    async def test() -> None:
        async with served(home, limits=ServeLimits(max_body_bytes=1 << 20)) as pool:
            with pytest.raises(LocalProtocolError):
                await pool.remote.run("x" * (9 << 20))
            assert (await pool.remote.run("small")).text

    within(test())


# ── the end ──


def test_end_lets_what_runs_end_and_refuses_the_rest(home: Path) -> None:
    async def test() -> None:
        busy = Busy()
        ending = asyncio.Event()

        async def serve() -> None:
            async with served(home, busy.agent, close_timeout=20.0) as pool:
                waiting.set_result(pool)
                await ending.wait()

        waiting = asyncio.get_running_loop().create_future()
        server = asyncio.create_task(serve())
        pool = await waiting
        running = asyncio.create_task(pool.remote.run("x"))
        await busy.begun.wait()
        early = pool.talk()  # connected, and has asked nothing yet
        await early.greet()
        ending.set()
        while pool.path.exists():
            await asyncio.sleep(0.01)
        with pytest.raises(PoolNotServed):
            await pool.remote.run("y")
        await early.say(RUN)
        assert (await early.hear())["code"] == "CLIENT_CLOSED"
        early.close()
        busy.go_on.set()
        assert (await running).text == "at last"
        await server

    within(test())


def test_shutdown_by_a_peer_is_reported_when_all_has_ended(home: Path) -> None:
    async def test() -> None:
        busy = Busy()

        async def serve() -> None:
            async with served(home, busy.agent) as pool:
                await pool.remote.prewarm(1)
                ready.set()
                await pool.server.asked_to_stop.wait()

        ready = asyncio.Event()
        server = asyncio.create_task(serve())
        await ready.wait()

        def stop() -> tuple[str, bool, bool]:
            with PoolConnection(str(home / "pool.sock")) as line:
                line.ask({"type": "shutdown"})
                answer = line.next()["type"]
                return answer, line.wait_for_end(20.0), bool(busy.agent.alive)

        assert await asyncio.to_thread(stop) == ("stopping", True, False)
        await server

    within(test())


# ── the page about it ──


def test_example_of_the_page_runs(home: Path) -> None:
    [example] = re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL)
    body = textwrap.indent(example, "    ")
    program = f"async def main():\n{body}\n    return result"

    async def test() -> None:
        async with served(home):
            found: dict[str, Any] = {}
            exec(compile(program, "docs/reference/pool.md", "exec"), found)
            assert (await found["main"]()).text == "REPLY#1 to: hello"

    within(test())


def test_options_of_the_page_are_those_of_the_command() -> None:
    named = set(
        re.findall(r"--[a-z-]+", PAGE[PAGE.index("**Options** of `pool serve`") :].partition("\n\n")[0])
    )
    shown = [param for param in command.params if not getattr(param, "hidden", False)]
    assert named == {flag for param in shown for flag in param.opts if flag.startswith("--")}
