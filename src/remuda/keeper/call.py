"""The call channel of one session: connected, connected again, and with it the process that serves it.

The agent's reports come from here where it has no hooks. What was called when the connection was lost is not
known to have been taken: `turns/calling` searches for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from remuda.agents.base import CallTransport
from remuda.agents.events import PermissionRequested, Report
from remuda.agents.permission import PermissionDecision, PermissionRequest
from remuda.agents.prompting import CallAddress, CallChannel, ChannelLost, Past, PromptCall
from remuda.errors import RemudaError
from remuda.tasks import TaskSet

from .companion import CompanionProcess

log = logging.getLogger("remuda.keeper.call")

_CONNECT_TIMEOUT = 10.0
_CALL_TIMEOUT = 10.0
_FIRST_DELAY = 0.05
_LONGEST_DELAY = 2.0
_LOOK_INTERVAL = 0.05
_END_TIMEOUT = 2.0


class CallLink:
    """Calls `take` with each report of the agent, and `changed` when a connection comes or goes.

    `conversation` returns what is known of the conversation: a new connection joins that. `ends` returns
    whether the session is ending, so that nothing is started again.
    """

    def __init__(
        self,
        transport: CallTransport,
        address: CallAddress,
        companion: CompanionProcess,
        take: Callable[[Report], None],
        changed: Callable[[], None],
        conversation: Callable[[], Mapping[str, Any]],
        ends: Callable[[], bool],
    ) -> None:
        self._transport = transport
        self._address = address
        self._companion = companion
        self._take = take
        self._changed = changed
        self._conversation = conversation
        self._ends = ends
        self._loop = asyncio.get_running_loop()
        self._channel: CallChannel | None = None
        self._task: asyncio.Task[None] | None = None
        self._aside = TaskSet()
        self._reads = -1

    def start(self) -> None:
        self._read_output()
        self._task = self._loop.create_task(self._run())

    @property
    def connected(self) -> bool:
        return self._channel is not None

    def check_decision(self, request: PermissionRequest, decision: PermissionDecision) -> None:
        """Raise `InvalidOptions` for a decision that the agent cannot take."""
        # Agents of other packages may not know such a name.
        if (check := getattr(self._transport, "check_decision", None)) is not None:
            check(request, decision)

    # ── calls ──

    def _connected(self) -> CallChannel:
        if self._channel is None:
            raise ChannelLost("the agent's server is not connected")
        return self._channel

    async def submit(self, call: PromptCall) -> str:
        return await self._connected().submit(call)

    async def find(self, call: PromptCall) -> Past:
        return await self._connected().find(call)

    def interrupt(self, turn_id: str | None) -> None:
        if self._channel is not None:
            self._begin(self._channel.interrupt(turn_id), "an interrupt")

    def decide(self, request: PermissionRequest, decision: PermissionDecision) -> None:
        if self._channel is not None:
            self._begin(self._channel.decide(request, decision), "a decision")

    def deny(self, report: Report, message: str) -> None:
        """Deny the permission that a report requests."""
        for event in report.events:
            if isinstance(event, PermissionRequested):
                inputs = event.input if isinstance(event.input, dict) else {}
                request = PermissionRequest(event.tool, inputs, tool_use_id=event.id, reason=event.reason)
                self.decide(request, PermissionDecision(allow=False, message=message))

    def _begin(self, call: Coroutine[Any, Any, None], what: str) -> None:
        async def run() -> None:
            try:
                async with asyncio.timeout(_CALL_TIMEOUT):
                    await call
            except (ChannelLost, TimeoutError) as error:
                log.warning("%s was not answered: %s", what, str(error) or "it took too long")

        self._aside.start(run())

    # ── the connection ──

    async def _run(self) -> None:
        delay = _FIRST_DELAY
        while True:
            channel = self._transport.channel(self._address)
            try:
                async with asyncio.timeout(_CONNECT_TIMEOUT):
                    await channel.connect(self._conversation())
                log.info("connected to the agent's server")
                self._channel, delay = channel, _FIRST_DELAY
                self._changed()
                await self._listen(channel)
            except (ChannelLost, OSError, TimeoutError) as error:
                log.log(logging.DEBUG if self._ends() else logging.WARNING, "not connected: %s", error)
            finally:
                self._channel = None
                await channel.aclose()
            self._changed()
            await self._restart_companion()
            await asyncio.sleep(delay)
            delay = min(_LONGEST_DELAY, delay * 2)

    async def _listen(self, channel: CallChannel) -> None:
        async for report in channel.reports():
            try:
                self._take(report)
            except Exception:  # one that we do not understand must not cost those after it
                log.exception("a report of the agent was skipped")

    async def _restart_companion(self) -> None:
        """Start the server again where the agent looks for it, if it died and the session goes on."""
        if not self._companion.pid or self._companion.is_alive() or self._ends():
            return
        self._stop_reading()
        log.warning("the agent's server died; starting it again")
        try:
            self._companion.spawn()
            async with asyncio.timeout(self._transport.start_timeout):
                while self._companion.poll() is None:  # noqa: ASYNC110  # its own output may not say it
                    await asyncio.sleep(_LOOK_INTERVAL)
        except TimeoutError:
            log.error("%s", self._companion.too_late())
            self._companion.kill()
        except RemudaError as error:
            log.error("%s", error)
        self._read_output()

    def _read_output(self) -> None:
        """Go on reading what it prints, so that it never waits for us."""

        def read() -> None:
            # Before the last read closes the descriptor: its number may be another file's at once.
            self._loop.remove_reader(self._reads)
            self._companion.read()
            self._read_output()

        self._reads = self._companion.fd
        if self._reads >= 0:
            self._loop.add_reader(self._reads, read)

    def _stop_reading(self) -> None:
        if self._reads >= 0:
            self._loop.remove_reader(self._reads)
            self._reads = -1

    async def aclose(self) -> None:
        """Close the connection, and end the server: TERM, then KILL after two seconds."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._aside.aclose()
        self._stop_reading()
        self._companion.terminate()
        deadline = self._loop.time() + _END_TIMEOUT
        while self._companion.is_alive() and self._loop.time() < deadline:  # noqa: ASYNC110  # child reaps it
            await asyncio.sleep(_LOOK_INTERVAL)
        self._companion.kill()
