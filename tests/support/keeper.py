"""A session under test: its processes, its files, and the ways to reach it."""

from __future__ import annotations

import http.client
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from remuda.errors import RemudaError
from remuda.keeper.client import KeeperClient
from remuda.keeper.spec import SessionSpec
from remuda.keeper.start import Started, start_session
from remuda.paths import SessionPaths
from remuda.proctree import descendants
from remuda.readable import is_readable
from remuda.wire import connection as wire
from remuda.wire.connection import ClientEvent
from support.heimdall_client import PATIENCE, HeimdallClient

T = TypeVar("T")
_LOOK_INTERVAL = 0.02
# A shell that waits for signals. It runs no trap while it waits for a child, or for a line, that it began
# to wait for between the signal and its look for one: so it waits for nothing long.
AWAKE = "while :; do sleep 0.05; done"


def until(look: Callable[[], T], what: str) -> T:
    """Look again until what is seen counts as true, and return that.

    For what no event reports: a file that another process writes, a process that appears.
    """
    deadline = time.monotonic() + PATIENCE
    while not (seen := look()):
        assert time.monotonic() < deadline, f"{what} never came; last seen: {seen!r}"
        time.sleep(_LOOK_INTERVAL)
    return seen


def until_equal(look: Callable[[], T], wanted: T, what: str) -> None:
    """Look again until that is seen; if it never is, say what was seen last."""
    seen: list[T] = []

    def is_seen() -> bool:
        seen[:] = [look()]
        return seen[0] == wanted

    try:
        until(is_seen, what)
    except AssertionError:
        raise AssertionError(f"{what} never came; last seen: {seen[0]!r}") from None


class Process:
    """Some process, held by its descriptor: its number cannot come to mean another."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = os.pidfd_open(pid)

    def ended(self, timeout: float = PATIENCE) -> bool:
        """Waits for its end. A zombie has ended."""
        return is_readable(self._fd, timeout)

    @property
    def alive(self) -> bool:
        return not self.ended(0)

    def signal(self, number: int) -> None:
        try:
            signal.pidfd_send_signal(self._fd, number)
        except ProcessLookupError:
            pass

    def kill(self) -> None:
        """Kill it outright, and wait for its end."""
        self.signal(signal.SIGKILL)
        assert self.ended()

    def gone(self) -> None:
        """Wait for its end, and close it."""
        assert self.ended()
        self.close()

    def close(self) -> None:
        os.close(self._fd)


def end_processes(pids: Iterable[int]) -> list[int]:
    """Kill them for certain; returns those that even that did not end."""
    held: list[Process] = []
    for pid in pids:
        try:
            held.append(Process(pid))
        except ProcessLookupError:
            pass
    for process in held:
        process.signal(signal.SIGKILL)
    left = [process.pid for process in held if not process.ended()]
    for process in held:
        process.close()
    return left


class Kept:
    """One started session."""

    def __init__(self, spec: SessionSpec, started: Started) -> None:
        self.spec = spec
        self.name = spec.name
        self.folder = Path(spec.folder)
        self.paths = SessionPaths(self.folder, spec.name)
        self.keeper_pid, self.child_pid = started
        self.keeper = Process(self.keeper_pid)
        self.clients: list[HeimdallClient | KeeperClient] = []
        self.may_complain = False
        """Whether the keeper's log may hold errors."""

    def client(self, *, receive_buffer_bytes: int | None = None) -> HeimdallClient:
        """A new connection of a client that knows only Heimdall's document."""
        made = HeimdallClient(str(self.paths.socket), receive_buffer_bytes=receive_buffer_bytes)
        self.clients.append(made)
        return made

    def subscriber(self) -> HeimdallClient:
        made = self.client()
        made.subscribe()
        return made

    def ready(self) -> HeimdallClient:
        """A subscriber that has seen READY, which the program prints when it listens."""
        made = self.subscriber()
        made.read_until(b"READY")
        return made

    def hello(self, *, read_only: bool = False, window_bytes: int = 0, raw: bool = False) -> KeeperClient:
        """A new connection of a client that knows our additions."""
        made = KeeperClient.connect(
            self.name, self.folder, read_only=read_only, window_bytes=window_bytes, raw=raw
        )
        self.clients.append(made)
        return made

    def log(self) -> str:
        return self.paths.log.read_text() if self.paths.log.exists() else ""

    def complaints(self) -> list[str]:
        return [line for line in self.log().splitlines() if " ERROR " in line or line.startswith("Traceback")]

    def rss_kb(self) -> int:
        fields = Path(f"/proc/{self.keeper_pid}/status").read_text().split("VmRSS:")[1]
        return int(fields.split()[0])

    def descriptor_count(self) -> int:
        return len(os.listdir(f"/proc/{self.keeper_pid}/fd"))

    def end(self) -> None:
        for client in self.clients:
            client.close()
        if self.keeper.alive:
            left = end_processes([self.keeper_pid, *descendants(self.keeper_pid)])
            assert not left, f"cannot be ended: {left}"
        self.keeper.close()


