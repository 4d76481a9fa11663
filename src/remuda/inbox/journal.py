"""What senders and operators do with an inbox: put, look, read dead letters, redrive, give space back.

Everything durable follows one order: the line is on the disk before anyone is told that it was accepted.
Foreign writers append to the same file without asking; ours never write into the middle of their line.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from remuda.errors import FolderUnusable, InputError
from remuda.paths import private_folder

from . import stop_hook
from .message import DEFAULT_MAX_BYTES, Message, make_message
from .stop_hook import Entry, Files, Lock

_WRITER_LOCK = ".inbox-writer"
_DEDUP = ".inbox-dedup.jsonl"
_DEDUP_WINDOW = 24 * 3600.0
_TORN_LOOK = 0.05


class Accepted(NamedTuple):
    """`duplicate`: a message with the same dedup key was accepted before, and this is its id."""

    id: str
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Overview:
    """What `inbox status` shows."""

    waiting: int
    delayed: int
    in_flight: dict[str, Any] | None
    dead: int
    oldest_age: float | None
    bytes_waiting: int


class Inbox:
    """One inbox folder. Any number of processes may use it at once."""

    def __init__(self, folder: Path | str, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.folder = Path(folder)
        self._max_bytes = max_bytes
        self._files = Files(str(self.folder / "inbox.jsonl"))

    # ── putting ──

    def put(self, prompt: str, **options: Any) -> Accepted:
        """Append a message; it is on the disk when this returns. For the options see `make_message`."""
        message = make_message(prompt, max_bytes=self._max_bytes, **options)
        private_folder(self.folder)
        try:
            with self._writing():
                if message.dedup is not None and (known := self._seen(message.dedup)) is not None:
                    return Accepted(known, duplicate=True)
                self._append(message)
        except OSError as error:
            raise FolderUnusable(f"cannot write to the inbox {self.folder}: {error.strerror}") from error
        return Accepted(message.id)

    def _append(self, message: Message) -> None:
        path = self._files.inbox
        fresh = not os.path.exists(path)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            line = (b"\n" if self._torn(fd) else b"") + message.line()
            # In one write, so that no other writer's line can get into it. On a full disk part of it stays
            # behind: a broken envelope, which no consumer hands out.
            if os.write(fd, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(fd)
        finally:
            os.close(fd)
        if fresh:
            stop_hook.sync_folder(self._files.folder)
        if message.dedup is not None:
            self._files.append(
                self._beside(_DEDUP), {"key": message.dedup, "id": message.id, "at": message.sent_at}
            )

    def _torn(self, fd: int) -> bool:
        """Whether the last line has no end. A writer who is at it is given the time to end it."""
        deadline = time.monotonic() + stop_hook.TORN_GRACE
        while True:
            size = os.fstat(fd).st_size
            if size == 0 or os.pread(fd, 1, size - 1) in (b"\n", b"\0"):
                return False
            if time.time() - os.fstat(fd).st_mtime >= stop_hook.TORN_GRACE or time.monotonic() > deadline:
                return True
            time.sleep(_TORN_LOOK)

    def _beside(self, name: str) -> str:
        return str(self.folder / name)

    def _writing(self) -> _FileLock:
        return _FileLock(self._beside(_WRITER_LOCK))

    def _seen(self, key: str) -> str | None:
        """The message that has this key: one that still waits, or one of the last day."""
        waiting = (entry for entry in self.waiting() if entry.fields.get("dedup") == key)
        if (entry := next(waiting, None)) is not None:
            return entry.id
        since = time.time() - _DEDUP_WINDOW
        for one in _json_lines(self._beside(_DEDUP)):
            if one.get("key") == key and stop_hook.number(one.get("at")) >= since:
                return str(one.get("id"))
        return None

    # ── looking ──

    def overview(self, now: float | None = None) -> Overview:
        now = time.time() if now is None else now
        with Lock(self._files):
            inbox = stop_hook.Inbox(self._files)
            try:
                inbox.open()
                flight, lease = inbox.in_flight(), inbox.lease()
                start = None if flight is None else int(flight["start_offset"])
                entries = [entry for entry in self._entries(inbox) if entry.start != start]
                delayed = sum(_wait(inbox, entry) > 0 for entry in entries)
            finally:
                inbox.close()
        ages = [now - stop_hook.number(entry.fields["at"]) for entry in entries if "at" in entry.fields]
        return Overview(
            waiting=len(entries),
            delayed=delayed,
            in_flight=None if flight is None else {**(lease or {}), "since": flight.get("delivered_at")},
            dead=sum(1 for _ in self.dead_letters()),
            oldest_age=max(ages, default=None),
            bytes_waiting=sum(entry.end - entry.start for entry in entries),
        )

    @staticmethod
    def _entries(inbox: stop_hook.Inbox) -> Iterator[Entry]:
        """All that is not acknowledged, in order."""
        if inbox.reader is None:
            return
        for one in inbox.queue.held:
            entry, _ = inbox.reader.next(int(one["start"]))
            if entry is not None:
                yield entry
        position = inbox.queue.frontier
        while True:
            entry, position = inbox.reader.next(position)
            if entry is None:
                return
            yield entry

    def waiting(self) -> list[Entry]:
        """The messages that wait, in order; the one in flight is the first."""
        with Lock(self._files):
            inbox = stop_hook.Inbox(self._files)
            try:
                inbox.open()
                return list(self._entries(inbox))
            finally:
                inbox.close()

    # ── dead letters ──

    def dead_letters(self) -> Iterator[dict[str, Any]]:
        return _json_lines(self._files.dead_letters)

    def redrive(self, choose: str | None = None) -> list[str]:
        """Put dead letters back, all or the one whose entry or message id this is; the ids they have now."""
        with Lock(self._files), self._writing():
            letters = list(self.dead_letters())
            chosen = [one for one in letters if choose is None or choose in _names(one)]
            if choose is not None and not chosen:
                raise InputError(f"there is no dead letter '{choose}'", hint="'remuda inbox dead' lists them")
            messages = [make_message(Entry(0, 0, str(one.get("raw_line"))).text) for one in chosen]
            for message in messages:
                self._append(message)  # in the inbox first: a crash here repeats it, and never loses it
            left = [one for one in letters if one not in chosen]
            data = b"".join(json.dumps(one).encode() + b"\n" for one in left)
            self._files.replace(self._files.dead_letters, data)
        return [message.id for message in messages]


def _wait(inbox: stop_hook.Inbox, entry: Entry) -> float:
    held = inbox.queue.find(entry.start)
    return entry.wait(inbox.queue.clock) if held is None else inbox.queue.wait(held, inbox.queue.clock())


def _names(letter: dict[str, Any]) -> set[str]:
    raw = str(letter.get("raw_line"))
    entry = Entry(int(stop_hook.number(letter.get("start_offset"))), 0, raw)
    return {str(letter.get("entry_id")), entry.id}


def _json_lines(path: str) -> Iterator[dict[str, Any]]:
    data = stop_hook.read_file(path)
    for line in (data or b"").splitlines():
        try:
            document = json.loads(line)
        except ValueError:  # torn by a crash; the writer ends such a line before the next
            continue
        if isinstance(document, dict):
            yield document


class _FileLock:
    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> None:
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)
