"""This machine as a host of the fleet: it shows its sessions, takes messages for them and answers requests.

The host is the authority on its sessions: inboxes, ledger and queue stay its own files, and everything works
as before while the hub cannot be reached. The hub always gets the present state, so that nothing
has to be sent again in order after a gap.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda.boss.attention.model import Approval, BossSession, Item
from remuda.boss.client import BossClient
from remuda.boss.evidence.messages import short_step
from remuda.boss.folder import BossFolder
from remuda.boss.http.queue_routes import bare_item_document, session_document
from remuda.boss.ports import BossParts
from remuda.errors import (
    BadName,
    FolderUnusable,
    HubRefused,
    HubUnreachable,
    InboxBusy,
    InboxCorrupt,
    RemudaError,
    SessionNotFound,
    SessionUnreachable,
)
from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import FINAL, trace
from remuda.keeper.claim import read_holder
from remuda.keeper.record import SessionRecord
from remuda.keeper.sendable import find_prompts
from remuda.paths import SessionPaths
from remuda.tasks import TaskSet
from remuda.untrusted import one_line

from . import exchange, subjects
from .exchange import FleetMessage
from .held_name import HeldName
from .hub import REDELIVERED_SECONDS, Hub, Part
from .hub_types import HubRequest, Outdated, Taken
from .member_files import DurableMap
from .streams import ACK_WAIT
from .subjects import INBOX
from .tunnel_host import TunnelHost

log = logging.getLogger("remuda.fleet.host")

_FETCH_TIMEOUT = 5.0
_RETRY_DELAY = 5.0
_MOST_WAITING = 64 << 20
"""Bytes of messages that wait for their inboxes in memory."""
_MOST_OPEN = 256
_COMES_AGAIN = ACK_WAIT / 2
"""A message that is younger was not handed out before, unless the hub was killed."""
_COALESCE = 0.1
_LOOK_INTERVAL = 30.0
_FILES_INTERVAL = 0.5
_AT_ONCE = 32
_WORKERS = 4
_REQUEST_TIMEOUT = 120.0
_BUSY = (FolderUnusable, InboxBusy, InboxCorrupt, SessionUnreachable, OSError)
"""A message that met one of these is tried again."""


class FleetHost:
    """Use from the boss's loop. `run` for each connection; `close` at the end."""

    def __init__(
        self, boss: BossParts, folder: Path, sessions: Path, boss_folder: BossFolder, name: HeldName
    ) -> None:
        self._boss = boss
        self._sessions = sessions
        self._tunnels = TunnelHost(boss)
        self._client = BossClient(boss_folder, timeout=_REQUEST_TIMEOUT)
        self._name = name
        self._following = DurableMap(folder / "following.json")
        """Session by message: messages of the fleet that have not ended."""
        self._claimed = DurableMap(folder / "claimed.json")
        """Messages that the hub knows to be taken, and that may not be in their inbox yet."""
        self._shown = DurableMap(folder / "shown.json")
        """Sessions that the hub may know, also those of an earlier run."""
        self._values: dict[str, bytes] = {}
        """What the hub got last, by session."""
        self._changed_sessions: set[str] = set()
        self._receipts: dict[str, bytes] = {}
        self._files: dict[str, tuple[Any, ...]] = {}
        self._receipt_lock = asyncio.Lock()
        self._inboxes: dict[str, Inbox] = {}
        """By session. They stay open: the first put of each also syncs its folder."""
        self._changed_messages: set[str] = set()
        self._messages_changed, self._sessions_changed = asyncio.Event(), asyncio.Event()
        # Threads of its own: a request waits there for this same boss, which needs the common ones.
        self._threads = ThreadPoolExecutor(_WORKERS, thread_name_prefix="fleet")
        self._requests = TaskSet()

    async def close(self) -> None:
        await self._requests.aclose()
        self._threads.shutdown(wait=False, cancel_futures=True)
        for inbox in self._inboxes.values():
            inbox.close()

    def parts(self) -> list[Part]:
        """Return what to run on each connection, until the connection ends."""
        return [
            ("requests", self._answer_requests),
            ("changes", self._listen),
            ("messages", self._take_messages),
            ("sessions", self._show_sessions),
            ("receipts", self._show_receipts),
            ("terminals", self._tunnels.run),
        ]

    async def _answer_requests(self, hub: Hub) -> None:
        async def handle(request: HubRequest) -> None:
            self._start_request(hub, request)

        name = hub.member.name
        async with hub.answering(f"rq.{name}.*.*", handle), hub.answering(f"ap.{name}.*.*", handle):
            await hub.closed.wait()

    async def leave(self, hub: Hub) -> None:
        """Take the sessions of this host from the hub."""
        for key in (keys := list(self._shown)):
            with suppress(BadName):
                await hub.remove(subjects.session_subject(hub.member.name, key))
        self._shown.update({}, keys)

    # ── changes of this boss ──

    async def _listen(self, _hub: Hub) -> None:
        watcher = self._boss.service.feed.watch()
        self._look_at_sessions()
        self._sessions_changed.set()
        self._look_at_messages()
        try:
            async for change in watcher:
                if change.kind == "message":
                    if change.value.get("id") in self._following:
                        self._changed_messages.add(str(change.value["id"]))
                        self._messages_changed.set()
                elif not change.kind.startswith("host_"):  # of other hosts
                    self._note_change(change.value)
                if change.kind == "reset":
                    self._look_at_messages()
        finally:
            watcher.close()
        raise HubUnreachable("the boss is ending")

    def _note_change(self, value: Any) -> None:
        if isinstance(value, BossSession):
            self._changed_sessions.add(value.id)
        elif isinstance(value, Item | Approval):
            self._changed_sessions.add(value.session_id)
        else:
            self._look_at_sessions()
        self._sessions_changed.set()

    def _look_at_sessions(self) -> None:
        self._changed_sessions |= {one.id for one in self._boss.service.sessions()} | set(self._shown)

    def _look_at_messages(self) -> None:
        self._changed_messages |= set(self._following)
        self._messages_changed.set()

    # ── sessions ──

    async def _show_sessions(self, hub: Hub) -> None:
        self._values.clear()
        self._look_at_sessions()
        self._sessions_changed.set()
        while True:
            try:
                async with asyncio.timeout(_LOOK_INTERVAL):
                    await self._sessions_changed.wait()
            except TimeoutError:
                self._look_at_sessions()
            self._sessions_changed.clear()
            await self._show(hub, self._documents())
            await asyncio.sleep(_COALESCE)  # an agent changes its state several times in a moment

    def _documents(self) -> dict[str, bytes | None]:
        """Return what the hub should have of the sessions that changed; None for one that is not shown."""
        service = self._boss.service
        changed, self._changed_sessions = self._changed_sessions, set()
        documents = dict.fromkeys(changed)
        for key in changed:
            session, item = service.session_of(key), service.item_of(key)
            if session is None or session.replaced_by is not None:
                continue
            try:
                if session.ended is None or item is not None:
                    documents[key] = self._document(session, item)
            except (ValueError, RecursionError) as error:  # the others are shown
                log.warning("session %s cannot be shown: %s", key[:80], one_line(str(error)))
        return documents

    def _document(self, session: BossSession, item: Item | None) -> bytes:
        fields = session_document(self._boss, session)
        fields.pop("last_seen")  # changes with every event
        shown = exchange.shown_session(fields, bare_item_document(self._boss, item) if item else None)
        return subjects.write(shown)

    async def _show(self, hub: Hub, documents: dict[str, bytes | None]) -> None:
        name = hub.member.name
        new = {key: one for key, one in documents.items() if one is not None and one != self._values.get(key)}
        # On the disk first: what the hub may know is removed there, also after a crash.
        self._shown.update(dict.fromkeys(new, ""))
        left = list(new)
        while left:
            keys, left = left[:_AT_ONCE], left[_AT_ONCE:]
            await asyncio.gather(*(self._store(hub, key, new[key]) for key in keys))
            self._values |= {key: new[key] for key in keys}
        gone = [key for key, one in documents.items() if one is None and key in self._shown]
        for key in gone:
            with suppress(BadName):
                await hub.remove(subjects.session_subject(name, key))
            self._values.pop(key, None)
        self._shown.update({}, gone)

    async def _store(self, hub: Hub, key: str, document: bytes) -> None:
        try:
            await hub.store(subjects.session_subject(hub.member.name, key), document, "a session")
        except (HubRefused, HubUnreachable):
            raise
        except RemudaError as error:  # the others are shown
            log.warning("session %s cannot be shown: %s", key[:80], one_line(str(error)))

    # ── messages ──

    async def _take_messages(self, hub: Hub) -> None:
        """Take messages in order. One whose inbox cannot take it waits here, with those after it for the same
        session, and those for other sessions go on.
        """
        waiting: dict[str, list[_Waiting]] = {}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._try_again(hub, waiting))
            tasks.create_task(self._take_each(hub, waiting))

    async def _take_each(self, hub: Hub, waiting: dict[str, list[_Waiting]]) -> None:
        last, missing, _ = await hub.queue(hub.member.name)
        early: list[Taken] = []
        missed_at = time.monotonic()
        async with aclosing(hub.taking(INBOX, hub.member.name, _FETCH_TIMEOUT)) as messages:
            async for taken in messages:
                if taken is not None:
                    early.append(taken)
                    # What a connection got that broke comes again, and later ones come before it.
                    if taken.delivery > last + 1:
                        missing, missed_at = missing + taken.delivery - last - 1, time.monotonic()
                    last = max(last, taken.delivery)
                    missing = max(0, missing - (taken.attempt > 1))
                if missing and time.monotonic() - missed_at < REDELIVERED_SECONDS:
                    await hub.extend(early)
                    continue
                missing = 0
                for one in sorted(early, key=lambda one: one.sequence):
                    await self._take(hub, one, waiting)
                early.clear()
                while _size(waiting) > _MOST_WAITING:  # noqa: ASYNC110  # looked at after each try
                    await asyncio.sleep(_RETRY_DELAY)

    async def _take(self, hub: Hub, taken: Taken, waiting: dict[str, list[_Waiting]]) -> None:
        try:
            message = exchange.read_message(taken.subject, taken.data, taken.headers, hub.member.name)
        except RemudaError as error:
            log.warning("refused a message: %s", one_line(str(error)))
            await taken.refuse()
            return
        before = waiting.get(message.session, [])
        if known := [one for one in before if one.message.id == message.id]:
            known[0].taken = taken
        elif before or not await self._deliver(hub, message, taken):
            waiting.setdefault(message.session, []).append(_Waiting(message, taken))

    async def _try_again(self, hub: Hub, waiting: dict[str, list[_Waiting]]) -> None:
        while True:
            await asyncio.sleep(_RETRY_DELAY)
            await hub.extend([one.taken for some in waiting.values() for one in some])
            for session, some in list(waiting.items()):
                while some and await self._deliver(hub, some[0].message, some[0].taken):
                    some.pop(0)
                if not some:
                    del waiting[session]

    async def _deliver(self, hub: Hub, message: FleetMessage, taken: Taken) -> bool:
        """Put a message into its inbox, have that known, and only then take it from the hub.

        Returns False if the inbox does not take it now.
        """
        if not self._name.is_held:
            raise HubUnreachable("the name of this host could not be renewed in time")
        age = hub.now() - taken.stored_at
        try:
            if not message.ttl or await self._claim(hub, message, taken.stored_at):
                await asyncio.to_thread(self._put, message, age, self._open(message.session))
                self._following.update({message.id: message.session})
                self._claimed.update({}, [message.id])
                await self._show_receipt(hub, message.id, message.session)
            else:
                await self._end(hub, message, "expired", f"{message.host} did not take it in time")
            await taken.ack()
        except (HubUnreachable, HubRefused):
            raise
        except _BUSY as error:
            log.warning("message %s is tried again: %s", message.id, one_line(str(error)))
            return False
        except _Repeated as repeated:
            why = f"a message with this dedup key was accepted before: {repeated}"
            await self._end(hub, message, "dropped", why)
            await taken.ack()
        except RemudaError as error:
            await self._end(hub, message, "dead", str(error))
            await taken.refuse()
        except Exception:  # a defect of ours must not block the messages for other sessions
            log.exception("message %s is tried again", message.id)
            return False
        return True

    async def _claim(self, hub: Hub, message: FleetMessage, stored_at: float) -> bool:
        """Have the hub know that this host takes a message, before its time to live is over.

        Returns whether it may be put. After that time its sender reports that a message expired which no host
        has claimed, so it must not run then. One that is in its inbox already was claimed before.
        """
        if await asyncio.to_thread(self._is_put, message):
            return True
        expires = exchange.expiry(message, stored_at)
        if hub.now() < expires:
            self._claimed.update({message.id: ""})
            step = {"stage": exchange.CLAIMED, "at": time.time(), "reason": f"{message.host} is taking it"}
            with suppress(Outdated):  # it was claimed before
                await self._store_first(hub, message, step)
        return hub.now() < expires

    def _is_put(self, message: FleetMessage) -> bool:
        inbox = SessionPaths.of(message.session, self._sessions).inbox
        return inbox.is_dir() and trace(inbox, message.id) is not None

    def _put(self, message: FleetMessage, age: float, inbox: Inbox) -> None:
        """Put it into the inbox of the session, once. Raises for a session that does not take it."""
        paths = SessionPaths.of(message.session, self._sessions)
        if not paths.inbox.is_dir():
            if read_holder(paths) is None and SessionRecord.load(paths.record) is None:
                raise SessionNotFound(f"session '{message.session}' not found on {message.host}")
        elif age > _COMES_AGAIN and self._is_put(message):
            return
        options = exchange.put_options(message, age)
        if (prompts := find_prompts(paths)) is not None:
            flags = {name: bool(options.get(name)) for name in ("command", "literal")}
            prompts.check(message.prompt, command=flags["command"], literal=flags["literal"])
        accepted = inbox.put(message.prompt, **options)
        if accepted.id != message.id:
            raise _Repeated(accepted.id)

    def _open(self, session: str) -> Inbox:
        if (inbox := self._inboxes.pop(session, None)) is None:
            folder = SessionPaths.of(session, self._sessions).inbox
            inbox = Inbox(folder, max_bytes=subjects.MAX_PAYLOAD_BYTES)
        self._inboxes[session] = inbox  # the one used last is the last
        if len(self._inboxes) > _MOST_OPEN:
            self._inboxes.pop(next(iter(self._inboxes))).close()
        return inbox

    async def _end(self, hub: Hub, message: FleetMessage, stage: str, reason: str) -> None:
        """Store the end of a message that is not put.

        One that has a receipt keeps it: it was handed out before, and its inbox may have been removed since.
        """
        step = {"stage": stage, "at": time.time(), "reason": one_line(reason)}
        with suppress(Outdated):
            await self._store_first(hub, message, step, replace=message.id in self._claimed)
        self._claimed.update({}, [message.id])

    async def _store_first(
        self, hub: Hub, message: FleetMessage, step: dict[str, Any], *, replace: bool = False
    ) -> None:
        """Store the first receipt of a message. Raises `Outdated` if there is one, except with `replace`."""
        data = subjects.write(exchange.receipt(message.id, message.host, message.session, [step], None))
        subject = subjects.receipt_subject(message.host, message.id)
        await hub.store(subject, data, "a receipt", revision=None if replace else 0)

    # ── receipts ──

    async def _show_receipts(self, hub: Hub) -> None:
        self._receipts.clear()
        self._files.clear()
        self._look_at_messages()
        while True:
            try:
                async with asyncio.timeout(_FILES_INTERVAL):
                    await self._messages_changed.wait()
            except TimeoutError:  # an inbox that is new, or whose session has ended, reports no changes
                self._changed_messages |= {name for name in self._following if self._has_changed(name)}
            self._messages_changed.clear()
            while self._changed_messages:
                message_id = self._changed_messages.pop()
                if (session := self._following.get(message_id)) is not None:
                    await self._show_receipt(hub, message_id, session)

    def _has_changed(self, message_id: str) -> bool:
        """Whether the files that a receipt is read from are not those of the last time."""
        inbox = SessionPaths.of(str(self._following.get(message_id)), self._sessions).inbox
        now = tuple(_signature(inbox / name) for name in ("inbox.jsonl", "receipts.jsonl", "outbox.jsonl"))
        before = self._files.get(message_id)
        self._files[message_id] = now
        return now != before

    async def _show_receipt(self, hub: Hub, message_id: str, session: str) -> None:
        """Tell the hub how far a message got; it is followed until its end is on the hub's disk."""
        async with self._receipt_lock:  # else an older state could be stored after a newer one
            inbox = SessionPaths.of(session, self._sessions).inbox
            try:
                found = await asyncio.to_thread(trace, inbox, message_id)
            except _BUSY as error:
                log.warning("cannot read the receipt of %s: %s", message_id, error)
                return
            if found is None:  # its inbox was removed
                steps: list[dict[str, Any]] = [
                    {"stage": "dropped", "at": time.time(), "reason": "the inbox of the session was removed"}
                ]
            else:
                steps = [short_step(one) for one in found.steps]
            answer = found.answer if found is not None else None
            document = exchange.receipt(message_id, hub.member.name, session, steps, answer)
            data = subjects.write(document)
            if self._receipts.get(message_id) != data:
                await hub.store(subjects.receipt_subject(hub.member.name, message_id), data, "a receipt")
                self._receipts[message_id] = data
            if document["stage"] in FINAL:
                self._following.update({}, [message_id])
                self._receipts.pop(message_id, None)
                self._files.pop(message_id, None)

    # ── requests ──

    def _start_request(self, hub: Hub, request: HubRequest) -> None:
        self._requests.start(self._answer(hub, request))

    async def _answer(self, hub: Hub, request: HubRequest) -> None:
        try:
            data = await self._carry_out(hub, request)
        except RemudaError as error:
            data = exchange.write_error(error.code, error.message, error.hint)
        if not subjects.is_answer(request.reply, hub.member.name):
            return
        try:
            await request.answer(data)
        except RemudaError as error:
            log.info("an answer could not be sent: %s", error)

    async def _carry_out(self, hub: Hub, request: HubRequest) -> bytes:
        name = hub.member.name
        if len(self._requests) > _AT_ONCE:
            raise HubUnreachable(f"{name} has too many requests to answer", hint="try again")

        def ask() -> Any:
            # Here and not before: it may have waited for a thread.
            asked = exchange.read_request(*request[:4], host=name, now=hub.now())
            log.info("%s %s for %s", asked.method, asked.path, asked.sender)
            return self._client.ask(asked.method, asked.path, asked.body, _REQUEST_TIMEOUT)

        try:
            answer = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        except RuntimeError as error:  # the threads are closed
            raise HubUnreachable("the boss is ending") from error
        return exchange.write_answer(answer)


@dataclass(slots=True)
class _Waiting:
    """A message whose inbox cannot take it now."""

    message: FleetMessage
    taken: Taken


def _size(waiting: dict[str, list[_Waiting]]) -> int:
    return sum(len(one.taken.data) for some in waiting.values() for one in some)


class _Repeated(Exception):
    """Another message had the same dedup key; its id."""


def _signature(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
