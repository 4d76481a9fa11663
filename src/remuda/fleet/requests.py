"""Requests to any host, at their sender, which is the authority on them: who runs one, and how it ended.

The hub's queue has only an id that cannot be guessed, and a digest of the profile. The host that the queue
hands it to claims the request here. Only then it gets prompt, environment and files, in an answer that no
other key can read. One host has a request at a time. Events from a host that lost it are not listened to.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remuda.durable import read_regular, replace_file
from remuda.errors import (
    Aborted,
    FolderUnusable,
    HubRefused,
    HubUnreachable,
    InputError,
    MessageDead,
    MessageNotFound,
    PermissionRefused,
    RemoteProtocolError,
    RemudaError,
    WaitTimeout,
)
from remuda.paths import private_folder
from remuda.pool.protocol import is_event
from remuda.tasks import TaskSet
from remuda.untrusted import BadJson, as_objects, dump_json, finite, one_line, parse_object

from . import subjects
from .exchange import read_hint
from .hub import Hub
from .hub_types import HubRequest
from .streams import SHARED_LEASE
from .subjects import Role

log = logging.getLogger("remuda.fleet.requests")

Document = dict[str, Any]

MAX_ATTEMPTS = 3
_KEPT_SECONDS = 86400.0
_LONGEST_WAIT = 60.0
_MAX_EVENTS = 20_000
_MAX_EVENT_BYTES = 64 << 20
_MAX_PAYLOAD_BYTES = subjects.MAX_PAYLOAD_BYTES - 4096
_UPKEEP_INTERVAL = 1.0


class SentRequest:
    """One request. `document` is what is on the disk."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.events: list[Document] = []
        self._bytes = 0
        self.received = 0
        """How many events of the present attempt are among them."""
        self.heard = time.monotonic()
        """When the host that has it was last heard of. After a restart it gets its time again."""
        self.changed = asyncio.Event()
        self.saving = threading.Lock()
        self.is_saved = False

    @property
    def id(self) -> str:
        return str(self.document["id"])

    @property
    def ended(self) -> bool:
        return self.document["outcome"] is not None

    @property
    def hosts(self) -> list[str]:
        """Who ran it, one for each attempt; not one that gave it back."""
        hosts: list[str] = self.document["hosts"]
        return hosts

    @property
    def host(self) -> str | None:
        """The host that has it, or had it last."""
        return self.hosts[-1] if self.hosts and self.document["state"] != "queued" else None

    def receive(self, events: list[Document], begin: int) -> None:
        """Take events of the host that has it; `begin` is the number of the first.

        Known ones are dropped, and those that no pool sends: a follower relies on their fields, and the
        end of a request is reported in another way.
        """
        known = max(0, self.received - begin)  # those before `begin` were lost with an earlier boss
        if known < len(events):
            self.add(*filter(is_event, events[known:]))
            self.received = begin + len(events)

    def add(self, *events: Document) -> None:
        size = len(dump_json(events))
        if len(self.events) + len(events) <= _MAX_EVENTS and self._bytes + size <= _MAX_EVENT_BYTES:
            self.events += events
            self._bytes += size
        self.touch()

    def change(self, **fields: Any) -> None:
        self.document |= fields
        self.is_saved = False

    def touch(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def shown(self) -> Document:
        shown = {name: self.document[name] for name in ("id", "state", "created", "deadline", "outcome")}
        return {**shown, "host": self.host, "attempts": len(self.hosts)}


class SentRequests:
    """The requests that were sent from here. Use from the boss's loop; `run` for each connection."""

    def __init__(self, folder: Path, lease: float = SHARED_LEASE) -> None:
        """A host that was not heard of for `lease` seconds has lost its request."""
        self._folder, self._lease = folder / "requests", lease
        self._requests: dict[str, SentRequest] = {}
        self._load()

    def _load(self) -> None:
        for path in sorted(self._folder.glob("*.json")):
            try:
                document = parse_object(read_regular(path))
                if document["id"] == path.stem and finite(document["created"]) > time.time() - _KEPT_SECONDS:
                    self._requests[path.stem] = request = SentRequest(_upgraded(document))
                    request.is_saved = True
                    continue
            except (OSError, BadJson, KeyError, TypeError) as error:
                log.warning("cannot read %s: %s", path, error)
            path.unlink(missing_ok=True)

    def _save(self, request: SentRequest) -> None:
        """On the disk when this returns. A request that has ended has no payload any more."""
        with request.saving:  # else an older state could come onto the disk after a newer one
            if request.is_saved:
                return
            request.is_saved = True
            try:
                private_folder(self._folder)
                replace_file(self._folder / f"{request.id}.json", dump_json(request.document).encode())
            except BaseException:
                request.is_saved = False
                raise

    # ── for the routes of the boss ──

    async def submit(self, hub: Hub, profile: str, payload: Mapping[str, Any], seconds: float) -> Document:
        """Hand a request to the hub. Returns when it is on the disk here. Raises if the hub refuses it."""
        if not hub.member.has(Role.OPERATOR):
            raise PermissionRefused(
                f"the key of '{hub.member.name}' may not act on other hosts",
                hint="'remuda fleet keys new NAME --role host --role operator' on the hub makes one that may",
            )
        if len(dump_json(payload).encode()) > _MAX_PAYLOAD_BYTES:
            raise InputError(f"the request is larger than the hub takes ({_MAX_PAYLOAD_BYTES} bytes)")
        now = time.time()
        request = SentRequest(
            {
                "id": f"r{secrets.token_hex(16)}",
                "profile": profile,
                "payload": dict(payload),
                "created": now,
                "deadline": now + seconds,
                "state": "queued",
                "hosts": [],
                "outcome": None,
            }
        )
        await asyncio.to_thread(self._save, request)
        self._requests[request.id] = request
        try:
            await self._publish(hub, request)
        except (HubRefused, HubUnreachable) as error:
            if isinstance(error, HubRefused) or (not hub.closed.is_set() and request.host is None):
                # It answers, and cannot write. No host is given the request if the hub has it all the same.
                await self._end(request, {"error": _error(error)})
                raise
            # It is published again with the next connection, and run once all the same.
            log.info("request %s waits for the hub: %s", request.id, error)
        return request.shown()

    async def _publish(self, hub: Hub, request: SentRequest) -> None:
        subject = subjects.any_subject(str(request.document["profile"]), request.id, hub.member.name)
        await hub.store(subject, subjects.write({"id": request.id}), "the request", dedup=request.id)

    def listing(self) -> list[Document]:
        return sorted((one.shown() for one in self._requests.values()), key=lambda one: -one["created"])

    async def follow(self, request_id: str, after: int, wait: float) -> Document:
        """Return the events after that position; waits for one, or for the end."""
        request = self._find(request_id)
        deadline = time.monotonic() + min(wait, _LONGEST_WAIT)
        while not request.ended and len(request.events) <= after:
            changed, left = request.changed, deadline - time.monotonic()
            if left <= 0:
                break
            try:
                async with asyncio.timeout(left):
                    await changed.wait()
            except TimeoutError:
                break
        return {**request.shown(), "events": request.events[after:], "position": len(request.events)}

    async def cancel(self, request_id: str) -> Document:
        request = self._find(request_id)
        if not request.ended:
            await self._end(request, {"error": _error(Aborted("the request was cancelled"))})
        return request.shown()

    def _find(self, request_id: str) -> SentRequest:
        request = self._requests.get(request_id)
        if request is None:
            raise MessageNotFound(
                f"request '{request_id[:80]}' not found", hint="'remuda fleet requests' lists them"
            )
        return request

    async def _end(self, request: SentRequest, outcome: Document) -> None:
        """Write down how it ended, once: the first end counts.

        On a full disk the end is known here all the same, and is written when it is reported again.
        """
        if not request.ended:
            request.change(outcome=outcome, state="ended", payload=None)
            try:
                await asyncio.to_thread(self._save, request)
            finally:
                request.touch()

    # ── hosts ──

    async def run(self, hub: Hub) -> None:
        """Answer the hosts until the connection ends. Raises `HubUnreachable`."""
        tasks = TaskSet()

        async def handle(asked: HubRequest) -> None:
            tasks.start(self._answer(hub, asked))

        try:
            async with hub.answering(f"fl.{hub.member.name}.*.*", handle):
                for request in list(self._requests.values()):
                    if request.document["state"] == "queued":
                        await self._publish(hub, request)
                while True:
                    await self._upkeep()
                    await asyncio.sleep(_UPKEEP_INTERVAL)
        finally:
            tasks.cancel()

    async def _upkeep(self) -> None:
        now = time.time()
        for request in list(self._requests.values()):
            if not request.ended and request.document["deadline"] < now:
                await self._end(request, {"error": _error(_late(request))})
            elif request.ended and request.document["created"] < now - _KEPT_SECONDS:
                del self._requests[request.id]
                (self._folder / f"{request.id}.json").unlink(missing_ok=True)

    async def _answer(self, hub: Hub, asked: HubRequest) -> None:
        words = asked.subject.split(".")
        request_id, host = words[2], words[3]
        if not subjects.is_from(host, asked.reply, asked.headers):
            return
        try:
            answer = await self._carry_out(request_id, host, subjects.read(asked.data))
        except RemoteProtocolError as error:
            answer = {"refused": error.message}
        except (OSError, FolderUnusable) as error:  # without an answer the host reports it again
            log.warning("request %s cannot be written: %s", request_id[:80], error)
            return
        try:
            await asked.answer(subjects.write(answer))
        except RemudaError as error:
            log.info("an answer to %s could not be sent: %s", host, error)

    async def _carry_out(self, request_id: str, host: str, asked: Document) -> Document:
        request = self._requests.get(request_id)
        if request is None or request.ended:
            if request is not None:  # on the disk first: the host then removes what it kept
                await asyncio.to_thread(self._save, request)
            return {"gone": True}
        if asked.get("do") == "claim":
            return await self._claim(request, host)
        # One that lost the request and has its answer all the same is heard: who has it now is stopped.
        had_it = (asked.get("attempt"), host) in list[Any](enumerate(request.hosts, 1))
        is_owner = had_it and request.host == host and asked.get("attempt") == len(request.hosts)
        if not is_owner and not (had_it and asked.get("do") == "end"):
            return {"gone": True}
        request.heard = time.monotonic()
        match asked.get("do"):
            case "events":
                request.receive(as_objects(asked.get("events")), int(finite(asked.get("from"))))
            case "release":
                request.change(state="queued", hosts=request.hosts[:-1])
                await asyncio.to_thread(self._save, request)
            case "end":
                await self._end(request, _outcome(asked, host))
            case _:
                raise RemoteProtocolError("unknown report about a request")
        return {"ok": True}

    async def _claim(self, request: SentRequest, host: str) -> Document:
        known = request.document
        left = known["deadline"] - time.time()
        if left <= 0:
            await self._end(request, {"error": _error(_late(request))})
            return {"gone": True}
        hosts = request.hosts
        if request.host is not None and time.monotonic() - request.heard < self._lease:
            return {"busy": True}
        if len(hosts) >= MAX_ATTEMPTS:
            why = f"{len(hosts)} hosts were lost while they ran it; the last was {hosts[-1]}"
            await self._end(request, {"error": _error(MessageDead(why))})
            return {"gone": True}
        if request.host is not None or request.received:  # lost, or given back in the middle
            request.add({"type": "retry", "attempt": len(hosts) + 1, "lost": request.host})
        request.change(state="running", hosts=[*hosts, host])
        request.heard, request.received = time.monotonic(), 0
        attempt, payload = len(request.hosts), known["payload"]
        try:
            await asyncio.to_thread(self._save, request)
        except BaseException:
            if not request.ended:  # the host does not hear that it has the request
                request.change(state="queued", hosts=hosts)
            raise
        request.touch()
        return {"attempt": attempt, "payload": payload, "timeout": left}


def _upgraded(document: Document) -> Document:
    """Return a document with the host of each attempt. An older version wrote the last one, and how many."""
    if "hosts" not in document:
        host, attempts = document.pop("host"), document.pop("attempts")
        document["hosts"] = [str(host or "")] * int(finite(attempts))
    return document


def _outcome(asked: Document, host: str) -> Document:
    result, error = asked.get("result"), asked.get("error")
    if isinstance(result, dict) and isinstance(result.get("text"), str):
        return {"result": {**result, "host": host}}
    if isinstance(error, dict):
        text = f"{host}: {one_line(str(error.get('message'))[:2000])}"
        return {"error": {"code": str(error.get("code")), "message": text, "hint": read_hint(error, host)}}
    raise RemoteProtocolError("a request ended without a result")


def _late(request: SentRequest) -> RemudaError:
    host = request.host
    where = f"{host} was running it" if host else "no host of the fleet had a free agent"
    span = request.document["deadline"] - request.document["created"]
    return WaitTimeout(f"the request did not end within {span:g} s: {where}")


def _error(error: RemudaError) -> Document:
    return {"code": error.code, "message": error.message, "hint": error.hint}
