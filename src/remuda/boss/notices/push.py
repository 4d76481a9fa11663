"""Browsers that want to be notified. A subscription belongs to a login, and ends with it.

They are a note in the database, as the logins are. There is at most one for each login, and logins are
limited. The keys are as secret as the notices: with them anyone can notify the browser.
"""

from __future__ import annotations

import asyncio
import logging
import os
import urllib.error
from dataclasses import asdict, replace
from http.client import HTTPException
from typing import Any

from remuda.errors import InvalidOptions, NotInQueue, RemudaError, StoreFailed
from remuda.tasks import TaskSet
from remuda.untrusted import BadJson, dump_json, finite, parse_object

from ..folder import BossFolder
from ..logins import Logins
from ..service import BossService
from .notification import Notice
from .notify_file import NotifySettings, PushSettings, Receiver, Subscription, find_settings
from .public_address import PrivateAddress, check_endpoint, resolve
from .sending import TIMEOUT, NoticeExchange, advice_of, host_of, reason_of, tell
from .webpush import check_installed, encrypt, is_installed, public_key

log = logging.getLogger("remuda.boss.notices.push")

_NOTE = "push"
_GONE = (404, 410)


class PushSubscriptions:
    """Use from one event loop."""

    def __init__(self, service: BossService, logins: Logins, folder: BossFolder, contact: str = "") -> None:
        """`contact` is for push services if the settings have none."""
        self._service = service
        self._logins = logins
        self._folder = folder
        self._contact = contact
        self._subscriptions: dict[str, Subscription] = {}
        self._followed: set[str] = set()
        self._tasks = TaskSet()
        self._load()

    # ── who ──

    def all(self) -> list[Subscription]:
        return sorted(self._subscriptions.values(), key=lambda one: one.created_at)

    async def public_key(self) -> str | None:
        """Return what a browser needs to subscribe; None without the extra."""
        if not is_installed():
            return None
        return await asyncio.to_thread(public_key, self._folder.push_key)

    async def add(self, login_id: str, endpoint: str, p256dh: str, auth: str) -> Subscription:
        """Notify the browser of that login from now on. Raises `InvalidOptions`."""
        check_installed()
        login = next((one for one in self._logins.list() if one.id == login_id), None)
        if login is None:
            raise NotInQueue(f"login '{login_id}' not found")
        host, port = check_endpoint(endpoint)
        found = Subscription(login_id, endpoint, p256dh, auth, self._service.clock(), login.client)
        await asyncio.to_thread(encrypt, found, b"{}")
        settings = await asyncio.to_thread(self._settings)
        try:
            async with asyncio.timeout(TIMEOUT):
                await asyncio.to_thread(resolve, host, port, settings.push.hosts)
        except OSError as error:
            hint = advice_of(error) if isinstance(error, PrivateAddress) else "check the network of the boss"
            raise InvalidOptions(
                f"cannot use the push service {host}: {reason_of(error)}", hint=hint
            ) from None
        self._subscriptions[login_id] = found
        self._follow(login_id)
        await self._save()
        log.info("login %s is notified by %s", login_id, host)
        return found

    async def remove(self, subscription_id: str) -> None:
        """Raises `NotInQueue`."""
        if self._subscriptions.pop(subscription_id, None) is None:
            raise NotInQueue(f"no browser with login '{subscription_id}' is notified")
        await self._save()

    # ── sending ──

    def receivers(self, push: PushSettings) -> tuple[Receiver, ...]:
        return tuple(
            Receiver(push=one, reasons=push.reasons, details=push.details)
            for one in self._subscriptions.values()
        )

    def completed(self, settings: NotifySettings) -> NotifySettings:
        """Return the settings with the browsers among the receivers."""
        push = replace(settings.push, contact=settings.push.contact or self._contact)
        return replace(settings, push=push, receivers=settings.receivers + self.receivers(push))

    def heard(self, receiver: Receiver, error: Exception) -> bool:
        """Drop a browser whose push service says that it is gone. Returns whether it is."""
        is_gone = isinstance(error, urllib.error.HTTPError) and error.code in _GONE
        if is_gone and receiver.push is not None:
            known = self._subscriptions.get(receiver.push.id)
            if known == receiver.push:  # it may have subscribed again in between
                self._drop(receiver.push.id)
        return is_gone

    async def test(self, notice: Notice, only: str | None = None) -> list[dict[str, Any]]:
        """Notify all browsers, or one, and return what became of it."""
        settings = self.completed(await asyncio.to_thread(self._settings))
        wanted = [one for one in settings.receivers if one.push is not None and only in (None, one.push.id)]
        return list(await asyncio.gather(*(self._try(one, notice, settings.push) for one in wanted)))

    async def _try(self, receiver: Receiver, notice: Notice, push: PushSettings) -> dict[str, Any]:
        assert receiver.push is not None
        exchange, status, error, advice = NoticeExchange(), None, None, None
        deadline = asyncio.get_running_loop().call_later(TIMEOUT, exchange.abort)
        try:
            status = await asyncio.to_thread(tell, receiver, notice, exchange, push, self._folder.push_key)
        except (OSError, ValueError, HTTPException, RemudaError) as failure:
            is_gone = self.heard(receiver, failure)
            error = failure.message if isinstance(failure, RemudaError) else reason_of(failure)
            advice = failure.hint if isinstance(failure, RemudaError) else advice_of(failure)
            if is_gone:
                advice = "the browser has unsubscribed, and was removed"
        finally:
            deadline.cancel()
        return {**document(receiver.push), "status": status, "error": error, "advice": advice}

    def _settings(self) -> NotifySettings:
        return find_settings(self._folder, os.environ)

    # ── on disk ──

    def _load(self) -> None:
        try:
            stored = parse_object(self._service.store.note(_NOTE) or "{}")
        except BadJson as error:
            log.warning("cannot read the browsers to notify: %s", error)
            stored = {}
        for login_id, what in stored.items():
            try:
                found = _read(login_id, what)
                check_endpoint(found.endpoint)
            except (KeyError, TypeError, InvalidOptions):
                continue
            self._subscriptions[login_id] = found
        for login_id in list(self._subscriptions):
            self._follow(login_id)

    def _follow(self, login_id: str) -> None:
        """Drop the subscription when the login ends; at once, if it has ended."""
        if login_id not in self._followed:
            self._followed.add(login_id)
            self._logins.on_end(login_id, lambda: self._drop(login_id, ended=True))

    def _drop(self, login_id: str, *, ended: bool = False) -> None:
        if ended:
            self._followed.discard(login_id)
        if self._subscriptions.pop(login_id, None) is not None:
            self._tasks.start(self._save_quietly())

    async def _save_quietly(self) -> None:
        try:
            await self._save()
        except StoreFailed as error:
            log.warning("cannot write the browsers to notify: %s", error)

    async def _save(self) -> None:
        document = {one.id: asdict(one) for one in self._subscriptions.values()}
        await self._service.store.save_note(_NOTE, dump_json(document))


def document(subscription: Subscription) -> dict[str, Any]:
    """Return what a list shows: neither the address nor the keys."""
    return {
        "id": subscription.id,
        "client": subscription.client,
        "host": host_of(Receiver(push=subscription)),
        "created_at": subscription.created_at,
    }


def _read(login_id: str, what: Any) -> Subscription:
    endpoint, p256dh, auth = (str(what[name]) for name in ("endpoint", "p256dh", "auth"))
    created = finite(what.get("created_at"))
    return Subscription(login_id, endpoint, p256dh, auth, created, str(what.get("client", "")))
