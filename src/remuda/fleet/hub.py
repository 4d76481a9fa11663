"""One connection to the hub. The only module that imports `nats`.

A connection that breaks is not used again: `closed` is set, every call fails with `HubUnreachable`, and the
owner connects again. Nothing is ever kept back and sent later, so that no decision comes as a late surprise.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
import socket
import ssl
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Mapping,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import api

from remuda.errors import HostUnreachable, HubRefused, HubUnreachable, InputError, WaitTimeout
from remuda.tasks import heeding_cancellation
from remuda.untrusted import finite, one_line

from . import streams, subjects
from .hub_folder import SERVER_NAME
from .hub_types import HubRequest, Outdated, QueueState, Stored, Taken, moment, stored_value
from .membership import Membership
from .streams import ACK_WAIT, BATCH, MAX_STREAM_BYTES
from .subjects import HOSTS, NEW, SESSIONS, KeyRecord

log = logging.getLogger("remuda.fleet.hub")
# nats-py logs as errors what we report ourselves, and an answer that comes after its waiter was cancelled.
logging.getLogger("nats").setLevel(logging.CRITICAL)
# nats-py 2.16 on TLS: asyncio warns about it at the end of every connection.
logging.getLogger("asyncio").addFilter(lambda record: "eof_received" not in str(record.msg))

CONNECT_TIMEOUT = 5
ANSWER_TIMEOUT = 5.0
_FIRST_TRY = 2.0
_CLOSE_TIMEOUT = 1.0
_PING_INTERVAL = 5
_PAGE = 500
_GONE_TTL = "1h"
_WRONG_REVISION = 10071
_TOO_LARGE = 10054
_NOT_STORED = "if the network works, look for a full or read-only disk there, and restart 'fleet serve'"
_NOT_PREPARED = "restart 'remuda fleet serve', or run 'remuda fleet prepare' for servers of your own"
_FULL = (10047, 10077, 10122, 10167)
_PULL_SECONDS = 5.0
_NOTHING_CAME = ("404", "408")
REDELIVERED_SECONDS = 2 * ACK_WAIT
"""What was handed out to a connection that broke was handed out again by then, if the hub still has it."""


async def _close(client: Client) -> None:
    try:
        with heeding_cancellation():
            # It sends what waits, also on a dead link, and for a handshake that was cut it waits without end.
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await client.close()
    except (nats.errors.Error, OSError) as error:
        log.debug("closing the connection: %s", error)


def _system_words(error: OSError) -> str:
    """Return why, in the words of the system: asyncio's own begin with `[Errno 111] Connect call failed`."""
    if isinstance(error, socket.gaierror) or not error.errno:
        return one_line(str(error.strerror or error))[:200]
    return os.strerror(error.errno)


