"""Send notices about waiting items: to the desktop and by HTTP.

The settings are read again in each round. A notice that fails is tried three times, and logged.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import subprocess
from collections import defaultdict
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.client import HTTPException
from typing import Any

from remuda.errors import NotInQueue, NotSafe, RemudaError
from remuda.untrusted import dump_json, parse_object

from ..attention.model import ApprovalState, Item
from ..folder import BossFolder
from ..service import BossService
from .links import Links
from .notification import LINK_LIFE, NotifySettings, Receiver, Schedule, load_settings, notify_file, words
from .sending import TIMEOUT, NoticeExchange, place_of, reason_of, send, show

log = logging.getLogger("remuda.boss.notices.notification")

ROUND = 1.0
_PAUSES = (0.0, 2.0, 10.0)
_AT_ONCE = 2
"""Per receiver, each in a thread of its own: one that never answers does not delay the others."""
_NOTE = "notices"


class Notifier:
    """Use from `open` to `close`."""

    def __init__(self, service: BossService, links: Links, folder: BossFolder, port: int) -> None:
        self._service = service
        self._links = links
        self._folder = folder
        self._port = port
        self._schedule = Schedule()
        self._sent: dict[str, float] = {}
        """Items that need no notice any more, also after a restart. Notices under way do not count."""
        self._partly: dict[str, list[str]] = {}
        """Receivers that have got the notice of an item that others have not got yet."""
        self._complaint = ""
        # By receiver: the boss waits for none of them, and none waits for another.
        self._threads: defaultdict[str, ThreadPoolExecutor] = defaultdict(
            lambda: ThreadPoolExecutor(_AT_ONCE, "notice")
        )
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(_AT_ONCE))
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        self._load()
        self._begin(self._rounds())

    async def close(self) -> None:
        """Does not wait for receivers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _load(self) -> None:
        """Load what the boss before us has sent."""
        try:
            stored = parse_object(self._service.store.note(_NOTE) or "{}")
            self._sent = {str(one): float(at) for one, at in stored["told"].items()}
            partly = stored.get("partly", {})
            self._partly = {str(one): [str(key) for key in keys] for one, keys in partly.items()}
            self._schedule = Schedule(
                dict(self._sent), {str(one): float(at) for one, at in stored["last"].items()}
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            self._sent, self._partly, self._schedule = {}, {}, Schedule()

    async def _rounds(self) -> None:
        while True:
            try:
                await self._round()
            except RemudaError as error:
                self._complain(str(error))
            await asyncio.sleep(ROUND)

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            log.warning("no notice can be sent: %s", text)
        self._complaint = text

    async def _round(self) -> None:
        waiting = self._service.queue()
        if not waiting:
            return
        settings = await asyncio.to_thread(self._settings)
        failed = False
        for item in self._schedule.due(waiting, settings, self._service.clock()):
            try:
                fields = await self._fields(item, settings)
            except RemudaError as error:
                failed = True
                self._schedule.put_back(item)
                self._complain(str(error))
            else:
                self._begin(self._notify_all(item, fields, settings))
        if not failed:
            self._complaint = ""

    def _settings(self) -> NotifySettings:
        return load_settings(notify_file(self._folder, os.environ))

    async def _notify_all(self, item: Item, fields: Mapping[str, str], settings: NotifySettings) -> None:
        done = self._partly.get(item.id, [])
        wanted = [one for one in settings.receivers if item.reason in one.reasons and _key(one) not in done]
        await asyncio.gather(*(self._notify_one(receiver, item, fields) for receiver in wanted))
        notified = self._schedule.notified
        self._sent = {one: at for one, at in self._sent.items() if one in notified} | {
            item.id: self._service.clock()
        }
        await self._store(item)

    async def _notify_one(self, receiver: Receiver, item: Item, fields: Mapping[str, str]) -> None:
        if await self._try_to_notify(receiver, fields):
            self._partly.setdefault(item.id, []).append(_key(receiver))
            await self._store(item)

    async def _store(self, item: Item) -> None:
        """Store who was notified, for the next boss."""
        on_their_way = self._schedule.notified.keys() - self._sent.keys()
        self._partly = {one: keys for one, keys in self._partly.items() if one in on_their_way}
        last = {item.session_id: self._service.clock()} | self._schedule.last
        document = {"told": self._sent, "last": last, "partly": self._partly}
        try:
            await self._service.store.save_note(_NOTE, dump_json(document))
        except RemudaError as error:
            log.warning("cannot record which notices were sent: %s", error)

    async def _fields(self, item: Item, settings: NotifySettings) -> dict[str, str]:
        try:
            session = self._service.session(item.session_id)
        except NotInQueue:
            session = None
        return words(item, session, await self._link(item, settings))

    async def _link(self, item: Item, settings: NotifySettings) -> str:
        """Return a link for a request that can be decided from elsewhere."""
        approval_id = str(item.detail.get("ask", ""))
        try:
            if not approval_id or self._service.approval(approval_id).state is not ApprovalState.OPEN:
                return ""
        except (NotInQueue, NotSafe):
            return ""
        base = settings.link_base or f"http://127.0.0.1:{self._port}"
        return f"{base}/v1/answer/{await self._links.make(approval_id, LINK_LIFE)}"

    async def _try_to_notify(self, receiver: Receiver, fields: Mapping[str, str]) -> bool:
        """Return whether the receiver took it."""
        what = place_of(receiver)
        for pause in _PAUSES:
            await asyncio.sleep(pause)
            try:
                async with self._turns[receiver.url]:
                    await self._send_in_thread(receiver, fields)
            except (OSError, ValueError, HTTPException, subprocess.SubprocessError) as error:
                log.warning("cannot notify %s: %s", what, reason_of(error))
            else:
                log.info("notified %s: %s", what, fields["title"])
                return True
        return False

    async def _send_in_thread(self, receiver: Receiver, fields: Mapping[str, str]) -> None:
        loop, exchange = asyncio.get_running_loop(), NoticeExchange()
        deadline = loop.call_later(TIMEOUT, exchange.abort)
        try:
            tell = show if receiver.desktop else send
            await loop.run_in_executor(self._threads[receiver.url], tell, receiver, fields, exchange)
        finally:
            deadline.cancel()


def _key(receiver: Receiver) -> str:
    """Return a name for the receiver in the database, without its address: that is often a password."""
    same = repr(replace(receiver, reasons=frozenset()))  # a set has another order in each process
    return hashlib.sha256(same.encode("utf-8", "backslashreplace")).hexdigest()[:16]
