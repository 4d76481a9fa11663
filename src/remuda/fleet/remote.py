"""The other hosts of the fleet: their sessions and queue items, messages and requests to them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from remuda.errors import (
    HostUnreachable,
    HubRefused,
    HubUnreachable,
    InvalidOptions,
    MessageNotFound,
    NotInFleet,
    PermissionRefused,
    RemoteProtocolError,
    RemudaError,
    WaitTimeout,
)
from remuda.inbox.message import new_id
from remuda.inbox.receipts import FINAL
from remuda.names import did_you_mean
from remuda.untrusted import finite, one_line

from . import exchange, subjects
from .held_name import LEASE
from .hub import Hub
from .hub_types import Stored
from .member_files import SentMessages
from .streams import KEPT_SECONDS
from .subjects import HOSTS, RECEIPT, SESSIONS, Role
from .tunnel import OPEN

log = logging.getLogger("remuda.fleet.remote")

Document = dict[str, Any]

_NO_ITEM = b'"item": null'
"""In a session that does not wait. No text has it: a quote in a text is escaped."""
_RELOAD_INTERVAL = 60.0
"""How often what is new is loaded, whether it was announced or not."""
_WHOLE_INTERVAL = 1800.0
"""How often everything is: the hub's mark of a session that was removed stays for an hour."""
_MOST_ANNOUNCED = 50_000
_STALE_READS = 5
_STALE_PAUSE = 0.02
_CLOCK_ERROR = 0.5
"""We wait this much longer than the host may begin: what is given up is not begun just then."""
_TAKEN_TIMEOUT = 3.0
"""How long `send` waits for the host to take the message, before it reports that the hub has it."""
_LONGEST_WAIT = 60.0
_LONGEST_REQUEST = 120.0
_COUNT_TIMEOUT = 2.0
"""A hub that has the rights of an older version does not answer."""
_UNREACHABLE_REQUEST = 3.0
"""For a host that was not heard of: it may be back, and not known to be yet."""


