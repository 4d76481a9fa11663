"""Requests of the fleet that this host runs, on the pool that is served here with --fleet.

The hub hands a request to one host, which keeps it by extending its lease, also over a new connection. The
sender's boss gives out the payload (`requests`) and takes events and the end. The end is on the disk here
before it is sent, so that a boss that dies then does not make another host run it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from remuda.durable import read_regular, replace_file
from remuda.errors import (
    Aborted,
    ClientClosed,
    FolderUnusable,
    HostUnreachable,
    HubUnreachable,
    PoolExhausted,
    PoolNotServed,
    RemoteProtocolError,
    RemudaError,
    WaitTimeout,
)
from remuda.paths import private_folder
from remuda.pool.async_pool_connection import AsyncPoolConnection
from remuda.pool.codec import error_message
from remuda.pool.pool_connection import SILENCE_TIMEOUT
from remuda.pool.protocol import Message
from remuda.turns.account import Account
from remuda.untrusted import BadJson, dump_json, finite, parse_object

from . import subjects
from .hub import Hub
from .hub_types import Taken
from .streams import SHARED_LEASE
from .subjects import INBOX

log = logging.getLogger("remuda.fleet.work")

_EXTENSIONS = 6
"""How often a host extends its lease before it would end."""
_SAFE = 2 / 3
"""A host that could not extend it for this part of it ends the turn: another one may get the request."""
_ASK_TIMEOUT = 5.0
_RELEASE_DELAY = 1.0
_PASS_ON_DELAY = 0.2
_PASS_ON = 2
"""How often a host without a warm agent of that profile leaves a request to others."""
_LOOK_INTERVAL = 2.0
_FETCH_TIMEOUT = 2.0
_KEPT_SECONDS = 86400.0
_GRACE = 30.0
_USAGE_TIMEOUT = 2.0
"""The usage follows the answer; the terminal backend has it after a tenth of a second."""
_MAX_BATCH = 200
_MAX_END_BYTES = subjects.MAX_PAYLOAD_BYTES - 4096
_BATCH_BYTES = 1 << 20
_NOT_BEGUN = (PoolNotServed.code, PoolExhausted.code, ClientClosed.code)


class _Job(NamedTuple):
    id: str
    profile: str
    sender: str


class _Pool(NamedTuple):
    """What the pool here says of itself."""

    free: int
    warm: frozenset[str]
    """The profiles of agents that are idle."""
    account: str


class _Events:
    """The events of a turn that wait. Some may be sent twice: their number says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Message, int]] = []
        """With their sizes."""
        self._sent = 0
        self.came = asyncio.Event()

    def add(self, message: Message) -> None:
        size = len(dump_json(message))
        if size > _MAX_END_BYTES:
            log.warning("an event of %s bytes is larger than the hub takes, and is left out", size)
            return
        self.waiting.append((message, size))
        self.came.set()

    def batch(self, attempt: int) -> Message:
        events: list[Message] = []
        size = 0
        for event, more in self.waiting[:_MAX_BATCH]:
            size += more
            if events and size > _BATCH_BYTES:
                break
            events.append(event)
        return {"do": "events", "attempt": attempt, "from": self._sent, "events": events}

    def confirm(self, batch: Message) -> None:
        """Forget what the sender has."""
        count = len(batch["events"])
        del self.waiting[:count]
        self._sent += count
        if self.waiting:
            self.came.set()


