"""The endpoint of an agent's hooks: answers at once, answers that are held open, and agents that go away."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from remuda.keeper.hooks import Answer, HookServer
from remuda.untrusted import MAX_DEPTH

PATIENCE = 20.0
Held = asyncio.Future[Answer]


async def post(port: int, payload: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Bytes go as they are, all else as JSON."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    head = f"POST /hook HTTP/1.1\r\nx-remuda-token: t\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    return reader, writer


async def response(reader: asyncio.StreamReader) -> Any:
    head = await reader.readuntil(b"\r\n\r\n")
    [length] = [line for line in head.decode().lower().split("\r\n") if line.startswith("content-length")]
    return json.loads(await reader.readexactly(int(length.partition(":")[2])))


def serve(answer: Callable[[dict[str, Any]], Answer | Held], steps: Callable[[int], Awaitable[None]]) -> None:
    async def run() -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        server = HookServer(answer, listener, "t")
        server.open()
        try:
            async with asyncio.timeout(PATIENCE):
                await steps(listener.getsockname()[1])
        finally:
            await server.close()

    asyncio.run(run())


def test_answer_that_is_there_is_given_at_once_and_none_is_empty() -> None:
    async def steps(port: int) -> None:
        for payload, wanted in (({"n": 1}, {"said": 1}), ({"n": 0}, {})):
            reader, writer = await post(port, payload)
            assert await response(reader) == wanted
            writer.close()

    serve(lambda payload: {"said": 1} if payload["n"] else None, steps)


def test_held_answer_comes_when_it_is_decided_and_the_connection_goes_on() -> None:
    held: list[Held] = []

    def answer(payload: dict[str, Any]) -> Answer | Held:
        if payload["n"] > 1:
            return {"said": payload["n"]}
        held.append(asyncio.get_running_loop().create_future())
        return held[-1]

    async def steps(port: int) -> None:
        reader, writer = await post(port, {"n": 1})
        waiting = asyncio.create_task(response(reader))
        while not held:
            await asyncio.sleep(0)
        assert not waiting.done()
        held[0].set_result({"said": 1})
        assert await waiting == {"said": 1}
        body = json.dumps({"n": 2}).encode()
        head = f"POST /hook HTTP/1.1\r\nx-remuda-token: t\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        assert await response(reader) == {"said": 2}
        writer.close()

    serve(answer, steps)


def test_held_answer_is_cancelled_when_the_agent_waits_no_longer() -> None:
    held: list[Held] = []

    def answer(_: dict[str, Any]) -> Held:
        held.append(asyncio.get_running_loop().create_future())
        return held[-1]

    async def steps(port: int) -> None:
        _, writer = await post(port, {})
        while not held:
            await asyncio.sleep(0)
        writer.close()
        await asyncio.wait(held)
        assert held[0].cancelled()

    serve(answer, steps)


BAD = {
    "infinite": (b'{"x":1e999}', "the number 1e999"),
    "nan": (b'{"x":NaN}', "NaN is not JSON"),
    "deep": (b'{"x":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}", f"deeper than {MAX_DEPTH} levels"),
    "list": (b"[]", "not a JSON object"),
}


@pytest.mark.parametrize(("body", "why"), BAD.values(), ids=BAD.keys())
def test_body_out_of_bounds_is_refused_and_the_log_says_why(
    body: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[dict[str, Any]] = []

    async def steps(port: int) -> None:
        reader, writer = await post(port, body)
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()

    serve(heard.append, steps)
    assert not heard
    assert why in caplog.text


def test_requests_without_the_token_leave_no_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def steps(port: int) -> None:
        for request in (
            b"POST /hook HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"PUT /hook HTTP/1.1\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            assert (await reader.read()).startswith(b"HTTP/1.1 40")
            writer.close()

    serve(lambda _: None, steps)
    assert not caplog.records
