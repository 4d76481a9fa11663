"""Hosts of a fleet in one process: `python fleet_hosts.py`, told what to do by lines of JSON on its input.

Each host is a boss with its own store, the connection of its own key, and the product's own `FleetHost` and
`EventReporter`. Simulated are the agents: an event is handed to the boss, and no keeper runs. Times are those
of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

from remuda.boss.attention.model import Event, EventKind, Source
from remuda.boss.folder import BossFolder
from remuda.boss.ports import BossParts
from remuda.boss.records.store import Store
from remuda.boss.service import BossService
from remuda.fleet.events import EventReporter
from remuda.fleet.exchange import FleetMessage
from remuda.fleet.held_name import HeldName
from remuda.fleet.host import FleetHost
from remuda.fleet.hub import Hub
from remuda.fleet.hub_folder import HubFolder
from remuda.fleet.membership import Membership, read_key
from remuda.inbox.journal import Inbox
from remuda.inbox.writer import Writer

SESSIONS = 100
FLOOR = "FLOOR"
"""The stream of the floor, with the settings of that for events."""
_TEXT = "done " * 20


class _TimedWriter(Writer):
    """Notes when the last line was on the disk."""

    synced_at = 0.0

    def append(self, line: bytes) -> int:
        end = super().append(line)
        self.synced_at = time.monotonic()
        return end


class _TimedHost(FleetHost):
    """Notes when a message is on the disk of the host. The record of its dedup key is written after that."""

    put_at: ClassVar[dict[str, float]] = {}

    def _put(self, message: FleetMessage, age: float, inbox: Inbox) -> None:
        if not isinstance(writer := inbox._writer, _TimedWriter):
            writer = inbox._writer = _TimedWriter(inbox._files)
        super()._put(message, age, inbox)
        self.put_at[message.id] = writer.synced_at


class Host:
    def __init__(self, name: str, key: Path, url: str, memory: Path, disk: Path) -> None:
        self.name = name
        self._member = Membership(read_key(key), url, name)
        self._folder, self._sessions = memory / name, disk / name
        self._folder.mkdir(mode=0o700)
        self._sessions.mkdir(mode=0o700)
        self._service = BossService(Store(self._folder / "boss.db"))
        boss = BossParts(self._service)
        self._name = HeldName()
        self._host = _TimedHost(boss, self._folder, self._sessions, BossFolder(self._folder), self._name)
        self._hub: Hub | None = None
        self._bare: Hub | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._count = 0
        self.sent_at: dict[str, float] = {}

    async def connect(self) -> None:
        await self._service.open()
        hub = self._hub = await Hub.connect(self._member)
        await hub.measure()
        await self._name.claim(hub)
        self._tasks.append(asyncio.create_task(self._name.renew_forever(hub)))
        self._tasks += [asyncio.create_task(run(hub)) for _, run in self._host.parts()]

    async def start_sessions(self) -> None:
        """Sessions that are idle. Their beginning is not reported: the hub shall have nothing but them."""
        for number in range(SESSIONS):
            await self.take(EventKind.REGISTERED, number, {"cwd": f"/srv/{number}", "repo": "/srv"})
        (self._sessions / "box.inbox").mkdir(mode=0o700)
        while len(self._host._values) < SESSIONS:
            self.check()
            await asyncio.sleep(0.01)
        assert self._hub is not None
        reporter = EventReporter(self._service, self._folder)
        self._service.listeners.insert(0, self._note)
        self._tasks.append(asyncio.create_task(reporter.run(self._hub)))

    def _note(self, event: Event) -> None:
        self.sent_at[event.id] = time.monotonic()

    async def take(self, kind: EventKind, number: int, facts: dict[str, Any]) -> None:
        self._count += 1
        event_id = f"{self.name}:{self._count}"
        facts |= {"message": f"{event_id} {_TEXT}"} if kind is EventKind.STOPPED else {}
        event = Event(kind, f"{self.name}-{number}", time.time(), Source.HOOK, event_id, facts)
        await self._service.take(event)

    async def next_event(self) -> None:
        """A prompt, then its end, in one session after the other."""
        kind = EventKind.STOPPED if self._count % 2 else EventKind.PROMPTED
        await self.take(kind, self._count // 2 % SESSIONS, {})

    async def connect_bare(self, admin: Membership) -> None:
        self._bare = await Hub.connect(admin)

    async def publish_bare(self, number: int) -> None:
        """What the floor has of a host: `nats-py` and nothing of ours."""
        assert self._bare is not None
        data = json.dumps({"id": f"{self.name}:{number}", "at": time.monotonic(), "text": _TEXT * 3})
        await self._bare._jetstream.publish(f"floor.{self.name}", data.encode())

    def check(self) -> None:
        """Raises what ended the host, if it was not we."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._host.close()
        for hub in (self._hub, self._bare):
            if hub is not None:
                await hub.close()
        await self._service.close()


class Hosts:
    def __init__(self, hosts: list[Host], admin: Membership) -> None:
        self._hosts = hosts
        self._admin = admin
        self._number = 0

    async def connect(self) -> None:
        await asyncio.gather(*(one.connect() for one in self._hosts))
        await asyncio.gather(*(one.connect_bare(self._admin) for one in self._hosts))

    async def start_sessions(self) -> None:
        for one in self._hosts:  # one after the other: the hub syncs ten thousand values
            await one.start_sessions()

    async def events(self, rate: float, seconds: float) -> None:
        await self._pace(rate, seconds, lambda host, _: host.next_event())

    async def bare(self, rate: float, seconds: float) -> None:
        await self._pace(rate, seconds, lambda host, number: host.publish_bare(number))

    async def _pace(self, rate: float, seconds: float, do: Any) -> None:
        """So many a second, by one host after the other; none waits for the one before."""
        begin, running = time.monotonic(), set()
        for number in range(int(rate * seconds)):
            if (wait := begin + number / rate - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            self._number += 1
            task = asyncio.create_task(do(self._hosts[self._number % len(self._hosts)], self._number))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)

    async def times(self) -> dict[str, dict[str, float]]:
        sent: dict[str, float] = {}
        for one in self._hosts:
            sent |= one.sent_at
            one.sent_at.clear()
        return {"events": sent, "messages": dict(_TimedHost.put_at)}

    def check(self) -> None:
        for one in self._hosts:
            one.check()

    async def close(self) -> None:
        for one in self._hosts:
            await one.close()


async def _main() -> None:
    begun = json.loads(sys.stdin.readline())
    admin, memory, disk = HubFolder(Path(begun["hub"])).admin(), Path(begun["memory"]), Path(begun["disk"])
    hosts = Hosts([Host(Path(one).stem, Path(one), admin.url, memory, disk) for one in begun["keys"]], admin)
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        answer = await getattr(hosts, order.pop("do"))(**order)
        hosts.check()
        print(json.dumps(answer), flush=True)
    await hosts.close()


if __name__ == "__main__":
    asyncio.run(_main())
