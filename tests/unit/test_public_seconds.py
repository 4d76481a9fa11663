"""Every public callable that takes seconds: infinity, NaN, negative and endless numbers, and other types."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import remuda
from remuda import (
    AsyncBoss,
    AsyncSession,
    Boss,
    Client,
    InvalidOptions,
    RemoteClient,
    RemudaError,
    Session,
    SessionSpec,
    SyncClient,
)
from remuda.keeper.record import SessionRecord
from remuda.paths import SessionPaths
from remuda.pool.options import AsyncRunOptions, ClientOptions

BAD = [math.inf, -math.inf, math.nan, -1, -0.5, "5", True, [5]]
ENDLESS = [10**400, 1e300]


def _times(options: Any) -> list[str]:
    return [name for name, hint in options.__annotations__.items() if "float" in str(hint)]


_ELSEWHERE = {
    "Inbox.overview:now",  # a date, for tests
    "KeeperClient.receive:timeout",  # clamped: see below
    "KeeperClient.wait_exit:timeout",  # see below
    "KeeperClient.take_tail:timeout",
    "KeeperClient.ask_end:grace",
    "Boss.later:when",  # a TIME: test_session_types
    "AsyncBoss.later:when",
}
_RESULTS = {"RunResult", "Done", "Failed", "Token", "ToolUse", "ToolResult", "Usage", "PermissionRequest"}
_RESULTS |= {"Raw", "SessionSpawned", "SessionEvicted", "RequestDone", "RequestError"}
_RESULTS |= {"Approval", "Entry", "Fate", "Overview", "ReplyResult", "StreamEvent", "WaitingItem"}
_RESULTS |= {name for name in remuda.__all__ if name.endswith("Options")}
"""What we hand out, and take from no one."""


def _run(client: Client | RemoteClient, **options: Any) -> object:
    async def whole() -> object:
        async with client:
            return await client.run("x", **options)

    return asyncio.run(whole())


def _spec(**given: Any) -> None:
    SessionSpec(name="s", folder="/tmp", argv=["true"], cwd="/", env={}, **given).check()


def _named(call: Callable[..., object], name: str) -> Callable[[Any], object]:
    return lambda value: call(**{name: value})


def _table(folder: Path) -> dict[str, Callable[[Any], object]]:
    """Each is called with a value for its seconds. The session in the folder is dead."""

    def session() -> Session:
        return Session("dead", folder=folder)

    def later() -> AsyncSession:
        return AsyncSession("dead", folder=folder)

    def starts(**given: Any) -> Session:
        return Session.start("s", missing, folder=folder, **given)

    missing = ["./there-is-no-such-program"]
    nowhere = str(folder / "pool.sock")
    return {
        "Session.start:timeout": lambda value: starts(timeout=value),
        **{
            f"Session.start:{name}": _named(starts, name)
            for name in ("grace", "turn_timeout", "draft_patience")
        },
        "Session.wait:timeout": lambda value: session().wait("no-such-message", value),
        "Session.ask:timeout": lambda value: session().ask("", value),
        "Session.cancel:timeout": lambda value: session().cancel(None, value),
        "Session.wait_idle:timeout": lambda value: session().wait_idle(value),
        "Session.kill:grace": lambda value: session().kill(value),
        "Session.interrupt:timeout": lambda value: session().interrupt(value),
        "AsyncSession.start:timeout": lambda value: asyncio.run(
            AsyncSession.start("s", missing, folder=folder, timeout=value)
        ),
        "AsyncSession.wait:timeout": lambda value: asyncio.run(later().wait("no-such-message", value)),
        "AsyncSession.ask:timeout": lambda value: asyncio.run(later().ask("", value)),
        "AsyncSession.cancel:timeout": lambda value: asyncio.run(later().cancel(None, value)),
        "AsyncSession.interrupt:timeout": lambda value: asyncio.run(later().interrupt(value)),
        "AsyncSession.wait_idle:timeout": lambda value: asyncio.run(later().wait_idle(value)),
        "AsyncSession.kill:grace": lambda value: asyncio.run(later().kill(value)),
        "Boss.__init__:timeout": lambda value: Boss(folder=folder, timeout=value),
        "Boss.reply:wait": lambda value: Boss(folder=folder).reply("s", "x", wait=value),
        "AsyncBoss.__init__:timeout": lambda value: AsyncBoss(folder=folder, timeout=value),
        "AsyncBoss.reply:wait": lambda value: asyncio.run(
            AsyncBoss(folder=folder).reply("s", "x", wait=value)
        ),
        "start_session:timeout": lambda value: remuda.start_session(
            SessionSpec(name="s", folder=str(folder), argv=missing, cwd="/", env={}), value
        ),
        **{
            f"SessionSpec.__init__:{name}": _named(_spec, name)
            for name in ("kill_grace", "turn_timeout", "draft_patience", "stop_timeout")
        },
        **{f"Client.__init__:{name}": _named(Client, name) for name in _times(ClientOptions)},
        "SyncClient.__init__:spawn_timeout": lambda value: SyncClient(spawn_timeout=value),
        "Client.run:timeout": lambda value: _run(Client(claude_binary=missing[0]), timeout=value),
        "RemoteClient.__init__:silence_timeout": lambda value: RemoteClient(nowhere, silence_timeout=value),
    }


@pytest.fixture
def folder(home: Path) -> Path:
    made = home / "sessions"
    made.mkdir(0o700)
    SessionRecord("dead", "demo", ["x"], "/", 1.0, ended_at=2.0).save(SessionPaths(made, "dead").record)
    return made


def test_seconds_table_has_every_public_callable_that_takes_a_float(folder: Path) -> None:
    known = {*_table(folder), *_ELSEWHERE}
    found = set()
    for name in remuda.__all__:
        one = getattr(remuda, name)
        if not callable(one) or name in _RESULTS or (isinstance(one, type) and issubclass(one, Exception)):
            continue
        calls = {name: one} if not isinstance(one, type) else _methods(name, one)
        for where, call in calls.items():
            for parameter in inspect.signature(call).parameters.values():
                if "float" in str(parameter.annotation):
                    found.add(f"{where}:{parameter.name}")
    assert found, "annotations cannot be read"
    assert found <= known
    assert _times(AsyncRunOptions) == ["timeout", "max_cost"]  # the second one is money


def _methods(name: str, one: type) -> dict[str, Any]:
    return {
        f"{name}.{method}": call
        for method, call in inspect.getmembers(one, callable)
        if method == "__init__" or not method.startswith("_")
    }


def test_seconds_that_are_no_time_are_refused_by_every_public_callable(folder: Path) -> None:
    for where, call in _table(folder).items():
        for value in BAD:
            with pytest.raises(InvalidOptions) as caught:
                call(value)
            assert where.partition(":")[2].removeprefix("kill_") in caught.value.message, (where, value)


def test_seconds_without_end_are_taken_or_refused_and_never_overflow(folder: Path) -> None:
    for call in _table(folder).values():
        for value in ENDLESS:
            try:
                made = call(value)
            except RemudaError:
                continue
            if isinstance(made, SyncClient):
                made.close()
