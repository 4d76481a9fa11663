"""A session that this process starts, talks to through its keeper, and that ends with this process.

The keeper holds the other end of a pipe of ours. However this process ends, the keeper ends the agent and
removes its files.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from remuda.errors import RemudaError, SessionCrashed
from remuda.inbox.journal import Inbox
from remuda.keeper.aclient import AsyncKeeperClient
from remuda.keeper.claim import read_holder
from remuda.keeper.spec import SessionSpec
from remuda.keeper.start import Attended, start_attended
from remuda.oneshot.leftovers import remove, sweep
from remuda.paths import SessionPaths, private_folder
from remuda.proctree import send_signal
from remuda.supervised.child_process import Lifeline, outliving

from .events import LOG

Document = dict[str, Any]
_DETAIL_CHARACTERS = 1900
_END_TIMEOUT = 1.0
_POLL_INTERVAL = 0.01
_SHORT_CHARACTERS = 1 << 16
"""A prompt of this length fits into a frame, also if each character needs 12 bytes in JSON."""
_MAX_KILL_GRACE = 2.0


class KeeperSession:
    """Calls `on_event` with each event of the keeper, and `on_exit` once with the last output of the agent.

    Both are also called between two requests, and neither after `close`.
    """

    def __init__(
        self,
        spec: SessionSpec,
        on_event: Callable[[Document], None],
        on_exit: Callable[[str], None],
    ) -> None:
        self.pid = 0
        self.detail: str | None = None
        """How it ended, with its last output; None while it runs."""
        self._spec = spec
        self._on_event = on_event
        self._on_exit = on_exit
        self._paths = SessionPaths.of(spec.name, Path(spec.folder))
        self._inbox = Inbox(self._paths.inbox, durable=False)
        self._thread = ThreadPoolExecutor(1, f"remuda-{spec.name}")
        self._starting: asyncio.Future[Attended] | None = None
        self._lock = threading.Lock()
        self._abandoned = False
        self._lifeline = Lifeline()
        self._keeper_pid = 0
        self._client: AsyncKeeperClient | None = None
        self._closing: asyncio.Task[None] | None = None

    # ── starting ──

    async def start(self, timeout: float) -> Document:
        """Start the session and return its status. Raises the errors of a start."""
        loop = asyncio.get_running_loop()
        self._starting = loop.run_in_executor(self._thread, self._start, timeout)
        self._thread.submit(sweep, self._paths.folder)  # after the start, which does not wait for it
        await asyncio.shield(self._starting)
        self._client = await AsyncKeeperClient.connect(
            self._spec.name, self._paths.folder, self._on_keeper_event, self._keeper_lost, timeout=timeout
        )
        status = await self._client.request("watch", tools=True)
        if not status["alive"]:  # it ended before we were connected
            screen = "\n".join((await self._client.request("screen"))["lines"])
            self._exited(exit_detail({"code": status["exit_code"], "last_output": screen}))
            raise self.crashed()
        return status

    def _start(self, timeout: float) -> Attended:
        """Runs in our thread, and may end after the caller has given up."""
        private_folder(self._paths.folder)
        started = start_attended(self._spec, timeout)
        os.close(started.news)
        with self._lock:
            self._keeper_pid, self.pid = started.started
            self._lifeline = Lifeline(started.lifeline)
            abandoned = self._abandoned
        if abandoned:
            self._drop_lifeline()
        return started

    # ── requests ──

    async def request(self, op: str, **args: Any) -> Document:
        """Send a request to the keeper. Raises `SessionCrashed` if the agent or the keeper has ended."""
        if self._client is None or self.detail is not None:
            raise self.crashed()
        try:
            return await self._client.request(op, **args)
        except RemudaError:
            if self.detail is not None:
                raise self.crashed() from None
            raise

    async def submit(self, prompt: str, message_id: str, *, command: bool = False) -> None:
        """Hand a message to the keeper. A long one goes through the inbox, where no frame limits its size."""
        if len(prompt) <= _SHORT_CHARACTERS:
            await self.request("submit", id=message_id, prompt=prompt, command=command)
            return
        loop = asyncio.get_running_loop()
        await asyncio.shield(
            loop.run_in_executor(
                self._thread, lambda: self._inbox.put(prompt, message_id=message_id, command=command)
            )
        )

    def crashed(self) -> SessionCrashed:
        detail = "it was closed" if self.detail is None else self.detail
        return SessionCrashed("the agent exited", detail=detail)

    # ── events ──

    def _on_keeper_event(self, event: Document) -> None:
        if event["event"] == "exited":
            self._exited(exit_detail(event))
        elif self.detail is None:
            self._on_event(event)

    def _keeper_lost(self) -> None:
        self._exited("exit:? -- the keeper exited")

    def _exited(self, detail: str) -> None:
        if self.detail is None:
            self.detail = detail
            if self._closing is None:
                self._on_exit(detail)

    # ── the end ──

    async def close(self, timeout: float) -> None:
        """End the agent and all processes it started. May be called at any time, repeatedly; never raises."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(timeout))
        await asyncio.wait([self._closing])

    async def _close(self, timeout: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        try:
            await self._ask_to_end(deadline, min(_MAX_KILL_GRACE, timeout / 2))
            if self._client is not None:
                self._client.close()
            with self._lock:
                self._abandoned = True
            self._drop_lifeline()
            if self._keeper_pid:
                await self._until_keeper_gone(max(0.1, deadline - loop.time()))
            if self._starting is not None and self._starting.done():
                await self._remove_rest()
        except Exception:  # noqa: BLE001  # nothing else can be done for it
            LOG.exception("cannot end session %s", self._spec.name)
        self._inbox.close()
        self._thread.shutdown(wait=False)

    async def _ask_to_end(self, deadline: float, grace: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                if self._starting is not None:
                    await asyncio.shield(self._starting)
                if self._client is not None and self.detail is None:
                    await self._client.request("kill", grace=grace)
        except (RemudaError, OSError):  # it did not start, or is gone
            pass

    def _drop_lifeline(self) -> None:
        with self._lock:
            self._lifeline.close()

    async def _until_keeper_gone(self, timeout: float) -> None:
        """Wait until the keeper is gone; kill it if it stays."""
        if await outliving([self._keeper_pid], timeout):
            holder = read_holder(self._paths)
            if holder is not None and holder.keeper_pid == self._keeper_pid:
                send_signal(self._keeper_pid, signal.SIGKILL)
                await outliving([self._keeper_pid], _END_TIMEOUT)

    async def _remove_rest(self) -> None:
        """Remove the files of a keeper that was killed, perhaps before it had reported its start."""
        paths = self._paths
        if any(path.exists() for path in (paths.inbox, paths.scratch, paths.log, paths.pid)):
            await asyncio.get_running_loop().run_in_executor(self._thread, _remove_when_free, paths)


def _remove_when_free(paths: SessionPaths) -> None:
    """Remove the files when the lock of the keeper is free, a moment after its process has ended."""
    deadline = time.monotonic() + _END_TIMEOUT
    while read_holder(paths) is not None:
        if time.monotonic() > deadline:
            return
        time.sleep(_POLL_INTERVAL)
    remove(paths)


def exit_detail(exited: Document) -> str:
    """Return the exit code and the end of the last output."""
    output = str(exited.get("last_output") or "").strip()[-_DETAIL_CHARACTERS:]
    return f"exit:{exited.get('code')}" + (f" -- {output}" if output else "")
