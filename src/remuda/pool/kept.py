"""An agent on a terminal of its own, kept for as long as this process lives: start, requests, certain end.

The keeper holds the other end of a pipe of ours. However we end, it ends the agent and removes its traces.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from remuda.errors import InvalidOptions, RemudaError, SessionCrashed
from remuda.inbox.journal import Inbox
from remuda.keeper.aclient import AsyncKeeperClient
from remuda.keeper.claim import read_holder
from remuda.keeper.spec import SessionSpec
from remuda.keeper.start import Attended, start_attended
from remuda.oneshot.remains import remove, sweep
from remuda.paths import SessionPaths, private_folder
from remuda.proctree import send_signal

from .events import LOG
from .exits import outliving
from .lifeline import Lifeline

Document = dict[str, Any]
_DETAIL_CHARACTERS = 1900
_LAST_BREATH = 1.0
_LOOK_INTERVAL = 0.01
_SHORT_CHARACTERS = 1 << 16
"""A prompt of this length fits into a frame, also if each character needs 12 bytes in JSON."""
_MOST_GRACE = 2.0


class Kept:
    """`on_event` hears what its keeper tells; `on_gone` once that the agent has ended, with its last words.

    Both also between two requests, and neither after `close`.
    """

    def __init__(
        self,
        spec: SessionSpec,
        on_event: Callable[[Document], None],
        on_gone: Callable[[str], None],
        hooks: Sequence[str] = (),
    ) -> None:
        """`hooks`: of those of the agent's it is told too, but not what they tell."""
        self.pid = 0
        self.detail: str | None = None
        """Its last words, once it has ended."""
        self._spec = spec
        self._on_event = on_event
        self._on_gone = on_gone
        self._hooks = list(hooks)
        self._paths = SessionPaths.of(spec.name, Path(spec.folder))
        self._inbox = Inbox(self._paths.inbox, durable=False)
        self._can_submit = True
        self._thread = ThreadPoolExecutor(1, f"remuda-{spec.name}")
        self._starting: asyncio.Future[Attended] | None = None
        self._lock = threading.Lock()
        self._abandoned = False
        self._lifeline = Lifeline()
        self._keeper_pid = 0
        self._client: AsyncKeeperClient | None = None
        self._closing: asyncio.Task[None] | None = None

    # ── coming up ──

    async def start(self, timeout: float) -> Document:
        """What its keeper says of it. Raises what a start can raise."""
        loop = asyncio.get_running_loop()
        self._starting = loop.run_in_executor(self._thread, self._start, timeout)
        self._thread.submit(sweep, self._paths.folder)  # behind the start, which does not wait for it
        await asyncio.shield(self._starting)
        self._client = await AsyncKeeperClient.connect(
            self._spec.name, self._paths.folder, self._hear, self._lost, timeout=timeout
        )
        status = await self._client.request("watch", tools=True, hooks=self._hooks, without=["prompt"])
        if not status["alive"]:  # it ended before anybody heard it
            said = "\n".join((await self._client.request("screen"))["lines"])
            self._gone(last_words({"code": status["exit_code"], "last_output": said}))
            raise self.crashed()
        return status

    def _start(self, timeout: float) -> Attended:
        """In a thread of ours: it may come up when nobody waits for it any more."""
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

    # ── talking ──

    async def request(self, op: str, **args: Any) -> Document:
        """Raises `SessionCrashed` when there is nobody left to ask."""
        if self._client is None or self.detail is not None:
            raise self.crashed()
        try:
            return await self._client.request(op, **args)
        except RemudaError:
            if self.detail is not None:
                raise self.crashed() from None
            raise

    async def submit(self, prompt: str, message_id: str, *, command: bool = False) -> None:
        """Hand a message to its keeper: a long one through its inbox, which has no frame to fit into."""
        if self._can_submit and len(prompt) <= _SHORT_CHARACTERS:
            try:
                await self.request("submit", id=message_id, prompt=prompt, command=command)
                return
            except InvalidOptions:  # an older keeper, which has not taken it
                self._can_submit = False
        loop = asyncio.get_running_loop()
        await asyncio.shield(
            loop.run_in_executor(
                self._thread, lambda: self._inbox.put(prompt, message_id=message_id, command=command)
            )
        )

    def crashed(self) -> SessionCrashed:
        detail = "it was closed" if self.detail is None else self.detail
        return SessionCrashed("the agent exited", detail=detail)

    # ── hearing ──

    def _hear(self, event: Document) -> None:
        if event["event"] == "exited":
            self._gone(last_words(event))
        elif self.detail is None:
            self._on_event(event)

    def _lost(self) -> None:
        self._gone("exit:? -- the keeper exited")

    def _gone(self, detail: str) -> None:
        if self.detail is None:
            self.detail = detail
            if self._closing is None:
                self._on_gone(detail)

    # ── the end ──

    async def close(self, timeout: float) -> None:
        """End the agent and all that it started. Idempotent; safe at any moment; never raises."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(timeout))
        await asyncio.wait([self._closing])

    async def _close(self, timeout: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        try:
            await self._ask_to_end(deadline, min(_MOST_GRACE, timeout / 2))
            if self._client is not None:
                self._client.close()
            with self._lock:
                self._abandoned = True
            self._drop_lifeline()
            if self._keeper_pid:
                await self._outlive(max(0.1, deadline - loop.time()))
            if self._starting is not None and self._starting.done():
                await self._remove_rest()
        except Exception:  # noqa: BLE001  # there is nothing else to be done for it
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
        except (RemudaError, OSError):  # it never came up, does not come up, or is gone
            pass

    def _drop_lifeline(self) -> None:
        with self._lock:
            self._lifeline.close()

    async def _outlive(self, timeout: float) -> None:
        """Until its keeper is gone. One that does not go is killed."""
        if await outliving([self._keeper_pid], timeout):
            holder = read_holder(self._paths)
            if holder is not None and holder.keeper_pid == self._keeper_pid:
                send_signal(self._keeper_pid, signal.SIGKILL)
                await outliving([self._keeper_pid], _LAST_BREATH)

    async def _remove_rest(self) -> None:
        """What a keeper leaves that was killed, perhaps before it had said that it is there."""
        paths = self._paths
        if any(path.exists() for path in (paths.inbox, paths.scratch, paths.log, paths.pid)):
            await asyncio.get_running_loop().run_in_executor(self._thread, _remove_when_free, paths)


def _remove_when_free(paths: SessionPaths) -> None:
    """Its keeper's lock goes with its process, a moment after the end of that was told."""
    deadline = time.monotonic() + _LAST_BREATH
    while read_holder(paths) is not None:
        if time.monotonic() > deadline:
            return
        time.sleep(_LOOK_INTERVAL)
    remove(paths)


def last_words(exited: Document) -> str:
    said = str(exited.get("last_output") or "").strip()[-_DETAIL_CHARACTERS:]
    return f"exit:{exited.get('code')}" + (f" -- {said}" if said else "")
