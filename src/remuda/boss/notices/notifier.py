"""Send notices about waiting items: to the desktop, by HTTP, to ntfy and to browsers.

The settings are read again in each round. A notice that fails is tried three times, and logged. When an item
no longer waits, its notices are cleared where that is possible: on phones with ntfy, and in browsers.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import subprocess
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.client import HTTPException

from remuda.errors import NotInQueue, NotSafe, RemudaError
from remuda.tasks import TaskSet
from remuda.untrusted import dump_json, parse_object

from ..attention.model import Approval, ApprovalState, Item
from ..folder import BossFolder
from ..service import BossService
from .buttons import MOST, offer
from .links import Links
from .notification import LINK_LIFE, Notice, NoticeButton, Schedule, is_quiet, words
from .notify_file import NotifySettings, PushSettings, Receiver, find_settings
from .push import PushSubscriptions
from .sending import TIMEOUT, NoticeExchange, clear, host_of, place_of, reason_of, tell

log = logging.getLogger("remuda.boss.notices.notification")

ROUND = 1.0
_PAUSES = (0.0, 2.0, 10.0)
_AT_ONCE = 2
"""Per receiver, each in a thread of its own: one that never answers does not delay the others."""
_NOTE = "notices"


class Notifier:
    """Use from `open` to `close`."""

    def __init__(
        self, service: BossService, links: Links, push: PushSubscriptions, folder: BossFolder, url: str
    ) -> None:
        self._service = service
        self._links = links
        self._push = push
        self._folder = folder
        self._url = url
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
        self._tasks = TaskSet()

    def open(self) -> None:
        self._load()
        self._tasks.start(self._rounds())

    async def close(self) -> None:
        """Does not wait for receivers."""
        await self._tasks.aclose()
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)

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
        over = self._sent.keys() - {item.id for item in waiting}
        if not waiting and not over and not self._service.warnings:
            return
        settings = self._push.completed(await asyncio.to_thread(self._settings))
        await self._warn(settings)
        for item_id in over:
            sent_at = self._sent.pop(item_id)
            for receiver in settings.receivers:
                if receiver.is_ntfy or self._has_notice(receiver, item_id, sent_at):
                    self._tasks.start(self._clear(receiver, item_id, settings.push))
        if over:
            await self._store({})
        failed = False
        for item in self._schedule.due(waiting, settings, self._service.clock()):
            try:
                notices = await self._notices(item, settings)
            except RemudaError as error:
                failed = True
                self._schedule.put_back(item)
                self._complain(str(error))
            else:
                self._tasks.start(self._notify_all(item, notices, settings.push))
        if not failed:
            self._complaint = ""

    async def _warn(self, settings: NotifySettings) -> None:
        """Send what has no item in the queue, once, after quiet hours."""
        if is_quiet(settings, self._service.clock()):
            return
        warnings, self._service.warnings = self._service.warnings, []
        for item in warnings:
            for receiver, notice in await self._notices(item, settings):
                self._tasks.start(self._try_to_notify(receiver, notice, settings.push))

    def _settings(self) -> NotifySettings:
        return find_settings(self._folder, os.environ)

    async def _notify_all(
        self, item: Item, notices: list[tuple[Receiver, Notice]], push: PushSettings
    ) -> None:
        await asyncio.gather(*(self._notify_one(one, item, notice, push) for one, notice in notices))
        self._sent[item.id] = self._service.clock()
        await self._store({item.session_id: self._service.clock()})

    async def _notify_one(self, receiver: Receiver, item: Item, notice: Notice, push: PushSettings) -> None:
        if await self._try_to_notify(receiver, notice, push):
            self._partly.setdefault(item.id, []).append(_key(receiver))
            await self._store({item.session_id: self._service.clock()})

    def _has_notice(self, receiver: Receiver, item_id: str, sent_at: float) -> bool:
        """Whether a browser got the notice of an item. Browsers tolerate few messages that show nothing."""
        try:
            reason = self._service.item(item_id).reason
        except NotInQueue:
            return False
        return (
            receiver.push is not None and reason in receiver.reasons and receiver.push.created_at <= sent_at
        )

    async def _clear(self, receiver: Receiver, item_id: str, push: PushSettings) -> None:
        key = self._folder.push_key
        try:
            async with self._turns[_lane(receiver)]:
                await self._in_thread(
                    receiver, lambda exchange: clear(receiver, item_id, exchange, push, key)
                )
        except (OSError, ValueError, HTTPException, RemudaError) as error:  # a server before 2.16 cannot
            log.info("cannot clear a notice at %s: %s", place_of(receiver), reason_of(error))
            self._push.heard(receiver, error)

    async def _store(self, last: Mapping[str, float]) -> None:
        """Store who was notified, for the next boss. `last`: when, of sessions that are forgotten here."""
        on_their_way = self._schedule.notified.keys() - self._sent.keys()
        self._partly = {one: keys for one, keys in self._partly.items() if one in on_their_way}
        document = {"told": self._sent, "last": {**last, **self._schedule.last}, "partly": self._partly}
        try:
            await self._service.store.save_note(_NOTE, dump_json(document))
        except RemudaError as error:
            log.warning("cannot record which notices were sent: %s", error)

    # ── what each receiver gets ──

    async def _notices(self, item: Item, settings: NotifySettings) -> list[tuple[Receiver, Notice]]:
        """Return the notice for each receiver that wants one and has not got it."""
        done = self._partly.get(item.id, [])
        wanted = [one for one in settings.receivers if item.reason in one.reasons and _key(one) not in done]
        try:
            session = self._service.session(item.session_id)
        except NotInQueue:
            session = None
        approval, base = self._open_approval(item), settings.link_base or self._url
        link, page = "", f"{self._url}/#/queue/{item.id}"
        if approval is not None and any(not one.is_ntfy and one.push is None for one in wanted):
            link = _address(base, await self._links.make(approval.id, LINK_LIFE))
        fields = words(item, session, link, page)
        return [(one, await self._notice(one, Notice(fields, item.id), approval, base)) for one in wanted]

    async def _notice(
        self, receiver: Receiver, notice: Notice, approval: Approval | None, base: str
    ) -> Notice:
        """Make links for the buttons of this receiver alone, so that the ledger can name it."""
        page = notice.fields["page"]
        if not receiver.is_ntfy:
            return notice
        if approval is None or not receiver.buttons:
            return replace(notice, open=page)
        text, buttons = offer(approval)
        buttons = buttons[:MOST] if receiver.details else ()
        answers, by = [one.answer for one in buttons], f"notice: {host_of(receiver)}"
        secrets = await self._links.make_buttons(approval.id, LINK_LIFE, answers, by)
        actions = tuple(
            NoticeButton(one.label, _address(base, secret), dump_json(one.answer))
            for one, secret in zip(buttons, secrets, strict=True)
        )
        opened = _address(base, await self._links.make(approval.id, LINK_LIFE))
        return replace(notice, text=text, open=opened, actions=actions)

    def _open_approval(self, item: Item) -> Approval | None:
        """Return the request of an item, if it can be decided from elsewhere."""
        approval_id = str(item.detail.get("ask", ""))
        try:
            approval = self._service.approval(approval_id) if approval_id else None
        except (NotInQueue, NotSafe):
            return None
        return approval if approval is not None and approval.state is ApprovalState.OPEN else None

    # ── sending ──

    async def _try_to_notify(self, receiver: Receiver, notice: Notice, push: PushSettings) -> bool:
        """Return whether the receiver took it."""
        what = place_of(receiver)
        for pause in _PAUSES:
            await asyncio.sleep(pause)
            try:
                async with self._turns[_lane(receiver)]:
                    await self._in_thread(
                        receiver,
                        lambda exchange: tell(receiver, notice, exchange, push, self._folder.push_key),
                    )
            except RemudaError as error:  # trying again does not help
                log.warning("cannot notify %s: %s", what, error)
                return False
            except (OSError, ValueError, HTTPException, subprocess.SubprocessError) as error:
                log.warning("cannot notify %s: %s", what, reason_of(error))
                if receiver.push is not None and self._push.heard(receiver, error):
                    return False
            else:
                log.info("notified %s: %s", what, notice.fields["title"])
                return True
        return False

    async def _in_thread(self, receiver: Receiver, work: Callable[[NoticeExchange], object]) -> None:
        loop, exchange = asyncio.get_running_loop(), NoticeExchange()
        deadline = loop.call_later(TIMEOUT, exchange.abort)
        try:
            await loop.run_in_executor(self._threads[_lane(receiver)], work, exchange)
        finally:
            deadline.cancel()


def _address(base: str, secret: str) -> str:
    return f"{base}/v1/answer/{secret}"


def _lane(receiver: Receiver) -> str:
    """Return what the threads of a receiver are kept by: browsers share those of their push service."""
    return receiver.url if receiver.push is None else host_of(receiver)


def _key(receiver: Receiver) -> str:
    """Return a name for the receiver in the database, without its address: that is often a password."""
    same = repr(replace(receiver, reasons=frozenset()))  # a set has another order in each process
    return hashlib.sha256(same.encode("utf-8", "backslashreplace")).hexdigest()[:16]
