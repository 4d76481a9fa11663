"""Hosts of a fleet without a boss: real connections to a real hub, real pools of made-up agents."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from remuda.fleet.hub import Hub
from remuda.fleet.membership import Membership, read_key
from remuda.fleet.requests import SentRequests
from remuda.fleet.streams import SHARED_LEASE, consumers
from remuda.fleet.work import RequestRunner
from remuda.pool.client import Client
from remuda.pool.serve import serving
from remuda.pool.types import Answered, Request, SessionEvent, Token, Usage
from remuda.pool.worker import request_key
from remuda.testing.pool import FakeAgent, FakeSession
from support.fleet import HubMachine


class Host:
    """A host that runs requests. Its agents wait for `gate`, and note what they ran."""

    def __init__(
        self, hub: HubMachine, folder: Path, name: str, *, lease: float = SHARED_LEASE, url: str | None = None
    ) -> None:
        """`lease` is that of the queue of the hub: see `set_lease`. `url` is another way to the hub."""
        self.name = name
        self.folder = folder / name
        self.folder.mkdir(mode=0o700)
        self._member = Membership(read_key(hub.new_key(name, "host")), url or hub.url, name)
        self._lease = lease
        self.ran: list[str] = []
        self.running = 0
        self.account = ""
        self.began = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self._tasks: list[asyncio.Task[Any]] = []
        self._stop = asyncio.Event()
        self._runner: RequestRunner | None = None
        self._hub: Hub | None = None

    async def _answer(self, session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        self.ran.append(request.prompt)
        self.profile = session.profile
        self.running += 1
        self.began.set()
        try:
            async for event in self.answer(session, request):
                yield event
        finally:
            self.running -= 1

    async def answer(self, session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        yield Token("one ")
        await self.gate.wait()
        yield Token("two")
        secret = session.profile.env.get("SECRET", "")
        yield Answered(f"{self.name}: {request.prompt} {secret}", usage=Usage(1, 2))

    async def _serve(self, ready: asyncio.Event) -> None:
        client = Client(
            backend="terminal",
            session_factory=FakeAgent(self._answer),
            pool_size=2,
            inherit_env=False,
            close_timeout=0.0,
        )
        async with serving(
            client, str(self.folder / "pool.sock"), fleet=True, agent="claude", account=self.account
        ):
            ready.set()
            await self._stop.wait()

    async def start(self) -> None:
        ready = asyncio.Event()
        self._tasks = [asyncio.create_task(self._serve(ready))]
        await ready.wait()
        await self.connect()

    async def connect(self) -> None:
        self._hub = await Hub.connect(self._member)
        await self._hub.measure()
        if self._runner is None:
            socket = str(self.folder / "pool.sock")
            accounts = self.folder / "accounts"
            self._runner = RequestRunner(self.folder, lambda _: None, socket, accounts, self._lease)
        self._tasks.append(asyncio.create_task(self._runner.run(self._hub)))

    async def die(self) -> None:
        """As a boss that is killed: what it had in memory is lost, and the pool aborts what it ran."""
        assert self._runner is not None
        assert self._hub is not None
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.gather(*self._tasks[1:], return_exceptions=True)
        del self._tasks[1:]
        await self._runner.close()
        self._runner = None
        await self._hub.close()

    async def close(self) -> None:
        if self._runner is not None:
            await self.die()
        self._stop.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Sender:
    """A boss that sends requests."""

    def __init__(
        self, hub: HubMachine, folder: Path, name: str = "desk", lease: float = SHARED_LEASE
    ) -> None:
        self.folder = folder / name
        self._lease = lease
        self.member = Membership(read_key(hub.new_key(name, "operator")), hub.url, name)
        self.requests = SentRequests(self.folder, lease)
        self.hub: Hub | None = None
        self._task: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        self.hub = await Hub.connect(self.member)
        await self.hub.measure()
        self._task = asyncio.create_task(self.requests.run(self.hub))

    async def send(self, prompt: str, *, seconds: float = 120.0, **more: Any) -> str:
        options = more.get("options", {"cwd": str(self.folder.parent), "env": {"SECRET": "s3cret"}})
        payload = {"prompt": prompt, "options": options, "stream": True, **more}
        assert self.hub is not None
        key = request_key(options, None, None)
        return str((await self.requests.submit(self.hub, key, payload, seconds))["id"])

    async def end(self, request: str) -> dict[str, Any]:
        """Wait for its end; returns the document with all events."""
        async with asyncio.timeout(110):
            while True:
                document = await self.requests.follow(request, 10**6, 5.0)
                if document["outcome"] is not None:
                    return await self.requests.follow(request, 0, 0.0)

    async def die(self, *, restart: bool = True) -> None:
        """As a boss that is killed: what is not on its disk is lost."""
        assert self.hub is not None
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.hub.close()
        if restart:
            self.requests = SentRequests(self.folder, self._lease)


async def set_lease(hub: HubMachine, lease: float) -> None:
    """Have the hub hand out a request again after that many seconds."""
    admin = await Hub.connect(hub.folder.admin())
    stream, config = next(consumers(()))
    asked = {"stream_name": stream, "config": {**config, "ack_wait": int(lease * 1e9)}}
    await admin._administer(f"CONSUMER.DURABLE.CREATE.{stream}.{config['name']}", asked)
    await admin.close()


@contextlib.asynccontextmanager
async def fleet(
    hub: HubMachine, folder: Path, *names: str, lease: float = SHARED_LEASE
) -> AsyncIterator[tuple[Sender, list[Host]]]:
    """A sender and hosts that are connected."""
    sender = Sender(hub, folder, lease=lease)
    hosts = [Host(hub, folder, name, lease=lease) for name in names]
    try:
        await set_lease(hub, lease)
        await sender.connect()
        for host in hosts:
            await host.start()
        yield sender, hosts
    finally:
        for host in hosts:
            await host.close()
        with contextlib.suppress(AssertionError):
            await sender.die(restart=False)
