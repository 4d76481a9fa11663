"""This machine's part in the fleet, inside its boss: a connection to the hub, made again when it breaks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from remuda.boss.folder import BossFolder
from remuda.boss.ports import BossParts
from remuda.errors import HubRefused, HubUnreachable, PermissionRefused, PoolNotServed, RemudaError
from remuda.keeper.elsewhere import TUNNEL_SOCKET
from remuda.paths import accounts_folder, sessions_folder
from remuda.pool.pool_connection import default_socket

from .account_limits import AccountLimits
from .changes import FleetChanges
from .events import EventFollower, EventReporter
from .held_name import HeldName
from .host import FleetHost
from .hub import Hub, Part
from .hub_folder import HubFolder
from .membership import Membership, load_membership, member_file
from .remote import RemoteHosts
from .requests import SentRequests
from .subjects import Role
from .tunnel_socket import TunnelSocket
from .work import RequestRunner

log = logging.getLogger("remuda.fleet.member")

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0
_READY_TIMEOUT = 3.0


class FleetMember:
    """A `Fleet` of `boss.ports`. Made only on a machine that has joined one."""

    def __init__(self, boss: BossParts, boss_folder: BossFolder) -> None:
        membership = load_membership()
        assert membership is not None
        self._membership: Membership = membership
        folder = Path(member_file()).parent
        self._name = HeldName()
        self._host = FleetHost(boss, folder, sessions_folder(), boss_folder, self._name)
        self._remote = RemoteHosts(folder)
        self._changes = FleetChanges(boss.service.feed, self._remote, membership.name)
        self._tunnels = TunnelSocket(folder / TUNNEL_SOCKET, self._remote, self._connected)
        self._reporter = EventReporter(boss.service, folder) if membership.has(Role.HOST) else None
        self._runner = RequestRunner(folder, self._offer_pool, default_socket(), accounts_folder())
        self._limits = AccountLimits(accounts_folder())
        self._sent_requests = SentRequests(folder) if membership.has(Role.OPERATOR) else None
        self._follower = EventFollower(folder) if membership.has(Role.OPERATOR, Role.VIEWER) else None
        self._hub: Hub | None = None
        self._error: RemudaError | None = None
        self._since = time.time()
        self._problems: dict[str, str] = {}
        """By the name of a part of ours: why it does not work, though the hub can be reached."""
        self._task: asyncio.Task[None] | None = None
        self._reporting: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._task = asyncio.create_task(self._run())
        self._reporting = asyncio.create_task(self._changes.run())

    async def close(self, *, leaving: bool = False) -> None:
        """With `leaving`, take this host from the hub, if it can be reached."""
        for task in (self._task, self._reporting):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._runner.close()
        await self._host.close()
        await self._tunnels.close()
        if self._reporter is not None:
            self._reporter.close()
            if leaving:
                self._reporter.forget()
        if leaving:
            try:
                hub = await Hub.connect(self._membership)
                try:
                    await self._name.claim(hub)  # else what is there is of another machine
                    if self._membership.has(Role.HOST):
                        await self._host.leave(hub)
                    await self._name.release(hub)
                finally:
                    await hub.close()
            except RemudaError as error:
                log.warning("the hub still lists this machine: %s", error)

    async def _run(self) -> None:
        try:
            await self._tunnels.open()
        except RemudaError as error:  # the rest works without it
            log.error("sessions of other hosts cannot be attached: %s", error)
        pause = _FIRST_PAUSE
        while True:
            begin = time.monotonic()
            try:
                await self._be_connected()
            except Exception as error:  # noqa: BLE001  # whatever it was, it is noted, and tried again
                self._note(error)
            if time.monotonic() - begin > _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _parts(self) -> list[Part]:
        parts: list[Part] = [("other hosts", self._remote.run)]
        if self._membership.has(Role.OPERATOR, Role.VIEWER):
            parts.append(("terminals elsewhere", self._tunnels.run))
        if self._reporter is not None:
            parts += [*self._host.parts(), ("events", self._reporter.run)]
            parts += [("limits", self._limits.run), ("requests of others", self._runner.run)]
        if self._sent_requests is not None:
            parts.append(("requests to any host", self._sent_requests.run))
        if self._follower is not None:
            parts.append(("events elsewhere", self._follower.run))
        return parts

    async def _be_connected(self) -> None:
        hub = await Hub.connect(self._membership)
        try:
            await hub.measure()
            await self._name.claim(hub)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(hub.until_lost())
                tasks.create_task(self._name.renew_forever(hub))
                for part in self._parts():
                    tasks.create_task(self._keep_up(hub, *part))
                self._hub, self._since = hub, time.time()
                log.info("connected to the hub at %s as %s", self._membership.url, self._membership.name)
        finally:
            self._problems.clear()
            if self._hub is not None:
                self._hub, self._since = None, time.time()
            await hub.close()

    async def _keep_up(self, hub: Hub, name: str, run: Callable[[Hub], Awaitable[None]]) -> None:
        """Run one part until the connection ends. One that fails is tried again, and disturbs no other."""
        pause = _FIRST_PAUSE
        while True:
            running = asyncio.ensure_future(run(hub))
            try:
                await asyncio.wait((running,), timeout=_LONGEST_PAUSE)
                if not running.done():
                    pause = _FIRST_PAUSE
                    self._problems.pop(name, None)
                await running
            except Exception as error:  # whatever it was, it is noted, and tried again
                if hub.closed.is_set():
                    raise
                problem = str(_readable(error, f"'{name}' failed"))
                if self._problems.get(name) != problem:
                    log.warning("%s: %s", name, problem)
                self._problems[name] = problem
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            if hub.closed.is_set():
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _note(self, error: BaseException) -> None:
        error = _readable(error, "the connection to the hub ended")
        if str(error) != str(self._error):
            log.warning("%s", error)
        self._error = error

    async def _connected(self) -> Hub:
        """Return the connection; waits a moment for the first one. Raises why there is none."""
        if self._hub is None or not self._remote.is_loaded.is_set():
            try:
                async with asyncio.timeout(_READY_TIMEOUT):
                    await self._remote.is_loaded.wait()
            except TimeoutError:
                pass
        if self._hub is None:
            raise self._error or HubUnreachable(f"the hub at {self._membership.url} does not answer")
        return self._hub

    # ── for the routes of the boss ──

    async def status(self) -> dict[str, Any]:
        if self._hub is None:
            with contextlib.suppress(RemudaError):
                await self._connected()
        hub, latency, waiting = self._hub, None, dict[str, int]()
        if hub is not None:
            with contextlib.suppress(RemudaError):
                latency = await hub.measure()
            if self._membership.has(Role.OPERATOR):
                waiting = await self._remote.count_messages(hub)
        hosts = [{**one, "messages_waiting": waiting.get(one["name"])} for one in self._remote.hosts()]
        return {
            "name": self._membership.name,
            "roles": list(self._membership.key.roles),
            "url": self._membership.url,
            "connected": hub is not None,
            "since": self._since,
            "error": None if hub is not None or self._error is None else str(self._error),
            "problems": self._problems | self._rights_problem(),
            "latency": latency,
            "clock_ahead": None if hub is None else round(-hub.ahead, 1),
            "events_waiting": 0 if self._reporter is None else self._reporter.waiting,
            "hosts": hosts,
            "refusals": await asyncio.to_thread(HubFolder.default().refusals),
        }

    def _rights_problem(self) -> dict[str, str]:
        refusals = self._hub.refusals if self._hub is not None else []
        return {"rights": f"the hub refused something: {refusals[-1]}"} if refusals else {}

    async def sessions(self, *, wait: bool = True, only_waiting: bool = False) -> dict[str, Any]:
        is_new = time.time() - self._since < _READY_TIMEOUT  # a hub that is down does not make lists slow
        if wait and is_new and not self._remote.is_loaded.is_set():
            with contextlib.suppress(RemudaError):
                await self._connected()
        lost = self._hub is None
        return {
            "name": self._membership.name,
            "connected": not lost,
            "since": self._since,
            "error": str(self._error) if lost and self._error is not None else None,
            "sessions": self._remote.sessions(without=self._membership.name, only_waiting=only_waiting),
        }

    def is_other(self, host: str) -> bool:
        return host != self._membership.name and self._remote.is_known(host)

    async def events(self, after: int, wait: float, limit: int) -> dict[str, Any]:
        if self._follower is None:
            raise PermissionRefused(f"the key of '{self._membership.name}' may not see other hosts")
        return await self._follower.listing(after, wait, limit)

    # ── requests to any host ──

    def _offer_pool(self, offered: bool) -> None:
        self._name.facts["pool"] = offered

    @property
    def requests(self) -> SentRequests:
        if self._sent_requests is None:
            raise PermissionRefused(
                f"the key of '{self._membership.name}' may not act on other hosts",
                hint="'remuda fleet keys new NAME --role host --role operator' on the hub makes one that may",
            )
        return self._sent_requests

    async def run_anywhere(self, profile: str, payload: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        requests, hub = self.requests, await self._connected()
        if not any(one["reachable"] and one["pool"] for one in self._remote.hosts()):
            raise PoolNotServed(
                "no host of the fleet offers a pool", hint="run 'remuda pool serve --fleet' on a host"
            )
        return await requests.submit(hub, profile, payload, seconds)

    async def request(
        self,
        host: str,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        timeout: float,  # noqa: ASYNC109
    ) -> Any:
        return await self._remote.request(await self._connected(), host, method, path, body, timeout)

    async def send(
        self, host: str, session: str, prompt: str, options: Mapping[str, Any], sender: str | None
    ) -> dict[str, Any]:
        return await self._remote.send(await self._connected(), host, session, prompt, options, sender)

    async def receipt(self, word: str, wait: float, steps: int) -> dict[str, Any]:
        with contextlib.suppress(RemudaError):
            await self._connected()
        return await self._remote.receipt(self._hub, word, wait, steps)

    async def sent_to(self, host: str, session: str) -> list[dict[str, Any]]:
        return await self._remote.sent_to(self._hub, host, session)


def _readable(error: BaseException, what: str) -> RemudaError:
    """Return the error to show; one that is not ours is logged, and its kind is named."""
    while isinstance(error, BaseExceptionGroup):
        ours, _ = error.split(lambda one: isinstance(one, HubRefused))
        error = (ours or error).exceptions[0]
    if isinstance(error, RemudaError):
        return error
    log.error("%s", what, exc_info=error)
    return HubUnreachable(f"{what}: {type(error).__name__}")
