"""What a served pool does with peers who do not keep to its protocol, and peers with such a server."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remuda.errors import PermissionRefused, PoolBroken, RemudaError
from remuda.pool.pool_connection import PoolConnection
from remuda.pool.protocol import VERSION, encode, hello
from remuda.pool.remote import RemoteClient
from remuda.pool.serve import ServeLimits
from remuda.pool.types import Answered, Request, SessionEvent, Token, Usage
from remuda.testing.pool import FakeAgent, FakeSession
from support import counts
from support.heimdall_client import PATIENCE
from support.pool_in_loop import RUN, Served, served, within
from support.pool_servers import SERVERS, bad_server, framed

FUZZ = 3000 if counts.SOAK else 60


def can_be_another() -> bool:
    if os.getuid() != 0:
        sys.__stderr__.write("\nNOT TESTED: only root can be another user\n")  # type: ignore[union-attr]
    return os.getuid() == 0


# ── bad peers ──

FIRST = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "zeros": bytes(64),
    "ones": b"\xff" * 64,
    "no json": framed(b"hello"),
    "no object": framed(b"[]"),
    "no type": framed(b"{}"),
    "unknown type": encode({"type": "sing"}),
    "no hello": encode(RUN),
    "another version": encode({"type": "hello", "version": VERSION + 1}),
    "long hello": encode({"type": "hello", "version": VERSION, "x": "y" * 70_000}),
    "deep": framed(b"[" * 30_000),
}
THEN = {
    "unknown type": encode({"type": "sing"}),
    "hello again": encode(hello()),
    "no prompt": encode({"type": "run"}),
    "a number for a prompt": encode({"type": "run", "prompt": 5}),
    "a list of options": encode({"type": "run", "prompt": "x", "options": []}),
    "a number for permissions": encode({"type": "prewarm", "permissions": 5}),
    "a list of requirements": encode({"type": "prewarm", "requires": []}),
    "an early decision": encode({"type": "decision", "id": "1", "behavior": "allow"}),
    "huge": b"\xff\xff\xff\xff",
    "no json": framed(b"\x80"),
}
REFUSED: dict[str, dict[str, Any]] = {
    "no options": {"options": None},
    "no folder": {"options": {"env": {}}},
    "a folder that is not whole": {"options": {"cwd": ".", "env": {}}},
    "no environment": {"options": {"cwd": "/"}},
    "an environment of numbers": {"options": {"cwd": "/", "env": {"A": 1}}},
    "an unknown option": {"options": {"cwd": "/", "env": {}, "colour": "red"}},
    "a signal": {"options": {"cwd": "/", "env": {}, "signal": True}},
    "permissions as an option": {"options": {"cwd": "/", "env": {}, "permissions": "allow"}},
    "unknown permissions": {"permissions": "perhaps"},
    "an empty prompt": {"prompt": "  "},
    "a request id that leaves its folder": {"options": {"cwd": "/", "env": {}, "request_id": "../../pwn"}},
    "no number for a timeout": {"options": {"cwd": "/", "env": {}, "timeout": "long"}},
    "another backend than the pool has": {"requires": {"backend": "print"}},
    "something that no pool can be": {"requires": {"colour": "red"}},
    "half a character": {"prompt": "\ud800"},
}


async def goes_on(pool: Served) -> None:
    assert (await pool.remote.run("still here")).text.endswith("still here")


@pytest.mark.parametrize("name", FIRST)
def test_server_nonsense_for_a_hello_is_reported_and_the_next_peer_is_served(home: Path, name: str) -> None:
    async def test() -> None:
        async with served(home) as pool:
            with pool.talk() as talk:
                await talk.say(FIRST[name])
                talk.end_sending()
                heard = await talk.all()
            assert [message.get("code") for message in heard] == ["LOCAL_PROTOCOL_ERROR"]
            await goes_on(pool)

    within(test())


@pytest.mark.parametrize("name", THEN)
def test_server_nonsense_for_a_request_is_reported_and_the_next_peer_is_served(home: Path, name: str) -> None:
    async def test() -> None:
        async with served(home) as pool:
            with pool.talk() as talk:
                await talk.greet()
                await talk.say(THEN[name])
                talk.end_sending()
                heard = await talk.all()
            assert [message.get("code") for message in heard] == ["LOCAL_PROTOCOL_ERROR"]
            await goes_on(pool)

    within(test())


@pytest.mark.parametrize("name", REFUSED)
def test_server_a_request_that_cannot_be_is_refused_before_anything_runs(home: Path, name: str) -> None:
    async def test() -> None:
        async with served(home) as pool:
            with pool.talk() as talk:
                await talk.greet()
                await talk.say({**RUN, **REFUSED[name]})
                heard = await talk.all()
            wanted = "INPUT_ERROR" if "prompt" in REFUSED[name] else "INVALID_OPTIONS"
            assert [message.get("code") for message in heard] == [wanted]
            assert not pool.agent.sessions
            await goes_on(pool)

    within(test())


def test_server_nonsense_while_a_request_runs_stops_its_turn(home: Path) -> None:
    async def test() -> None:
        begun, stopped = asyncio.Event(), asyncio.Event()

        async def answer(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
            yield Token("x")
            begun.set()
            await asyncio.Event().wait()

        async def interrupting(session: FakeSession) -> None:
            stopped.set()

        agent = FakeAgent(answer)
        agent.interrupting = interrupting
        async with served(home, agent) as pool:
            with pool.talk() as talk:
                await talk.greet()
                await talk.say(RUN)
                await begun.wait()
                await talk.say({"type": "decision", "id": "p", "behavior": "perhaps"})
                talk.end_sending()
                assert [message["code"] for message in await talk.all()] == ["LOCAL_PROTOCOL_ERROR"]
            await stopped.wait()

    within(test())


def test_server_peers_who_hang_up_at_any_byte_harm_no_one(home: Path) -> None:
    stream = encode(hello()) + encode(RUN)

    async def test() -> None:
        async with served(home) as pool:
            for cut in range(0, len(stream), 7):
                with pool.talk() as talk:
                    await talk.say(stream[:cut])
            await goes_on(pool)
            while pool.server.status()["connections"]:
                await asyncio.sleep(0.01)

    within(test())


@pytest.mark.soak
def test_server_random_bytes_harm_no_one(home: Path) -> None:
    dice = random.Random(7)

    async def test() -> None:
        async with served(home) as pool:
            for _ in range(FUZZ):
                with pool.talk() as talk:
                    good = encode(hello()) + encode(RUN)
                    data = bytearray(good[: dice.randrange(len(good))])
                    for _ in range(dice.randrange(6)):
                        data.insert(dice.randrange(len(data) + 1), dice.randrange(256))
                    await talk.say(bytes(data))
                    if dice.random() < 0.5:  # others have hung up by now
                        talk.end_sending()
                        await talk.all()
            await goes_on(pool)

    within(test())


def test_server_a_peer_who_says_nothing_is_let_go(home: Path) -> None:
    async def test() -> None:
        async with served(home, limits=ServeLimits(first_word_timeout=0.05)) as pool:
            with pool.talk() as talk:
                assert await talk.all() == []

    within(test())


def test_server_peers_who_say_nothing_do_not_keep_it_from_ending(home: Path) -> None:
    async def test() -> None:
        # Far longer than the test may take.
        async with served(home, limits=ServeLimits(first_word_timeout=1000, request_timeout=1000)) as pool:
            silent, greeted = pool.talk(), pool.talk()
            await greeted.greet()
            while pool.server.status()["connections"] < 2:
                await asyncio.sleep(0.01)
        assert [one["code"] for one in await silent.all() + await greeted.all()] == ["CLIENT_CLOSED"] * 2
        silent.close()
        greeted.close()

    within(test())


def test_server_a_peer_who_does_not_read_is_let_go_and_his_turn_stopped(home: Path) -> None:
    async def answer(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        while request.prompt == "endless":
            yield Token("x" * 100_000)
            await asyncio.sleep(0)
        yield Answered("still here", usage=Usage())

    async def test() -> None:
        async with served(home, FakeAgent(answer), limits=ServeLimits(slow_timeout=0.2)) as pool:
            with pool.talk() as talk:
                await talk.say(hello(), {**RUN, "prompt": "endless", "stream": True})
                while not pool.server.status()["pool"]["aborts"]:
                    await asyncio.sleep(0.01)
            await goes_on(pool)

    within(test())


def test_server_a_peer_who_waits_hears_that_it_lives(home: Path) -> None:
    go_on = asyncio.Event()

    async def answer(session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        await go_on.wait()
        yield Answered("at last", usage=Usage())

    async def test() -> None:
        async with served(home, FakeAgent(answer), limits=ServeLimits(alive_interval=0.02)) as pool:
            patient = asyncio.create_task(pool.remote.run("x"))
            with pool.talk() as talk:
                await talk.greet()
                await talk.say(RUN)
                while talk.alive < 5:
                    await talk.listen()
                go_on.set()
                assert (await talk.hear())["result"]["text"] == "at last"
            assert (await patient).text == "at last"

    within(test())


def test_server_another_user_is_refused_by_the_kernels_word(home: Path) -> None:
    if not can_be_another():
        return
    program = (
        "import os, socket, sys\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX); s.settimeout(20)\n"
        "s.connect(sys.argv[1])\n"
        "try:\n"
        "    s.sendall(bytes.fromhex(sys.argv[2]))\n"
        "    print(s.recv(100))\n"
        "except ConnectionError:\n"
        "    print(b'')\n"
    )

    async def test() -> None:
        async with served(home) as pool:
            # He would not get so far: neither folder nor socket is his to enter.
            home.chmod(0o711)
            pool.path.chmod(0o666)
            said = (encode(hello()) + encode({"type": "status"})).hex()
            done = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-c", program, str(pool.path), said],
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )
            assert done.stdout == "b''\n", done
            await goes_on(pool)

    within(test())


# ── bad servers ──


@pytest.mark.parametrize("name", SERVERS)
def test_peer_a_server_that_is_broken_is_told_from_one_that_is_not_there(home: Path, name: str) -> None:
    path = home / "pool.sock"

    async def ask() -> None:
        await RemoteClient(path, silence_timeout=0.5).run("x", timeout=1)

    def ask_blocking() -> None:
        with PoolConnection(str(path), silence_timeout=0.5) as line:
            line.ask(RUN)
            for message in line.messages():
                if message["type"] == "done":
                    from remuda.pool.codec import read_result

                    read_result(message["result"])

    with bad_server(path, SERVERS[name]):
        with pytest.raises(RemudaError) as caught:
            within(ask())
        assert caught.value.exit_code == 9, caught.value
        with pytest.raises(RemudaError) as caught:
            ask_blocking()
        assert caught.value.exit_code == 9, caught.value


def test_peer_a_server_that_only_says_that_it_lives_is_given_up(home: Path) -> None:
    stop = threading.Event()

    def speak(connection: socket.socket) -> None:
        connection.sendall(encode(hello()))
        while not stop.wait(0.01):
            connection.sendall(encode({"type": "alive"}))

    with bad_server(home / "pool.sock", speak):
        with PoolConnection(str(home / "pool.sock")) as line:
            line.ask(RUN)
            line.deadline = 0.0
            with pytest.raises(PoolBroken):
                line.next()
        stop.set()


def test_peer_a_server_of_another_user_learns_nothing(home: Path) -> None:
    if not can_be_another():
        return
    program = (
        "import os, socket, sys\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "s.bind(sys.argv[1]); s.listen(); print('up', flush=True)\n"
        "c, _ = s.accept(); c.settimeout(20); print(c.recv(100), flush=True)\n"
    )
    (home / "theirs").mkdir()
    (home / "theirs").chmod(0o777)
    home.chmod(0o711)
    path = home / "theirs" / "pool.sock"
    server = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "up\n"
        with pytest.raises(PermissionRefused):
            PoolConnection(str(path))
        assert server.stdout.readline() == "b''\n"
    finally:
        server.kill()
        server.communicate()