class RequestRunner:
    """Use from the boss's loop; `run` for each connection."""

    def __init__(
        self,
        folder: Path,
        offer: Callable[[bool], None],
        pool_socket: str,
        accounts: Path,
        lease: float = SHARED_LEASE,
    ) -> None:
        """`offer` is called with whether a pool is served at `pool_socket` for the fleet.

        `lease` is that of the hub's queue, in seconds.
        """
        self._results = folder / "results"
        self._lease, self._extend_interval = lease, lease / _EXTENSIONS
        self._socket, self._accounts = pool_socket, accounts
        self._offer = offer
        self._running: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._hub: Hub | None = None

    async def close(self) -> None:
        """End what runs. The hub hands it to another host when its lease is over."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def run(self, hub: Hub) -> None:
        """Take requests until the connection ends; what runs goes on. Raises `HubUnreachable`."""
        self._hub = hub
        delivering = asyncio.create_task(self._deliver_left())
        try:
            async with contextlib.aclosing(hub.taking(INBOX, "any", _FETCH_TIMEOUT)) as jobs:
                while True:
                    if (pool := await self._look()) is None or self._is_limited(pool):
                        await asyncio.sleep(_LOOK_INTERVAL)
                    elif pool.free <= 0:
                        await self._until_one_ends()
                    elif (taken := await anext(jobs)) is not None:
                        task = asyncio.create_task(self._take(taken, pool))
                        self._running.add(task)
                        task.add_done_callback(self._forget)
        finally:
            self._hub = None
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._ended.set()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, RemudaError):
            log.info("a request is left to the hub: %s", error)
        elif error is not None:
            log.error("a request failed here", exc_info=error)

    async def _until_one_ends(self) -> None:
        self._ended.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_INTERVAL / 4):
                await self._ended.wait()

    async def _look(self) -> _Pool | None:
        """Ask the pool how many it can take; None if none is served here for the fleet."""
        found = None
        try:
            async with await AsyncPoolConnection.ask(
                self._socket, {"type": "status"}, silence_timeout=_ASK_TIMEOUT
            ) as connection:
                status = dict((await connection.next()).get("status") or {})
            if status.get("fleet") and status.get("state") == "serving":
                sessions = (status.get("pool") or {}).get("sessions") or []
                idle = frozenset(str(one["request_profile"]) for one in sessions if one["state"] == "idle")
                busy = max(int(status["requests"]), len(self._running))
                found = _Pool(int(status["pool_size"]) - busy, idle, str(status.get("account") or ""))
        except (RemudaError, OSError, KeyError, TypeError, ValueError) as error:
            log.debug("no pool for the fleet: %s", error)
        self._offer(found is not None)
        return found

    def _is_limited(self, pool: _Pool) -> bool:
        return bool(pool.account) and Account(self._accounts, pool.account).limited_for(time.time()) > 0

    # ── one request ──

    async def _take(self, taken: Taken, pool: _Pool) -> None:
        try:
            job = read_job(taken)
        except RemoteProtocolError as error:
            log.warning("refused a request: %s", error)
            await taken.refuse()
            return
        is_cold = job.profile not in pool.warm and taken.attempt <= _PASS_ON
        if is_cold or self._is_limited(pool):  # a limit that was met since it was asked for
            await taken.later(_PASS_ON_DELAY)
            return
        try:
            claim = await self._report(job, {"do": "claim"})
        except (HostUnreachable, WaitTimeout):
            await taken.later(self._extend_interval)
            return
        payload = claim.get("payload")
        if claim.get("busy"):
            await taken.later(self._extend_interval)
        elif claim.get("gone") or not isinstance(payload, dict):
            await taken.ack()
        else:
            await self._carry_out(taken, job, pool, claim)

    async def _carry_out(self, taken: Taken, job: _Job, pool: _Pool, claim: Message) -> None:
        attempt = claim["attempt"]
        log.info("request %s of %s, attempt %s", job.id, job.sender, attempt)
        end = await self._run(taken, job, claim)
        error = end.get("error") or {}
        if error and (self._is_limited(pool) or (error["code"] in _NOT_BEGUN and not error.get("begun"))):
            await self._report(job, {"do": "release", "attempt": attempt})
            await taken.later(_RELEASE_DELAY)  # another account may be free
            return
        if end.get("lost"):
            raise HubUnreachable("the lease of a request could not be extended")
        if not end.get("gone"):
            report = {"do": "end", "attempt": attempt, **end}
            try:
                await asyncio.to_thread(self._keep, job, report)
            except (OSError, FolderUnusable) as error:  # a full disk must not make another host run it again
                log.warning("the end of request %s cannot be kept: %s", job.id, error)
                await self._report(job, report)
            else:
                if not await self._deliver(job):
                    return  # `_deliver_left` goes on; a host that gets the request asks the sender first
        await self._connection().settle(taken.token, b"+ACK")

    async def _run(self, taken: Taken, job: _Job, claim: Message) -> Message:
        """Run it on the pool. Returns its result or error; `gone` if the sender does not want it any more."""
        payload, attempt = claim["payload"], claim["attempt"]
        options = {**dict(payload.get("options") or {}), "timeout": finite(claim.get("timeout")) or 1.0}
        options |= {"request_id": f"{job.id}.{attempt}"}
        message: Message = {**payload, "type": "run", "options": options, "inherit_env": True}
        try:
            connection = await AsyncPoolConnection.ask(self._socket, message, silence_timeout=SILENCE_TIMEOUT)
        except RemudaError as error:
            return {"error": {**error_message(error), "begun": False}}
        connection.expect(options["timeout"] + _GRACE)
        events = _Events()
        stopped: dict[str, bool] = {}

        def stop(why: str) -> None:
            stopped[why] = True
            connection.abort(Aborted(why))

        keeping = asyncio.create_task(self._keep_lease(taken, stop))
        telling = asyncio.create_task(self._tell(job, attempt, events, stop))
        try:
            async with connection:
                while (reply := await connection.next())["type"] not in ("done", "error"):
                    events.add(reply)
                end: Message = {"result": reply["result"]} if reply["type"] == "done" else {"error": reply}
                if reply["type"] == "done" and reply.get("more"):
                    with contextlib.suppress(RemudaError, TimeoutError):
                        async with asyncio.timeout(_USAGE_TIMEOUT):
                            end["result"]["usage"] = (await connection.next()).get("usage")
        except RemudaError as error:
            end = stopped or {"error": error_message(error)}
        finally:
            for task in (keeping, telling):
                task.cancel()
            await asyncio.gather(keeping, telling, return_exceptions=True)
        with contextlib.suppress(HostUnreachable, WaitTimeout, HubUnreachable):
            while events.waiting and not stopped:
                await self._report(job, batch := events.batch(attempt))
                events.confirm(batch)
        if (size := len(dump_json(end))) > _MAX_END_BYTES:
            text = f"the answer has {size} bytes, and the hub takes {_MAX_END_BYTES}"
            too_large = RemudaError(text, hint="have the agent write it to a file on that host")
            end = {"error": {**error_message(too_large), "begun": True}}
        return end

    async def _keep_lease(self, taken: Taken, stop: Callable[[str], None]) -> None:
        clock = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SAFE * self._lease) as limit:
                while True:
                    await asyncio.sleep(self._extend_interval)
                    begun = clock.time()
                    with contextlib.suppress(HubUnreachable):
                        await self._connection().settle(taken.token, b"+WPI")
                        limit.reschedule(begun + _SAFE * self._lease)
        stop("lost")

    async def _tell(self, job: _Job, attempt: int, events: _Events, stop: Callable[[str], None]) -> None:
        """Send events as they come, and at least something now and then; the answer may be to stop."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._extend_interval):
                    await events.came.wait()
            events.came.clear()
            batch = events.batch(attempt)
            try:
                answer = await self._report(job, batch)
            except (HostUnreachable, WaitTimeout, HubUnreachable):
                await asyncio.sleep(_LOOK_INTERVAL)
                continue
            events.confirm(batch)
            if answer.get("gone"):
                stop("gone")
                return

    def _connection(self) -> Hub:
        if self._hub is None:
            raise HubUnreachable("this host is not connected to the hub")
        return self._hub

    async def _report(self, job: _Job, document: Message) -> Message:
        hub = self._connection()
        subject = subjects.work_subject(job.sender, job.id, hub.member.name)
        return subjects.read(await hub.request(subject, subjects.write(document), _ASK_TIMEOUT))

    # ── ends that the sender has not got ──

    def _keep(self, job: _Job, end: Message) -> None:
        private_folder(self._results)
        whole = {"job": list(job), "at": time.time(), "end": end}
        replace_file(self._results / f"{job.id}.json", dump_json(whole).encode())

    async def _deliver(self, job: _Job) -> bool:
        """Send the end of a request to its sender. Returns whether that one has it on its disk."""
        path = self._results / f"{job.id}.json"
        try:
            kept = parse_object(read_regular(path))
            if finite(kept.get("at")) > time.time() - _KEPT_SECONDS:
                await self._report(job, kept["end"])
        except (HostUnreachable, WaitTimeout, HubUnreachable):
            return False
        except FileNotFoundError:
            return True
        except (BadJson, KeyError) as error:
            log.warning("cannot read %s: %s", path, error)
        path.unlink(missing_ok=True)
        return True

    async def _deliver_left(self) -> None:
        """Send what an earlier run of the boss, or of the sender's, has left."""
        while True:
            for path in sorted(self._results.glob("*.json")):
                try:
                    await self._deliver(_Job(*parse_object(read_regular(path))["job"]))
                except (OSError, BadJson, KeyError, TypeError, RemudaError) as error:  # the others are sent
                    log.warning("cannot send %s: %s", path, error)
            await asyncio.sleep(self._extend_interval)


def read_job(taken: Taken) -> _Job:
    """Read what the hub handed out. Raises `RemoteProtocolError` for what no operator of ours sent."""
    words = taken.subject.split(".")
    if len(words) != 5 or words[:2] != ["in", "any"]:
        raise RemoteProtocolError(f"{taken.subject[:200]!r} is not the subject of a request")
    request_id = subjects.decode(words[3])
    is_copy = "Nats-Subject" in taken.headers or taken.headers.get("Nats-Msg-Id") != request_id
    if is_copy or subjects.read(taken.data).get("id") != request_id:
        raise RemoteProtocolError(f"the request at {taken.subject[:200]!r} was meant for another place")
    return _Job(request_id, subjects.decode(words[2]), words[4])
