"""Events, a service to tell them to, and a complete boss."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from remuda.agents.state import Source
from remuda.boss.attention.model import Event, EventKind, Item
from remuda.boss.attention.session_index import SessionIndex
from remuda.boss.client import BossClient
from remuda.boss.detach import start_detached
from remuda.boss.folder import BossFolder
from remuda.boss.records.store import Store
from remuda.boss.service import BossService
from support.heimdall_client import PATIENCE
from support.keeper import Process, until

T = TypeVar("T")
KEPT = "remuda.boss.evidence.kept:KeptSessions"
USAGE = "remuda.boss.evidence.usage:UsageReader"


def event(kind: str, at: float, source: Source = Source.HOOK, session: str = "s", **facts: Any) -> Event:
    """One that is the same whenever it is made with the same words."""
    number = f"{kind}:{at}:{source}:{session}:{facts.get('tool_use_id')}"
    return Event(EventKind(kind), session, at, source, number, facts)


def fed(*events: Event, now: float = 1e9) -> SessionIndex:
    """An index that was fed these events."""
    index = SessionIndex()
    for one in events:
        index.take(one, now)
    return index


def only(index: SessionIndex) -> Item:
    """The one item of its queue."""
    (item,) = index.queue()
    return item


def stop(session: str, at: float, **more: Any) -> Event:
    return event("stopped", at, session=session, message=f"{session} is done", **more)


class Clock:
    """Stands still."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def open_service(folder: Path, clock: Callable[[], float] | None = None) -> AsyncIterator[BossService]:
    service = BossService(Store(folder / "boss.db"), clock or Clock())
    await service.open()
    try:
        yield service
    finally:
        await service.close()


def with_service(
    folder: Path, work: Callable[[BossService], Awaitable[T]], clock: Callable[[], float] | None = None
) -> T:
    """Do that at a service of its own, from open to close."""

    async def whole() -> T:
        async with open_service(folder, clock) as service:
            return await work(service)

    return asyncio.run(whole())


# ── a boss of its own, in a process ──


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def lasting_port() -> int:
    """A free port for a boss that is started again.

    Not one that clients get by chance: while no one listens there another test may take it.
    """
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port := random.randrange(max(1025, first // 2), first)))
            except OSError:
                continue
            return port


class RunningBoss:
    """Started by `start`, and ended for certain by `close`. It hears what is posted, and its `sources`.

    As a context it is started at once.
    """

    def __init__(
        self, home: Path, sources: tuple[str, ...] = (), access: Mapping[str, Any] | None = None
    ) -> None:
        self._sources = sources
        self._access = access
        self.folder = BossFolder(home / "boss")
        self.client = BossClient(self.folder, timeout=PATIENCE)
        self.process: Process | None = None
        self.port = 0
        self.may_complain = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, port: int = 0) -> dict[str, Any]:
        told = start_detached(self.folder, port, sources=self._sources, access=self._access)
        self.process = Process(told["pid"])
        self.port = told["port"]
        return told

    def end(self, number: int = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.signal(number)
        assert self.process.ended()
        try:
            os.waitpid(self.process.pid, 0)
        except ChildProcessError:  # the reaper of the suite was quicker
            pass
        self.process.close()
        self.process = None

    def restart(self, number: int = signal.SIGTERM) -> None:
        self.end(number)
        self.start()

    def close(self) -> None:
        if self.process is not None:
            self.end(signal.SIGKILL)
        log = self.folder.log.read_text() if self.folder.log.exists() else ""
        complaints = [line for line in log.splitlines() if " ERROR " in line or line.startswith("Traceback")]
        assert self.may_complain or not complaints, f"the boss logged errors: {complaints}"

    @property
    def peak_kb(self) -> int:
        """The most memory that it had so far."""
        assert self.process is not None
        return int(Path(f"/proc/{self.process.pid}/status").read_text().split("VmHWM:")[1].split()[0])

    @property
    def token(self) -> str:
        return self.folder.token.read_text().strip()

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        *,
        token: str | None = "right",
    ) -> Answer:
        """Over loopback, as a stranger would: bytes go as they are, all else as JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        sent = dict(headers or {})
        if token is not None:
            sent.setdefault("Authorization", f"Bearer {self.token if token == 'right' else token}")
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if body is not None and not isinstance(body, bytes):
            sent.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def tell(self, *events: Event) -> None:
        self.client.post("events", body={"events": [event_document(one) for one in events]})

    @contextmanager
    def holding(self, told: Mapping[str, Any]) -> Iterator[Future[dict[str, Any]]]:
        """A hook that asks for permission, and waits: what it is to say."""
        with ThreadPoolExecutor(1) as beside:
            hook = beside.submit(self.client.post, "hooks", "permission", body=told)
            until(lambda: hook.done() or self._is_held(), "a hook that is held")
            yield hook

    def _is_held(self) -> bool:
        return any(one["expires_at"] for one in self.client.get("approvals", state="open")["approvals"])

    def waiting(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.get("queue")["items"]
        return found


def event_document(event: Event) -> dict[str, Any]:
    return {
        "kind": str(event.kind),
        "session_id": event.session_id,
        "at": event.at,
        "source": event.source.label,
        "id": event.id,
        "facts": dict(event.facts),
    }