class RemoteHosts:
    """Use from the boss's loop. `run` for each connection."""

    def __init__(
        self,
        folder: Path,
        reload_interval: float = _RELOAD_INTERVAL,
        whole_interval: float = _WHOLE_INTERVAL,
        stale_pause: float = _STALE_PAUSE,
    ) -> None:
        self._reload_interval, self._whole_interval = reload_interval, whole_interval
        self._stale_pause = stale_pause
        self._sent = SentMessages(folder / "sent.jsonl")
        self._hosts: dict[str, Document] = {}
        """What each host says of itself, with `at`, the hub's time of that."""
        self._sessions: dict[tuple[str, str], bytes] = {}
        self._hub: Hub | None = None
        self._announced: dict[str, tuple[int, int]] = {}
        """Subjects to load again: the revision that is there, and how often an older one was found."""
        self._was_announced = asyncio.Event()
        self._receipt_came = WeakValueDictionary[str, asyncio.Event]()
        """By subject, of receipts that someone waits for."""
        self.is_loaded = asyncio.Event()
        self.changed = asyncio.Event()
        """Set with every change of a session; the one who waits for it clears it."""

    async def run(self, hub: Hub) -> None:
        """Follow the fleet until the connection ends. Raises `HubUnreachable`."""
        if not hub.member.has(Role.OPERATOR, Role.VIEWER):
            self._hosts.clear()
            self._sessions.clear()
            self._hub = hub
            self.is_loaded.set()
            await hub.closed.wait()
            return
        self._announced.clear()
        revision, loaded = 0, 0.0
        try:
            async with (
                hub.watching("$KV.hosts.*", self._announce),
                hub.watching("$KV.sessions.*.*", self._announce),
                hub.watching("rc.*.*", self._hear_receipt),
            ):
                while True:
                    if time.monotonic() - loaded > self._whole_interval:
                        revision, loaded = 0, time.monotonic()
                    revision = await self._load(hub, revision)
                    self._hub = hub
                    self.is_loaded.set()
                    await self._bounce_expired(hub)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._reload_interval):
                            await self._follow(hub)
        finally:
            self._hub = None
            self.is_loaded.clear()

    async def _load(self, hub: Hub, revision: int) -> int:
        """Load the sessions that changed since that revision, or all. Returns the last revision of them."""
        hosts = await hub.load_all(HOSTS, "$KV.hosts.*")
        known = {one.subject for one in hosts}
        self._hosts = {name: one for name, one in self._hosts.items() if subjects.host_subject(name) in known}
        sessions = await hub.load_all(SESSIONS, "$KV.sessions.*.*", after=revision)
        if not revision:
            kept = {one.subject for one in sessions}
            self._sessions = {
                key: value for key, value in self._sessions.items() if subjects.session_subject(*key) in kept
            }
        for one in (*hosts, *sessions):
            self._take(hub, one)
        return sessions[-1].revision if sessions else revision

    def _announce(self, subject: str, revision: int) -> None:
        if len(self._announced) < _MOST_ANNOUNCED:  # else the next reload finds it
            self._announced[subject] = revision, 0
            self._was_announced.set()

    async def _follow(self, hub: Hub) -> None:
        """Load what is announced, until cancelled."""
        while True:
            await self._was_announced.wait()
            self._was_announced.clear()
            await self._load_announced(hub)

    async def _load_announced(self, hub: Hub) -> None:
        wanted, self._announced = self._announced, {}
        is_stale = False
        for stream, pattern in ((HOSTS, "$KV.hosts."), (SESSIONS, "$KV.sessions.")):
            names = [name for name in wanted if name.startswith(pattern)]
            for one in await hub.load_some(stream, names):
                self._take(hub, one)
                revision, tries = wanted.get(one.subject, (0, 0))
                if one.revision < revision and tries < _STALE_READS:
                    # A server of a cluster has answered that has not caught up.
                    self._announced.setdefault(one.subject, (revision, tries + 1))
                    is_stale = True
        if is_stale:
            self._was_announced.set()
            await asyncio.sleep(self._stale_pause)

    def _take(self, hub: Hub, stored: Stored) -> None:
        words = stored.subject.split(".")
        if words[1] != "hosts":
            self.changed.set()
        try:
            if words[1] == "hosts":
                self._take_host(hub, words[2], stored)
            elif stored.data:
                self._sessions[words[2], subjects.decode(words[3])] = stored.data
            else:
                self._sessions.pop((words[2], subjects.decode(words[3])), None)
        except (RemoteProtocolError, IndexError):
            return  # another version, or a machine that does not keep to the rules

    def _take_host(self, hub: Hub, name: str, stored: Stored) -> None:
        if not stored.data:
            self._hosts.pop(name, None)
            return
        self._hosts[name] = {**subjects.read(stored.data), "at": stored.at}

    def _hear_receipt(self, subject: str, _revision: int) -> None:
        if (came := self._receipt_came.pop(subject, None)) is not None:
            came.set()

    # ── what is known ──

    def hosts(self) -> list[Document]:
        """Return all hosts: whether each can be reached, and if not, since when."""
        return [self._host(name) for name in sorted(self._hosts)]

    def _host(self, name: str) -> Document:
        known = self._hosts[name]
        hub = self._hub
        seen = finite(known.get("at")) - (hub.ahead if hub is not None else 0.0)
        reachable = hub is not None and time.time() - seen < LEASE
        protocol, roles = known.get("protocol"), known.get("roles")
        roles = roles if isinstance(roles, list) else []
        return {
            "name": name,
            "reachable": reachable,
            "unreachable_since": None if reachable else seen,
            "version": one_line(str(known.get("version") or "unknown")[:40]),
            "speaks": isinstance(protocol, int) and protocol >= exchange.PROTOCOL,
            "cannot": exchange.missing(known.get("offers")),
            "clock_ahead": round(self._ahead(known), 1),
            "sessions": sum(host == name for host, _ in self._sessions),
            "pool": known.get("pool") is True,
            "roles": [str(role) for role in Role if role in roles],
        }

    async def count_messages(self, hub: Hub) -> dict[str, int]:
        """Return how many messages the hub has for each host; only of those that it reports at once."""
        counts: dict[str, int] = {}

        async def count(host: str) -> None:
            with contextlib.suppress(RemudaError):
                state = await hub.queue(host)
                counts[host] = state.pending + state.unsettled

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_COUNT_TIMEOUT):
                await asyncio.gather(*map(count, self._hosts))
        return counts

    def _ahead(self, known: Mapping[str, Any]) -> float:
        """Return how far the clock of that host is ahead of ours."""
        return (self._hub.ahead if self._hub is not None else 0.0) - exchange.skew(known.get("ahead"))

    def sessions(self, without: str, *, only_waiting: bool = False) -> list[Document]:
        """Return the sessions of all hosts but one, with what is known of their host."""
        keys = (key for key in sorted(self._sessions) if key[0] != without and key[0] in self._hosts)
        if only_waiting:  # most of many do not wait, and reading 10,000 takes half a second
            keys = (key for key in keys if _NO_ITEM not in self._sessions[key])
        listed = (self.session(*key) for key in keys)
        return [one for one in listed if one is not None and (one["item"] is not None or not only_waiting)]

    def session(self, host: str, key: str, data: bytes | None = None) -> Document | None:
        """Return one session with what is known of its host; None if it cannot be read.

        `data` is an earlier value of it.
        """
        data = data or self._sessions.get((host, key))
        if data is None:
            return None
        try:
            shown = exchange.read_session(data, self._ahead(self._hosts.get(host, {})))
        except RemoteProtocolError:
            return None
        gone = {"reachable": False, "unreachable_since": time.time()}
        known = self._host(host) if host in self._hosts else gone
        return {name: known[name] for name in ("reachable", "unreachable_since")} | {"host": host, **shown}

    def signatures(self, without: str) -> dict[tuple[str, str], tuple[bytes, bool]]:
        """Return something that differs when a session or the reachability of its host does."""
        reachable = {name: bool(self._host(name)["reachable"]) for name in self._hosts}
        return {
            key: (data, reachable[key[0]])
            for key, data in self._sessions.items()
            if key[0] != without and key[0] in reachable
        }

    def is_known(self, host: str) -> bool:
        return host in self._hosts

    def _must_know(self, hub: Hub, name: str) -> Document:
        if not hub.member.has(Role.OPERATOR, Role.VIEWER):
            raise PermissionRefused(
                f"the key of '{hub.member.name}' may not see other hosts",
                hint="'remuda fleet keys new NAME --role host --role operator' makes one that may",
            )
        if name not in self._hosts:
            near = did_you_mean(name, self._hosts)
            hint = "'remuda fleet status' lists the hosts"
            raise NotInFleet(f"host '{name}' not found", hint=f"{near} {hint}" if near else hint)
        return self._host(name)

    # ── requests ──

    async def request(
        self,
        hub: Hub,
        host: str,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        timeout: float,  # noqa: ASYNC109
    ) -> Any:
        """Ask the boss of a host. Raises its error, or `HostUnreachable`; nothing is carried out late."""
        known = self._must_know(hub, host)
        if exchange.kind_of(method, path) != "read":
            _must_operate(hub)
        _must_speak(known)
        if (method, path) == ("POST", "/v1/sessions"):
            _must_offer(known, "start")
        subject = exchange.request_subject(host, method, path, hub.member.name)
        wait = _wait(known, timeout)
        data = exchange.write_request(method, path, body, hub.now() + wait)
        return await self._ask(hub, known, subject, data, wait, acts=method != "GET")

    async def open_tunnel(
        self,
        hub: Hub,
        host: str,
        subject: str,
        document: Mapping[str, Any],
        timeout: float,  # noqa: ASYNC109
        *,
        types: bool,
    ) -> Any:
        """Open a tunnel to a session; see `tunnel`. Raises as `request`."""
        known = self._must_know(hub, host)
        if types:
            _must_operate(hub)
        _must_speak(known)
        _must_offer(known, str(document.get("what")))
        wait = _wait(known, timeout)
        data = OPEN + subjects.write({**document, "deadline": hub.now() + wait})
        return await self._ask(hub, known, subject, data, wait, acts=False)

    async def _ask(
        self, hub: Hub, known: Document, subject: str, data: bytes, wait: float, *, acts: bool
    ) -> Any:
        host = known["name"]
        try:
            try:
                answer = await hub.request(subject, data, wait + _CLOCK_ERROR)
            except HubUnreachable as error:
                if acts:
                    raise HubUnreachable(
                        f"{error.message}, so it is not known whether it was done"
                    ) from error
                raise
            return exchange.read_answer(answer, host)
        except (HostUnreachable, WaitTimeout) as error:
            since = "" if known["reachable"] else f"; it was last heard of {_ago(known)} ago"
            done = ", so it is not known whether it was done" if acts else ""
            what = "is not connected to the hub" if isinstance(error, HostUnreachable) else "did not answer"
            done = "" if isinstance(error, HostUnreachable) else done
            hint = "'remuda fleet status' lists the hosts"
            raise HostUnreachable(f"{host} {what}{done}{since}", hint=hint) from error

    # ── messages ──

    async def send(
        self,
        hub: Hub,
        host: str,
        session: str,
        prompt: str,
        options: Mapping[str, Any],
        sender: str | None = None,
    ) -> Document:
        """Send a message. Returns when the hub has it on its disk, with how far it got a moment later.

        `sender` is who sends it on this machine: it is in the receipt, and the host does not get it.
        """
        _must_operate(hub)
        _must_speak(self._must_know(hub, host))
        now = time.time()
        sender_key = hub.member.name
        message = exchange.make_message(host, session, new_id(now), sender_key, prompt, options, hub.now())
        data = message.data()
        expires = min(message.expires or math.inf, hub.now() + KEPT_SECONDS)
        facts = {"host": host, "session": session, "sent_at": now, "expires": expires}
        facts |= {"sender": sender} if sender else {}
        await asyncio.to_thread(self._sent.note, message.id, **facts)
        try:
            await hub.store(message.subject, data, dedup=message.id)
        except HubUnreachable as error:
            raise HubUnreachable(
                f"{error.message}, so it is not known whether it has message {message.id}",
                hint=error.hint or f"'remuda messages {message.id}' shows it as soon as the host has it",
            ) from error
        except HubRefused:
            await asyncio.to_thread(self._sent.note, message.id, refused=True)
            raise
        await asyncio.to_thread(self._sent.note, message.id, stored=True)
        return await self.receipt(hub, message.id, wait=_TAKEN_TIMEOUT, steps=1)

    async def receipt(self, hub: Hub | None, word: str, wait: float, steps: int) -> Document:
        """Return how far a message got; waits until there are more than `steps` steps, or it has ended."""
        message_id = self._find(word)
        subject = subjects.receipt_subject(str((self._sent.get(message_id) or {}).get("host")), message_id)
        deadline = time.monotonic() + min(wait, _LONGEST_WAIT)
        while True:
            came = self._receipt_came.setdefault(subject, asyncio.Event())
            document = await self._receipt(hub, message_id)
            left = deadline - time.monotonic()
            if document["stage"] == "expired":
                await asyncio.to_thread(self._sent.settle, document)
            if document["ended"] or len(document["steps"]) > steps or left <= 0 or hub is None:
                return document
            try:
                async with asyncio.timeout(min(left, 5.0)):
                    await came.wait()
            except TimeoutError:
                continue

    def _find(self, word: str) -> str:
        if self._sent.get(word) is not None:
            return word
        near = self._sent.matching(word) if word else []
        if len(near) > 1:
            raise InvalidOptions(f"'{word}' matches {len(near)} messages", hint="give more of the id")
        if not near:
            raise MessageNotFound(f"message '{word}' not found", hint="'remuda messages' lists them")
        return near[0]

    async def _receipt(self, hub: Hub | None, message_id: str) -> Document:
        sent = self._sent.get(message_id) or {}
        host = str(sent.get("host"))
        steps: list[Document] = [{"stage": "sent", "at": finite(sent.get("sent_at"))}]
        stored, known, answer, where = None, None, None, host
        expires = finite(sent.get("expires"))
        try:
            if hub is not None:
                stored = await hub.load_last(RECEIPT, subjects.receipt_subject(host, message_id))
        except HubUnreachable:
            hub = None
        if hub is not None and stored is not None and stored.data:
            known = exchange.read_receipt(stored.data, host)
            if known["stage"] == exchange.CLAIMED:
                if stored.at <= expires:  # so the host may have it, and will say what became of it
                    expires = finite(sent.get("sent_at")) + hub.ahead + KEPT_SECONDS
                known = None
        if known is not None:
            by = -self._ahead(self._hosts.get(host, {}))
            steps += [{**one, "at": exchange.moment(finite(one.get("at")) + by)} for one in known["steps"]]
            answer = known.get("answer")
        elif sent.get("refused"):
            steps.append({"stage": "dropped", "at": steps[0]["at"], "reason": "the hub refused it"})
        elif hub is not None and hub.now() > expires + _CLOCK_ERROR:
            at = expires - hub.ahead
            steps.append({"stage": "expired", "at": at, "reason": f"{host} did not confirm it in time"})
        else:
            where = self._where(hub, host, sent)
            steps[0] |= {} if sent.get("stored") else {"reason": "not confirmed by the hub"}
        stage = str(steps[-1]["stage"])
        return {
            "id": message_id,
            "host": host,
            "session": str(sent.get("session")),
            "stage": stage,
            "ended": stage in FINAL,
            "steps": steps,
            "answer": answer,
            "where": where,
            "sender": sent.get("sender"),
        }

    async def _bounce_expired(self, hub: Hub) -> None:
        """Write a bounce for each message that has expired and that no one may have asked about."""
        for message_id in self._sent.unsettled(hub.now()):
            try:
                document = await self._receipt(hub, message_id)
            except RemoteProtocolError as error:  # of another version, or of a host that breaks the rules
                log.warning("message %s: %s", message_id, error)
                continue
            if document["ended"]:
                await asyncio.to_thread(self._sent.settle, document)

    def _where(self, hub: Hub | None, host: str, sent: Document) -> str:
        """Say in words where a message is that no receipt of the host names."""
        if not sent.get("stored"):
            return "an unknown place: the hub did not confirm it"
        if hub is None:
            return f"the hub or {host}: the hub does not answer now"
        if host in self._hosts and not (known := self._host(host))["reachable"]:
            return f"the hub; {host} was last heard of {_ago(known)} ago"
        return "the hub"

    async def sent_to(self, hub: Hub | None, host: str, session: str) -> list[Document]:
        """Return the messages that were sent from here to a session, and are not known to be there."""
        listed = []
        for one in self._sent.to(host, session):
            document = await self._receipt(hub, str(one["id"]))
            if document["stage"] in ("sent", "expired", "dropped"):
                listed.append(document)
        return listed


def _must_operate(hub: Hub) -> None:
    if not hub.member.has(Role.OPERATOR):
        raise PermissionRefused(
            f"the key of '{hub.member.name}' may not act on other hosts",
            hint="'remuda fleet keys new NAME --role host --role operator' on the hub makes one that may",
        )


def _must_speak(host: Document) -> None:
    if not host["speaks"]:
        raise HostUnreachable(
            f"{host['name']} runs Remuda {host['version']}, which takes no requests of this version",
            hint="upgrade Remuda there",
        )


def _must_offer(host: Document, what: str) -> None:
    if what in host["cannot"]:
        raise HostUnreachable(
            f"{host['name']} runs Remuda {host['version']}, which does not offer '{what}' to other hosts",
            hint="upgrade Remuda there",
        )


def _wait(host: Document, timeout: float) -> float:
    return min(timeout, _LONGEST_REQUEST if host["reachable"] else _UNREACHABLE_REQUEST)


def _ago(host: Document) -> str:
    from remuda.duration import show_duration

    return show_duration(max(0.0, time.time() - finite(host["unreachable_since"])))