class Start(Protocol):
    """Starts a session; what its spec does not say has the spec's own defaults."""

    def __call__(self, name: str, argv: Sequence[str], **spec: Any) -> Kept: ...


def make_spec(folder: Path, name: str, argv: Sequence[str], **more: Any) -> SessionSpec:
    given: dict[str, Any] = {"folder": str(folder), "cwd": "/", "env": dict(os.environ), **more}
    return SessionSpec(name=name, argv=list(argv), **given)


def try_start(spec: SessionSpec) -> Started | RemudaError:
    try:
        return start_session(spec)
    except RemudaError as error:
        return error


# ── reading a client that knows our additions ──


def post_hook(kept: Kept, payload: str) -> http.client.HTTPConnection:
    """Send a hook as the agent sends it. Read the answer from what this returns."""
    settings = next(
        text for path in kept.paths.scratch.iterdir() if "/hook" in (text := path.read_text(errors="replace"))
    )
    port, token = (
        re.search(r"127\.0\.0\.1:(\d+)/hook", settings),
        re.search(r'X-Remuda-Token": *"([^"]+)', settings),
    )
    assert port
    assert token
    connection = http.client.HTTPConnection("127.0.0.1", int(port[1]), timeout=PATIENCE)
    connection.request("POST", "/hook", payload, {"X-Remuda-Token": token[1]})
    return connection


def events_until(client: KeeperClient, enough: Callable[[ClientEvent], bool]) -> Iterator[ClientEvent]:
    """Every event, up to and with the first for which `enough` is true."""
    while True:
        came = False
        for event in client.receive(PATIENCE):
            came = True
            yield event
            if enough(event):
                return
        assert came, "nothing came"


def output_until(client: KeeperClient, wanted: bytes) -> bytes:
    """Output and repaints together, once `wanted` is in them."""
    seen = bytearray()

    def enough(event: ClientEvent) -> bool:
        if not isinstance(event, wire.OutputReceived | wire.RepaintReceived):
            return False
        searched = max(0, len(seen) - len(wanted))
        seen.extend(event.data)
        return seen.find(wanted, searched) >= 0

    for _ in events_until(client, enough):
        pass
    return bytes(seen)


def event_named(client: KeeperClient, name: str, **fields: object) -> dict[str, Any]:
    """The next event of that name with those fields."""

    def is_it(event: ClientEvent) -> bool:
        return (
            isinstance(event, wire.EventReceived)
            and event.document.get("event") == name
            and fields.items() <= event.document.items()
        )

    *_, last = events_until(client, is_it)
    assert isinstance(last, wire.EventReceived)
    return last.document


def become(client: KeeperClient, state: str) -> dict[str, Any]:
    """Watch, and wait until the session is in that state: perhaps it has been for long."""
    found = client.request("watch")
    return found if found["state"] == state else event_named(client, "state", state=state)
