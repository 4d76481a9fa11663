"""What type checkers know of the pool. mypy reads this file: a wrong type, or an `ignore` that is not needed,
fails `make type`; it runs as well, on the fake agent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import assert_type

import pytest

import remuda
from remuda import (
    Allow,
    Client,
    Deny,
    Done,
    Failed,
    InvalidOptions,
    PermissionRequest,
    Raw,
    RunResult,
    SyncClient,
    Token,
    ToolResult,
    ToolUse,
    Usage,
)
from remuda.pool.types import StreamEvent
from remuda.testing.pool import FakeAgent
from support.pool import virtual


async def decide(request: PermissionRequest) -> Allow | Deny:
    return Allow(request.input) if request.tool == "Read" else Deny("no")


@virtual
async def test_client_types() -> None:
    async with Client(session_factory=FakeAgent(), pool_size=2, backend="terminal") as client:
        assert_type(client, Client)
        result = assert_type(await client.run("x", model="m", timeout=5, permissions=decide), RunResult)
        assert_type(result.usage, Usage | None)
        assert_type(await client.complete(result), RunResult)
        stream = assert_type(client.stream("x", permissions="allow"), AsyncGenerator[StreamEvent, None])
        told = [shown(event) async for event in stream]
        assert told[-1].startswith("REPLY")
        raw = assert_type(client.stream("x", raw=True), AsyncGenerator[StreamEvent | Raw, None])
        await raw.aclose()
        assert_type(await client.prewarm(1, cwd="."), None)
        assert_type(client.metrics(), str)
        assert_type(client.stats(), dict[str, object])
        assert_type(client.abort("r"), bool)


def shown(event: StreamEvent) -> str:
    """Every kind of event is here: mypy would miss a `return` for one that is not."""
    match event:
        case Token(text):
            return text
        case ToolUse(name=name) | PermissionRequest(tool=name):
            return name
        case ToolResult():
            return ""
        case Done(result):
            return result.text
        case Failed(error):
            return error.code


def test_sync_client_types() -> None:
    with SyncClient(session_factory=FakeAgent()) as client:
        assert_type(client, SyncClient)
        assert_type(client.run("x"), RunResult)
        assert_type(client.stream("x"), Generator[StreamEvent, None, None])


def test_what_type_checkers_refuse_is_refused() -> None:
    with pytest.raises(InvalidOptions):
        Client(poolsize=2)  # type: ignore[call-arg]
    with pytest.raises(InvalidOptions):
        Client(backend="interactive")  # type: ignore[arg-type]
    with SyncClient(session_factory=FakeAgent()) as client:
        with pytest.raises(InvalidOptions):
            client.run("x", timeout="5")  # type: ignore[arg-type]
        with pytest.raises(InvalidOptions):
            client.prewarm(timeout=5)  # type: ignore[call-arg]


def test_errors_have_their_facts() -> None:
    assert_type(remuda.PoolExhausted("x", waited=1.0, size=2).waited, float)
    assert_type(remuda.SessionCrashed("x", detail="y").detail, str)
    assert_type(remuda.Aborted("x").code, str)
