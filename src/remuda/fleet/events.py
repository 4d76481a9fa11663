"""Events of hosts, in order and once: what a host did while it was cut off is reported when it is back.

A host writes each event of its boss to a file (`EventReporter`) and publishes from there. A boss that may see
other hosts follows all of them (`EventFollower`). The hub ignores an event that it has, by its id; the number
that a host gives to each of its events makes the follower ignore it too, however much later it comes again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections import deque
from pathlib import Path
from typing import Any

from remuda.boss.attention.model import Event
from remuda.boss.service import BossService
from remuda.digest import sha256
from remuda.durable import read_regular, replace_file
from remuda.errors import HubRefused, HubUnreachable, RemoteProtocolError, RemudaError
from remuda.paths import private_folder
from remuda.untrusted import BadJson, bounded, dump_json, finite, one_line, parse_object

from . import subjects
from .exchange import cut, moment, skew
from .hub import REDELIVERED_SECONDS, Hub
from .hub_types import Taken
from .subjects import EVENTS

log = logging.getLogger("remuda.fleet.events")

Document = dict[str, Any]

_MAX_WAITING_BYTES = 64 << 20
"""Of events that the hub has not got. More are counted, and reported as a gap."""
_MAX_REPORTED_BYTES = 1 << 20
_KEPT_LINES = 1000
_MAX_FACTS_BYTES = 8000
_MAX_NAME = 300
_MAX_EVENT_BYTES = 64 << 10
"""More than a host of ours sends. A boss keeps thousands of events of others in memory."""
_AGO = 60.0
"""An event this much older than the last one in the file was reported, or belongs to a time before."""
_SAVE_EVERY = 100
_FOLLOWED = 5000
"""Events of other hosts that are kept for `fleet events`."""
_LONGEST_WAIT = 60.0


class EventReporter:
    """Events of this host that the hub should have. Use from the boss's loop; `run` for each connection."""

    def __init__(self, service: BossService, folder: Path) -> None:
        self._service = service
        self._path = folder / "events.jsonl"
        self._lines: deque[tuple[Document, int]] = deque()
        """Each with its size."""
        self._bytes = 0
        self._lost = 0
        self._came = asyncio.Event()
        self._caught_up: set[tuple[str, str]] = set()
        """Events that were found at the beginning. Of those that are being written then we hear too."""
        is_new = not self._path.exists()
        self._epoch, self._number, known = self._load()
        self._fd = self._open()
        if is_new:
            self._write(dump_json({"epoch": self._epoch}))
        else:
            self._catch_up(known)
        service.listeners.append(self._hear)

    def close(self) -> None:
        if self._hear in self._service.listeners:
            self._service.listeners.remove(self._hear)
        os.close(self._fd)

    def forget(self) -> None:
        """Drop everything: this machine left the fleet."""
        self._path.unlink(missing_ok=True)

    # ── the file ──

    def _open(self) -> int:
        private_folder(self._path.parent)
        return os.open(
            self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )

    def _load(self) -> tuple[str, int, set[tuple[str, str]]]:
        """Read what waits. Returns the epoch, the last number, and which events are in the file."""
        lines = _read_lines(self._path)
        epoch = next((str(one["epoch"]) for one in lines if "epoch" in one), secrets.token_hex(8))
        events = [one for one in lines if isinstance(one.get("number"), int)]
        done = max((one["done"] for one in lines if isinstance(one.get("done"), int)), default=0)
        for one in events:
            if one["number"] > done:
                self._keep(one, len(dump_json(one)))
        number = max([done, *(one["number"] for one in events)])
        return epoch, number, {(str(one.get("session")), str(one.get("id"))) for one in events}

    def _catch_up(self, known: set[tuple[str, str]]) -> None:
        """Add events that are on the boss's disk and were not written here: it was killed in between."""
        try:
            since = self._path.stat().st_mtime - _AGO
        except OSError:
            return
        missing = [
            one
            for one in self._service.recent_events()
            if one.at > since and (one.session_id, one.id) not in known
        ]
        for event in sorted(missing, key=lambda one: one.at):
            self._hear(event)
        self._caught_up = {(one.session_id, one.id) for one in missing}

    def _hear(self, event: Event) -> None:
        if (event.session_id, event.id) in self._caught_up:
            return
        if self._bytes > _MAX_WAITING_BYTES:
            self._lost += 1
            return
        if self._lost:
            self._add({"kind": "gap", "session": "", "id": secrets.token_hex(8), "lost": self._lost})
            self._lost = 0
        self._add(_shown(event))

    def _add(self, document: Document) -> None:
        self._number += 1
        line = {"number": self._number, "at": time.time(), **document}
        text = dump_json(line)
        self._write(text)
        self._keep(line, len(text))
        self._came.set()

    def _keep(self, line: Document, size: int) -> None:
        self._lines.append((line, size))
        self._bytes += size

    def _write(self, line: str) -> None:
        try:
            # Not synced: the boss has the event on its disk, and `_catch_up` finds it there.
            os.write(self._fd, b"\n" + line.encode() + b"\n")
        except OSError as error:
            log.warning("cannot write %s: %s", self._path, error)

    def _save(self, done: int) -> None:
        """Note the number of the last event that the hub has. Not synced: what comes again is ignored."""
        self._write(dump_json({"done": done}))
        if not self._lines and self._path.stat().st_size > _MAX_REPORTED_BYTES:
            kept = [{"epoch": self._epoch}, {"done": done}, *_read_lines(self._path)[-_KEPT_LINES:]]
            replace_file(self._path, "".join(dump_json(one) + "\n" for one in kept).encode())
            os.close(self._fd)
            self._fd = self._open()

    # ── the hub ──

    async def run(self, hub: Hub) -> None:
        """Publish what waits, and then every event, until the connection ends. Raises `HubUnreachable`."""
        while True:
            count = 0
            while self._lines:
                line, size = self._lines[0]
                await self._publish(hub, line)
                self._lines.popleft()
                self._bytes -= size
                count += 1
                # What is published again after a crash has the number of before, and is ignored.
                if not self._lines or count % _SAVE_EVERY == 0:
                    self._save(line["number"])
            self._came.clear()
            await self._came.wait()

    async def _publish(self, hub: Hub, line: Document) -> None:
        name = hub.member.name
        whole = {**line, "host": name, "epoch": self._epoch, "ahead": hub.ahead}
        session = str(line["session"]) or "none"
        # With the epoch, which no other host knows: it could use the id first, and this one would be ignored.
        dedup = sha256(f"{name}:{self._epoch}:{session}:{line['id']}".encode("utf-8", "replace"))
        try:
            subject = subjects.event_subject(name, session)
            await hub.store(subject, subjects.write(whole), "an event", dedup=dedup)
        except (HubRefused, HubUnreachable):
            raise
        except RemudaError as error:  # it never will be stored, and must not keep back those after it
            log.warning("an event of session %s is not reported: %s", session[:80], one_line(str(error)))

    @property
    def waiting(self) -> int:
        """How many events the hub has not got."""
        return len(self._lines)