class Hub:
    """A connection. Make it with `connect`."""

    def __init__(
        self, client: Client, member: Membership, closed: asyncio.Event, refusals: list[str]
    ) -> None:
        self._client = client
        self.refusals = refusals
        """The last thing that the server said this key has no right to."""
        self._jetstream = client.jetstream(timeout=ANSWER_TIMEOUT)
        self.member = member
        self.closed = closed
        self._ahead: float | None = None

    @classmethod
    async def connect(cls, member: Membership) -> Hub:
        """Connect to the first server that answers.

        Raises `HubUnreachable`, and `HubRefused` if the server does not know the key.
        """
        *others, last = member.servers
        for url in others:
            try:
                return await cls._connect(member, url)
            except HubUnreachable as error:
                log.info("%s", error)
        return await cls._connect(member, last)

    @classmethod
    async def _connect(cls, member: Membership, url: str) -> Hub:
        client, closed, refusals = Client(), asyncio.Event(), list[str]()
        try:
            with heeding_cancellation():
                await cls._open(client, member, url, closed, refusals)
        except BaseException:
            await _close(client)
            raise
        return cls(client, member, closed, refusals)

    @staticmethod
    async def _open(
        client: Client, member: Membership, url: str, closed: asyncio.Event, refusals: list[str]
    ) -> None:

        async def on_close() -> None:
            closed.set()

        met = ""  # the client tries again until the timeout, and keeps to itself why

        async def on_error(error: Exception) -> None:
            nonlocal met
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                met = _system_words(error)
            log.info("the connection to the hub: %s", text := one_line(str(error)))
            if "permissions violation" in text.lower():
                refusals[:] = [text]

        trusted = _tls(member.key.ca)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await client.connect(
                    url,
                    name=member.name,
                    nkeys_seed_str=member.key.seed,
                    inbox_prefix=subjects.reply_prefix(member.name),
                    tls=trusted,
                    tls_hostname=SERVER_NAME if _is_ours(trusted) else None,
                    connect_timeout=CONNECT_TIMEOUT,
                    allow_reconnect=False,
                    pending_size=0,  # nothing is kept for a later connection
                    ping_interval=_PING_INTERVAL,
                    closed_cb=on_close,
                    disconnected_cb=on_close,
                    error_cb=on_error,
                )
        except ssl.SSLCertVerificationError as error:
            raise HubRefused(
                f"the certificate of {url} is not the one in the key file: {error.verify_message}",
                hint="get a new key file from the hub",
            ) from error
        except (nats.errors.Error, OSError, TimeoutError) as error:
            if "authorization" in str(error).lower():
                raise HubRefused(
                    f"the hub at {url} does not accept the key of '{member.name}'",
                    hint="it was revoked, or belongs to another hub; ask for a new one",
                ) from error
            silent = met or f"no answer within {CONNECT_TIMEOUT} s"
            why = silent if isinstance(error, TimeoutError) else one_line(str(error)) or type(error).__name__
            raise HubUnreachable(
                f"the hub at {url} cannot be reached: {why}",
                hint="check the address, and that 'remuda fleet serve' runs there",
            ) from error

    async def close(self) -> None:
        self.closed.set()
        await _close(self._client)

    @asynccontextmanager
    async def _calling(self, what: str) -> AsyncIterator[None]:
        try:
            with heeding_cancellation():
                yield
        except nats.js.errors.NoStreamResponseError as error:
            raise HubRefused(f"the hub has no stream for {what}", hint=_NOT_PREPARED) from error
        except nats.js.errors.APIError as error:
            if error.err_code == _TOO_LARGE:
                raise InputError(f"{what} is larger than the hub stores there") from error
            if error.code == 503 and not error.err_code:
                raise HubRefused(f"the hub has nothing that takes {what}", hint=_NOT_PREPARED) from error
            if error.err_code in _FULL or error.code == 503:
                text = one_line(str(error.description or error))
                raise HubRefused(f"the hub cannot store {what}: {text}", hint="free space there") from error
            raise HubRefused(f"the hub refused {what}: {one_line(str(error.description))}") from error
        except nats.errors.MaxPayloadError as error:
            most = self._client.max_payload
            raise InputError(f"{what} is larger than the hub takes ({most} bytes)") from error
        except (nats.errors.Error, OSError, TimeoutError, nats.js.errors.Error) as error:
            raise HubUnreachable(
                f"the hub did not answer: {one_line(str(error)) or type(error).__name__}"
            ) from error

    async def _question(self, subject: str, data: bytes = b"") -> Msg:
        """Ask the server, and again without an answer: one that reads its keys forgets where it goes."""
        try:
            return await self._client.request(subject, data, timeout=_FIRST_TRY)
        except nats.errors.TimeoutError:
            if self.closed.is_set():
                raise
        return await self._client.request(subject, data, timeout=ANSWER_TIMEOUT - _FIRST_TRY)

    # ── time ──

    async def measure(self) -> float:
        """Compare clocks. Returns how long the hub took to answer."""
        begin, wall = time.monotonic(), time.time()
        async with self._calling("a question about its time"):
            answer = await self._question(subjects.TIME)
        took = time.monotonic() - begin
        at = moment(str(subjects.read(answer.data).get("ts")))
        if not at:
            raise HubRefused("the hub has no streams for the fleet", hint=_NOT_PREPARED)
        # The hub answered at some time between. A link that stalls says little, and must not undo what a
        # quick answer showed: a request that came late would be taken for one in time.
        earliest, latest = at - (wall + took), at - wall
        known = (earliest + latest) / 2 if self._ahead is None else self._ahead
        self._ahead = min(max(known, earliest), latest)
        return took

    async def until_lost(self) -> None:
        """Raise `HubUnreachable` when the connection is closed, or the hub does not answer.

        nats-py may take 50 s until it says so: three pings, and asyncio waits 30 s for TLS to end.
        """
        while not self.closed.is_set():
            try:
                await self.measure()
            except HubUnreachable:
                self.closed.set()
                raise
            with suppress(TimeoutError):
                async with asyncio.timeout(_PING_INTERVAL):
                    await self.closed.wait()
        raise HubUnreachable(f"the connection to the hub at {self.member.url} was lost")

    @property
    def ahead(self) -> float:
        """How far the hub's clock is ahead of ours, in seconds."""
        return self._ahead or 0.0

    def now(self) -> float:
        """Return the hub's time."""
        return time.time() + self.ahead

    # ── storing ──

    async def store(
        self,
        subject: str,
        data: bytes,
        what: str = "the message",
        *,
        dedup: str = "",
        revision: int | None = None,
        ttl: float = 0.0,
    ) -> int:
        """Store a value on the hub's disk, and return its revision. A second one with `dedup` is ignored.

        With `ttl` it is removed after that many seconds. With `revision` only if the last value has that one.
        Errors name `what` it is.
        Raises `Outdated`, `HubRefused`, `HubUnreachable` (then it is not known whether it was stored).
        """
        headers: dict[str, str] = {}
        if dedup:
            headers["Nats-Msg-Id"] = dedup
        if revision is not None:
            headers["Nats-Expected-Last-Subject-Sequence"] = str(revision)
        if ttl:
            headers["Nats-TTL"] = f"{max(1, math.ceil(ttl))}s"
        async with self._calling(what):
            try:
                stored = await self._publish_twice(subject, data, headers)
            except nats.js.errors.APIError as error:
                if error.err_code == _WRONG_REVISION:
                    raise Outdated(subject) from error
                raise
            except nats.errors.TimeoutError as error:
                # nats-server 2.15 does not answer at all when it cannot write, and not until it is restarted.
                raise HubUnreachable(
                    f"the hub did not confirm within {ANSWER_TIMEOUT:g} s that it stored {what}",
                    hint=_NOT_STORED,
                ) from error
        return int(stored.seq)

    async def _publish_twice(self, subject: str, data: bytes, headers: dict[str, str]) -> api.PubAck:
        """As `_question`, for what is stored."""
        try:
            return await self._jetstream.publish(subject, data, _FIRST_TRY, headers=headers or None)
        except nats.errors.TimeoutError:
            if self.closed.is_set():
                raise
        try:
            again = ANSWER_TIMEOUT - _FIRST_TRY
            return await self._jetstream.publish(subject, data, again, headers=headers or None)
        except nats.js.errors.APIError as error:
            if error.err_code == _WRONG_REVISION:  # of the first one, perhaps
                raise nats.errors.TimeoutError from error
            raise

    async def remove(self, subject: str) -> None:
        """Mark a value as removed. The mark itself goes after an hour."""
        async with self._calling("the removal"):
            headers = {"KV-Operation": "DEL", "Nats-TTL": _GONE_TTL}
            await self._jetstream.publish(subject, b"", headers=headers)

    async def load(self, stream: str, subject: str) -> Stored | None:
        """Return the last value of one subject."""
        async with self._calling("a question"):
            answer = await self._question(f"$JS.API.DIRECT.GET.{stream}.{subject}")
        return stored_value(answer.headers or {}, answer.data)

    async def load_last(self, stream: str, pattern: str) -> Stored | None:
        """Return the last value of the subjects that match. A host has no right to this."""
        async with self._calling("a question"):
            asked = subjects.write({"last_by_subj": pattern})
            answer = await self._question(f"$JS.API.DIRECT.GET.{stream}", asked)
        return stored_value(answer.headers or {}, answer.data)

    async def load_all(self, stream: str, pattern: str, after: int = 0) -> list[Stored]:
        """Return the last value of every subject that matches, of those stored after that revision, in order.

        A host has no right to this.
        """
        everything: list[Stored] = []
        more = True
        while more:
            begin = (everything[-1].revision if everything else after) + 1
            question = {"seq": begin, "batch": _PAGE, "next_by_subj": pattern}
            more = await self._load_page(stream, question, everything)
        return everything

    async def load_some(self, stream: str, wanted: Collection[str]) -> list[Stored]:
        """Return the last values of these subjects. Those without one are left out."""
        names = list(wanted)
        if len(names) == 1:  # half the time of a page, which needs a subscription
            one = await self.load_last(stream, names[0])
            return [] if one is None else [one]
        found: list[Stored] = []
        while names:
            count = len(found)
            more = await self._load_page(stream, {"multi_last": names[:_PAGE]}, found)
            known = {one.subject for one in found[count:]}
            names = [one for one in names[:_PAGE] if more and one not in known] + names[_PAGE:]
        return found

    async def _load_page(self, stream: str, question: Mapping[str, Any], page: list[Stored]) -> bool:
        """Add what the hub has. Returns whether it has sent only a part."""
        count = len(page)
        async with self._calling("a question"):
            inbox = self._client.new_inbox()
            subscription = await self._client.subscribe(inbox)
            try:
                await self._client.publish(
                    f"$JS.API.DIRECT.GET.{stream}", subjects.write(question), reply=inbox
                )
                while True:
                    message = await subscription.next_msg(timeout=ANSWER_TIMEOUT)
                    headers = message.headers or {}
                    if (status := headers.get("Status")) is not None:
                        if status == "503":
                            raise nats.errors.NoRespondersError
                        left = int(headers.get("Nats-Num-Pending") or 0)
                        return status == "204" and left > 0 and len(page) > count
                    if (found := stored_value(headers, message.data)) is not None:
                        page.append(found)
            finally:
                await subscription.unsubscribe()

    @asynccontextmanager
    async def _subscribed(self, pattern: str, take: Callable[[Msg], Awaitable[None]]) -> AsyncIterator[None]:
        async with self._calling("the subscription"):
            subscription = await self._client.subscribe(pattern, cb=take)
        try:
            async with self._calling("the subscription"):
                await self._client.flush(int(ANSWER_TIMEOUT))
            yield
        finally:
            with suppress(nats.errors.Error):
                await subscription.unsubscribe()

    def watching(
        self, pattern: str, changed: Callable[[str, int], None]
    ) -> AbstractAsyncContextManager[None]:
        """Call `changed` with the subject and the revision of each stored value.

        Members can forge that, so it is only a reason to load.
        """

        async def take(message: Msg) -> None:
            revision = (message.headers or {}).get("Nats-Sequence", "")
            changed(
                message.subject.removeprefix(f"{NEW}."), int(revision[:18]) if revision.isdecimal() else 0
            )

        return self._subscribed(f"{NEW}.{pattern}", take)

    async def _administer(self, verb: str, document: Mapping[str, Any]) -> None:
        """Raises errors of `nats`."""
        asked = subjects.write(document)
        answer = await self._client.request(f"$JS.API.{verb}", asked, timeout=ANSWER_TIMEOUT)
        if isinstance(error := subjects.read(answer.data).get("error"), dict):
            nats.js.errors.APIError.from_error(error)

    # ── requests ──

    async def request(self, subject: str, data: bytes, timeout: float) -> bytes:  # noqa: ASYNC109
        """Raises `HostUnreachable` if no host listens there, and `WaitTimeout` after `timeout` seconds."""
        try:
            async with self._calling("the request"):
                try:
                    return bytes((await self._unless_closed(subject, data, timeout)).data)
                except nats.errors.NoRespondersError:
                    raise HostUnreachable("the host is not connected to the hub") from None
                except nats.errors.TimeoutError:
                    if self.closed.is_set():
                        raise
                    raise WaitTimeout(f"the host did not answer within {timeout:g} s") from None
        finally:
            if not self._client.is_connected:
                self.closed.set()

    async def _unless_closed(self, subject: str, data: bytes, timeout: float) -> Msg:  # noqa: ASYNC109
        """Request. nats-py 2.16 waits for the answer until the timeout, also when the connection is gone."""
        asking = asyncio.create_task(self._ask(subject, data, timeout))
        closing = asyncio.create_task(self.closed.wait())
        try:
            await asyncio.wait((asking, closing), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done() or asking.cancelled():
                raise nats.errors.ConnectionClosedError
            return asking.result()
        finally:
            asking.add_done_callback(lambda one: one.cancelled() or one.exception())  # it may fail as well
            asking.cancel()
            closing.cancel()

    async def _ask(self, subject: str, data: bytes, timeout: float) -> Msg:  # noqa: ASYNC109
        """Publish, and return the answer. Only the host that is asked has the right to publish it."""
        reply = subjects.answer_subject(subject, self.member.name, secrets.token_hex(16))
        subscription = await self._client.subscribe(reply)
        try:
            await self._client.publish(subject, data, reply=reply)
            answer = await subscription.next_msg(timeout)
            if (answer.headers or {}).get("Status") == "503":
                raise nats.errors.NoRespondersError
            return answer
        finally:
            with suppress(nats.errors.Error):
                await subscription.unsubscribe()

    async def publish(self, subject: str, data: bytes, reply: str = "") -> None:
        """Publish without storing. With `reply`, the server reports there if no one listens.

        Returns when the connection has taken it, which says nothing about the other side.
        """
        async with self._calling("the packet"):
            await self._client.publish(subject, data, reply=reply)

    def answering(
        self, pattern: str, handle: Callable[[HubRequest], Awaitable[None]]
    ) -> AbstractAsyncContextManager[None]:
        """Hand requests to `handle`, which must return at once."""

        async def take(message: Msg) -> None:
            async def respond(data: bytes) -> None:
                async with self._calling("the answer"):
                    await self._client.publish(message.reply, data)

            headers = dict(message.headers or {})
            await handle(HubRequest(message.subject, message.data, message.reply, headers, respond))

        return self._subscribed(pattern, take)

    # ── messages ──

    async def queue(self, host: str) -> QueueState:
        """Return the state of a host's queue of messages. Only operators may ask for that of another host."""
        async with self._calling("a question about messages"):
            answer = await self._question(subjects.queue_subject(host))
        document = subjects.read(answer.data)
        delivered = document.get("delivered")
        if not isinstance(delivered, dict):
            raise HubRefused(f"the hub has no queue for '{host}'", hint=_NOT_PREPARED)
        numbers = (
            delivered.get("consumer_seq"),
            document.get("num_ack_pending"),
            document.get("num_pending"),
        )
        return QueueState(*(int(finite(one)) for one in numbers))

    async def taking(self, stream: str, consumer: str, wait: float) -> AsyncGenerator[Taken | None, None]:
        """Yield what a queue of the hub hands out, one at a time; None when that was nothing for a while."""
        async with self._calling("the subscription"):
            queue = await self._jetstream.pull_subscribe_bind(consumer=consumer, stream=stream)
        try:
            while True:
                try:
                    async with self._calling("a question for messages"):
                        (message,) = await queue.fetch(1, timeout=wait)
                except HubUnreachable as error:
                    if isinstance(error.__cause__, TimeoutError) and not self.closed.is_set():
                        yield None
                        continue
                    raise
                yield self._taken(message)
        finally:
            with suppress(nats.errors.Error):
                await queue.unsubscribe()

    async def taking_many(self, stream: str, consumer: str) -> AsyncGenerator[list[Taken], None]:
        """Yield what a consumer of the hub hands out, as soon as it is there: everything that has come since.

        Those that a broken connection took with it come again after `ACK_WAIT`, and later ones before them.
        """
        request = subjects.write({"batch": BATCH, "expires": int(_PULL_SECONDS * 1e9)})
        inbox, came, arrived = self._client.new_inbox(), list[Msg](), asyncio.Event()

        async def on_message(message: Msg) -> None:  # a tenth of the time of `next_msg`
            came.append(message)
            arrived.set()

        async with self._calling("the subscription"):
            subscription = await self._client.subscribe(inbox, cb=on_message)
        left = 0
        try:
            while True:
                async with self._calling("a question for messages"):
                    if left <= 0:
                        left = BATCH
                        next_one = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
                        await self._client.publish(next_one, request, reply=inbox)
                try:
                    async with asyncio.timeout(_PULL_SECONDS + 1.0):
                        await arrived.wait()
                except TimeoutError:
                    if self.closed.is_set():
                        raise HubUnreachable("the connection to the hub was lost") from None
                    left = 0  # a server that reads its keys again forgets what it was asked
                    continue
                arrived.clear()
                # One with a status says that this question is over.
                taken = [self._taken(one) for one in came if "Status" not in (one.headers or {})]
                over = [one.headers or {} for one in came if "Status" in (one.headers or {})]
                left = left - len(taken) if not over else 0
                came.clear()
                if taken:
                    yield taken
                for one in over:
                    if one["Status"] not in _NOTHING_CAME:
                        why = one_line(str(one.get("Description") or one["Status"]))
                        raise HubRefused(f"the hub hands out nothing: {why}", hint=_NOT_PREPARED)
        finally:
            with suppress(nats.errors.Error):
                await subscription.unsubscribe()

    async def acknowledge(self, taken: Iterable[Taken]) -> None:
        """Acknowledge without waiting: one that is lost makes the hub hand it out again."""
        async with self._calling("the acknowledgement"):
            for one in taken:
                await self._client.publish(one.token, b"+ACK")

    async def extend(self, taken: Iterable[Taken]) -> None:
        """Keep them for longer, without waiting for the hub."""
        async with self._calling("the acknowledgement"):
            for one in taken:
                await self._client.publish(one.token, b"+WPI")

    async def settle(self, token: str, word: bytes) -> None:
        """Acknowledge what was handed out (+ACK), or keep it for longer (+WPI); waits until that is done."""
        async with self._calling("the acknowledgement"):
            await self._client.request(token, word, timeout=ANSWER_TIMEOUT)

    def _taken(self, message: Msg) -> Taken:
        async def ack() -> None:
            async with self._calling("the acknowledgement"):
                await message.ack_sync(timeout=ANSWER_TIMEOUT)

        async def refuse() -> None:
            async with self._calling("the acknowledgement"):
                await message.term()

        async def later(seconds: float) -> None:
            async with self._calling("the acknowledgement"):
                await message.nak(delay=seconds)

        headers, known = dict(message.headers or {}), message.metadata
        at, attempt, place = known.timestamp.timestamp(), int(known.num_delivered), int(known.sequence.stream)
        settling, numbers = (ack, refuse, later), (place, int(known.sequence.consumer))
        return Taken(message.subject, message.data, headers, at, *settling, attempt, message.reply, *numbers)


Part = tuple[str, Callable[[Hub], Coroutine[Any, Any, None]]]
"""What a member does on a connection, with its name for people."""


def _tls(ca: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=ca or None)
    except ssl.SSLError as error:
        raise HubRefused(
            "the certificate in the key file cannot be read", hint="get a new key file"
        ) from error


def _is_ours(trusted: ssl.SSLContext) -> bool:
    """Whether a certificate of `fleet serve` is trusted, which is for a name and not for an address."""
    own = ("commonName", SERVER_NAME)
    return any(own in part for one in trusted.get_ca_certs() for part in _parts(one.get("subject")))


def _parts(subject: Any) -> Iterable[Any]:
    return subject if isinstance(subject, tuple) else ()


# ── by the administrator ──


async def prepare(
    hub: Hub, keys: Iterable[KeyRecord], replicas: int = 1, max_bytes: int = MAX_STREAM_BYTES
) -> None:
    """Make the streams, or change them to what this version needs, and the queues of the keys.

    `replicas` is on how many servers of a cluster each stream is, `max_bytes` how much it may hold.
    """
    for stream in streams.streams(replicas, max_bytes):
        name = stream["name"]
        async with hub._calling("its streams"):
            try:
                await hub._administer(f"STREAM.CREATE.{name}", stream)
            except nats.js.errors.BadRequestError:
                await hub._administer(f"STREAM.UPDATE.{name}", stream)
    for name, consumer in streams.consumers(keys):
        async with hub._calling("its queues"):
            asked = {"stream_name": name, "config": consumer}
            await hub._administer(f"CONSUMER.DURABLE.CREATE.{name}.{consumer['name']}", asked)


async def remove_revoked(hub: Hub, keys: Iterable[KeyRecord]) -> None:
    """Take the sessions of hosts without a key from the hub, which they cannot do any more."""
    known = {one.name for one in keys}
    hosts = (one.subject.rpartition(".")[2] for one in await hub.load_all(HOSTS, subjects.host_subject("*")))
    for name in hosts:
        if name not in known:
            for one in await hub.load_all(SESSIONS, f"$KV.sessions.{name}.*"):
                if one.data:
                    await hub.remove(one.subject)
