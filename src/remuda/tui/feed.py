"""Follow the boss, one view of one agent, or one session's terminal, each in a thread of its own.

Each thread is a daemon, so nothing waits for it at the end.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from remuda.boss.client import BossClient
from remuda.errors import RemudaError, SessionUnreachable, WaitTimeout
from remuda.keeper.client import KeeperClient
from remuda.wire import connection as wire
from remuda.wire.connection import ClientConnection

from .model import BossSnapshot

_GAP = 0.05
"""Seconds between two reads: changes that come together are read together."""
_RETRY = 1.0
"""Seconds between two attempts to reach a boss that has ended."""
_SILENCE = 40.0
"""Seconds without a sign of the boss, which sends one every 15 s, until it counts as stuck."""
_SCREEN_GAP = 0.1
"""Seconds between two reads of a screen that changes all the time."""
_END_TIMEOUT = 1.0
_WINDOW_BYTES = 64 << 10
"""Output that the keeper sends before we have drawn. It says only that there is something to draw."""


def read_snapshot(boss: BossClient, *, local: bool = False) -> BossSnapshot:
    """Read what the boss knows of all hosts; `local`: of this machine. Raises `RemudaError`."""
    hosts = None if local else True
    items = boss.get_brief("queue", hosts=hosts)["items"]
    sessions = boss.get_brief("sessions", hosts=hosts)["sessions"]
    query: dict[str, Any] = {"state": "open", "limit": 1000, "hosts": hosts}
    approvals = boss.get_brief("approvals", **query)["approvals"] if items else []
    return BossSnapshot(items, sessions, {str(one["id"]): one for one in approvals}, time.time())


class BossFeed:
    """Reads a snapshot after each change; while the boss cannot be reached, has the error instead."""

    def __init__(self, *, local: bool = False) -> None:
        self.local = local
        self._lock = threading.Lock()
        self._latest: BossSnapshot | RemudaError | None = None
        self._show: Callable[[BossSnapshot | RemudaError], None] | None = None
        threading.Thread(target=self._run, name="boss feed", daemon=True).start()

    def listen(self, show: Callable[[BossSnapshot | RemudaError], None]) -> None:
        """Call `show` with what was read last, and from now on with everything that is read."""
        with self._lock:
            self._show = show
            if self._latest is not None:
                show(self._latest)

    def _run(self) -> None:
        while True:
            try:
                self._follow(BossClient())
            except RemudaError as error:
                self._tell(error)
            time.sleep(_RETRY)

    def _follow(self, boss: BossClient) -> None:
        with boss.changes() as changes:
            while True:
                self._tell(read_snapshot(boss, local=self.local))
                time.sleep(_GAP)
                if not changes.wait(_SILENCE):
                    raise WaitTimeout("the boss does not answer")

    def _tell(self, what: BossSnapshot | RemudaError) -> None:
        with self._lock:
            self._latest = what
            if self._show is not None:
                self._show(what)


class AgentFeed(Protocol):
    """What follows the marked agent."""

    def changed(self) -> None:
        """Note that the boss reported a change of some agent."""

    def stop(self) -> None: ...


class ViewFeed:
    """Calls `read` at once, after each change of the boss, and every `interval` seconds, until `stop`."""

    def __init__(self, read: Callable[[], None], interval: float | None = None) -> None:
        self._read = read
        self._interval = interval
        self._stopped = False
        self._wanted = threading.Event()
        threading.Thread(target=self._run, name="view", daemon=True).start()

    def changed(self) -> None:
        self._wanted.set()

    def stop(self) -> None:
        self._stopped = True
        self._wanted.set()

    def _run(self) -> None:
        while not self._stopped:
            self._wanted.clear()
            self._read()
            self._wanted.wait(self._interval)
            time.sleep(_GAP)


class ScreenFeed:
    """Calls `show` with the screen of a kept session, again with every change, until `stop`.

    With the screen comes an empty text; at the end comes the `last` screen, and why it is the last.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        show: Callable[[list[str], str], None],
        last: Callable[[], list[str]],
        host: str | None = None,
    ) -> None:
        self._name = name
        self._folder = folder
        self._host = host
        self._show = show
        self._last = last
        self._stopped = False
        self._lines: list[str] = []
        self._exit_code: int | None = None
        self._wake, self._waker = os.pipe()
        threading.Thread(target=self._run, name=f"screen of {name}", daemon=True).start()

    def changed(self) -> None:
        pass  # the keeper itself reports its output

    def stop(self) -> None:
        self._stopped = True
        os.close(self._waker)

    def _run(self) -> None:
        try:
            with self._connect() as client:
                why = self._follow(client)
        except RemudaError as error:
            why = str(error)
        finally:
            os.close(self._wake)
        if not self._stopped:
            with contextlib.suppress(RemudaError):
                self._lines = self._last()
            self._show(self._lines, why)

    def _connect(self) -> KeeperClient:
        options: dict[str, Any] = {"read_only": True, "window_bytes": _WINDOW_BYTES}
        if self._host is not None:
            return KeeperClient.connect_elsewhere(self._host, self._name, **options)
        return KeeperClient.connect(self._name, self._folder, **options)

    def _follow(self, client: KeeperClient) -> str:
        """Return why it ended. Raises `RemudaError` if the keeper does not answer."""
        with contextlib.suppress(SessionUnreachable, OSError, EOFError):
            client.send(ClientConnection.subscribe())
            while not self._stopped:
                self._lines = client.request("screen", styled=True)["lines"]
                self._show(self._lines, "")
                if not select.select([self._wake], [], [], _SCREEN_GAP)[0]:
                    self._wait_for_output(client)
        code = self._exit_code
        if code is None and not self._stopped:
            code = client.wait_exit(_END_TIMEOUT)
        if code is not None:
            return f"the session has ended with exit code {code}"
        return "its keeper has ended" if self._host is None or self._stopped else client.end_reason()

    def _wait_for_output(self, client: KeeperClient) -> None:
        """Return also when stopped. Raises `EOFError` or `OSError` at the end of the session."""
        output_bytes = 0
        while not output_bytes:
            for event in client.receive():
                if isinstance(event, wire.OutputReceived | wire.RepaintReceived):
                    output_bytes += len(event.data)
                elif isinstance(event, wire.ExitReceived):
                    self._exit_code = event.code
                    raise EOFError
            if not output_bytes and self._wake in select.select([client.fileno(), self._wake], [], [])[0]:
                return
        client.send(ClientConnection.ack(output_bytes))