def _shown(event: Event) -> Document:
    facts: Document = bounded({name: cut(value) for name, value in event.facts.items()})
    if len(dump_json(facts)) > _MAX_FACTS_BYTES:
        facts = {name: value for name, value in facts.items() if isinstance(value, bool | int | float)}
    return {
        "kind": str(event.kind),
        "session": event.session_id,
        "id": event.id,
        "at": event.at,
        "name": str(event.facts.get("name") or "")[:_MAX_NAME] or None,
        "facts": facts,
    }


class EventFollower:
    """Events of other hosts, as they come. Use from the boss's loop; `run` for each connection."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "followed.jsonl"
        lines = _read_lines(self._path)
        self._positions: dict[str, tuple[str, int]] = {}
        """By host: its epoch, and the number of its last event."""
        for one in lines:
            self._positions[str(one.get("host"))] = str(one.get("epoch")), int(finite(one.get("number")))
        lines = [one for one in lines if "kind" in one]
        self._events: deque[Document] = deque(lines, maxlen=_FOLLOWED)
        self._count = len(lines)
        self._size = 2 * len(lines)
        self._sequence = int(finite(lines[-1].get("sequence"))) if lines else 0
        """The place of the last event in the stream; 0 if not known."""
        self._early: dict[int, Taken] = {}
        """What was handed out and waits for those before it, by its place."""
        self._gap_since = 0.0
        self._came = asyncio.Event()

    async def run(self, hub: Hub) -> None:
        """Take events until the connection ends. Raises `HubUnreachable`."""
        self._early.clear()
        async with contextlib.aclosing(hub.taking_many(EVENTS, hub.member.name)) as coming:
            async for some in coming:
                self._early |= {one.sequence: one for one in some}
                await self._take(hub, self._next_in_order())

    def _next_in_order(self) -> list[Taken]:
        """Take out what comes next. Events that an earlier connection lost come again: later ones wait."""
        ready: list[Taken] = []
        last = self._sequence
        for sequence in sorted(self._early):
            if last and sequence > last + 1:
                self._gap_since = self._gap_since or time.monotonic()
                if time.monotonic() - self._gap_since < REDELIVERED_SECONDS:
                    break  # else the hub has removed them
            self._gap_since = 0.0
            one = self._early.pop(sequence)
            ready.append(one)
            last = sequence if one.attempt == 1 else max(last, sequence)  # less: the stream was made again
        return ready

    async def _take(self, hub: Hub, ready: list[Taken]) -> None:
        new: list[Document] = []
        lines: list[bytes] = []
        positions = dict(self._positions)
        for taken in ready:
            try:
                event = read_event(taken.subject, taken.data, hub.ahead) | {"sequence": taken.sequence}
                line = dump_json(event).encode()
            except (RemoteProtocolError, ValueError, RecursionError) as error:
                log.warning("ignored an event: %s", one_line(str(error)))
                continue
            epoch, number = positions.get(event["host"], ("", 0))
            if event["epoch"] != epoch or event["number"] > number:
                positions[event["host"]] = event["epoch"], event["number"]
                new.append(event)
                lines.append(line)
        if new:
            await asyncio.to_thread(self._append, lines)
            self._positions = positions
            self._events += new
            self._count += len(new)
            came, self._came = self._came, asyncio.Event()
            came.set()
        if ready:
            self._sequence = ready[-1].sequence
            await hub.acknowledge(ready)

    def _append(self, lines: list[bytes]) -> None:
        """Write them down. They are on the disk when this returns."""
        self._size += len(lines)
        if self._size > 3 * _FOLLOWED:
            kept = [  # the position of each host first: its last event may be older than all kept events
                *({"host": host, "epoch": at[0], "number": at[1]} for host, at in self._positions.items()),
                *self._events,
            ]
            replace_file(self._path, "".join(dump_json(one) + "\n" for one in kept).encode())
            self._size = len(kept) + len(lines)
        private_folder(self._path.parent)
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, b"".join(b"\n" + one + b"\n" for one in lines))
            os.fsync(fd)
        finally:
            os.close(fd)

    async def listing(self, after: int, wait: float, limit: int) -> Document:
        """Return the last events after that position; waits for one. `position` is where to go on."""
        deadline = time.monotonic() + min(wait, _LONGEST_WAIT)
        while self._count <= after and (left := deadline - time.monotonic()) > 0:
            came = self._came
            try:
                async with asyncio.timeout(left):
                    await came.wait()
            except TimeoutError:
                break
        new = min(max(0, self._count - after), len(self._events), limit)
        events = list(self._events)[len(self._events) - new :] if new else []
        return {"events": events, "position": self._count}


def read_event(subject: str, data: bytes, ahead: float) -> Document:
    """Read an event that came over the hub, with its time by our clock. Raises `RemoteProtocolError`."""
    if len(data) > _MAX_EVENT_BYTES:
        raise RemoteProtocolError(f"the event at {subject[:200]!r} is too large")
    words, document = subject.split("."), subjects.read(data)
    kind, number, epoch = document.get("kind"), document.get("number"), document.get("epoch")
    right = len(words) == 3 and words[0] == "ev" and document.get("host") == words[1]
    right = right and subjects.decode(words[2]) == (document.get("session") or "none")
    if document.get("lost") is not None and not 0 <= finite(document["lost"], -1.0) < 2**53:
        right = False
    if not right or not isinstance(kind, str) or not isinstance(epoch, str) or type(number) is not int:
        raise RemoteProtocolError(f"the event at {subject[:200]!r} cannot be read")
    facts = document.get("facts")
    name = document.get("name")
    return {
        "host": words[1],
        "session": str(document.get("session") or ""),
        "name": name[:_MAX_NAME] if isinstance(name, str) else None,
        "kind": kind[:40],
        "id": str(document.get("id"))[:300],
        "at": moment(finite(document.get("at")) + skew(document.get("ahead")) - ahead),
        "facts": facts if isinstance(facts, dict) else {},
        "lost": int(finite(document.get("lost"))),
        "epoch": epoch[:64],
        "number": number,
    }


def _read_lines(path: Path) -> list[Document]:
    try:
        lines = read_regular(path).split(b"\n")
    except FileNotFoundError:
        return []
    documents = []
    for line in lines:
        try:
            if line:
                documents.append(parse_object(line))
        except BadJson:  # torn by a crash
            continue
    return documents
