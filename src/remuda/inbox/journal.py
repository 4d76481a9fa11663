"""What senders and operators do with an inbox: put, look, read dead letters, redrive, give space back.

Everything durable follows one order: the line is on the disk before anyone is told that it was accepted.
Foreign writers append to the same file without asking; ours never write into the middle of their line.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from remuda.errors import FolderUnusable, InputError
from remuda.paths import private_folder

from . import stop_hook
from .compaction import WRITER_LOCK, FileLock, Given, compact, json_lines
from .dedup import Keys
from .message import DEFAULT_MAX_BYTES, Message, make_message
from .stop_hook import Entry, Files, Lock

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
        self._synced: tuple[int, int] | None = None

    # ── putting ──

    def put(self, prompt: str, **options: Any) -> Accepted:
        """Append a message; it is on the disk when this returns. For the options see `make_message`."""
        message = make_message(prompt, max_bytes=self._max_bytes, **options)
        if message.priority and not self._files.by_priority():
            raise InputError(
                "this inbox keeps the order in which messages come, and has no priorities",
                hint=f'its owner allows them with {{"priority": true}} in {self._files.options}',
            )
        try:
            accepted = self._accept(message)
        except OSError as error:
            raise FolderUnusable(f"cannot write to the inbox {self.folder}: {error.strerror}") from error
        self._give_back()
        return accepted

    def allow_priority(self, allowed: bool = True) -> None:
        """Whether urgent messages may pass others. Off, an inbox keeps the order in which messages came."""
        self._make_folder()
        self._files.replace(self._files.options, json.dumps({"priority": allowed}).encode())

    def _accept(self, message: Message) -> Accepted:
        """The folder is made and looked at once, and again when it is gone."""
        put = self._put if message.dedup is None else self._put_once
        if self._synced is not None:
            try:
                return put(message)
            except FileNotFoundError:
                self._synced = None
        self._make_folder()
        return put(message)

    def _put(self, message: Message) -> Accepted:
        with self._writing():
            self._append(message)
        return Accepted(message.id)

    def _put_once(self, message: Message) -> Accepted:
        assert message.dedup is not None
        keys = Keys(self._files)
        with Lock(self._files), self._writing():
            if (known := keys.find(message.dedup)) is not None:
                return Accepted(known, duplicate=True)
            end = self._append(message)
            try:
                keys.add(message, end)
            except OSError:  # it is accepted; without the record the inbox itself is looked through
                pass
        return Accepted(message.id)

    def _make_folder(self) -> None:
        """A folder that is new must be found after a loss of power, as must what is in it."""
        missing = [one for one in (self.folder, *self.folder.parents) if not one.exists()]
        private_folder(self.folder)
        for one in missing:
            stop_hook.sync_folder(str(one.parent))

    def _append(self, message: Message) -> int:
        """On the disk, with its name; where its line ends."""
        fd = os.open(self._files.inbox, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            line = (b"\n" if self._torn(fd) else b"") + message.line()
            # In one write, so that no other writer's line can get into it. On a full disk part of it stays
            # behind: a broken envelope, which no consumer hands out.
            if os.write(fd, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(fd)
            found, end = os.fstat(fd), os.lseek(fd, 0, os.SEEK_CUR)
        finally:
            os.close(fd)
        if self._synced != (found.st_dev, found.st_ino):
            # Whoever made the file, a foreign writer or one that was killed, may not have done this.
            stop_hook.sync_folder(self._files.folder)
            self._synced = (found.st_dev, found.st_ino)
        self._files.crossed(end - len(line), end)
        return end

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

    def _writing(self) -> FileLock:
        return FileLock(f"{self._files.folder}/{WRITER_LOCK}")

    # ── giving back ──

    def compact(self) -> Given:
        """Give disk space back: all that is acknowledged, and what is old in our own files.

        Done by itself whenever a file grew by some megabytes; here also when they are few.
        """
        try:
            return compact(str(self.folder), small=0)
        except OSError as error:
            raise FolderUnusable(f"cannot write to the inbox {self.folder}: {error.strerror}") from error

    def _give_back(self) -> None:
        if self._files.grown:
            self._files.grown = False
            try:
                compact(str(self.folder))
            except (OSError, stop_hook.InboxError):  # the message is accepted; another time, then
                pass

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
        return json_lines(self._files.dead_letters)

    def redrive(self, choose: str | None = None) -> list[str]:
        """Put dead letters back, all or the one whose entry or message id this is; the ids they have now.

        An envelope that was cut short was never accepted and is no message: it stays a dead letter.
        """
        try:
            with Lock(self._files), self._writing():
                return self._redrive(choose)
        except OSError as error:
            raise FolderUnusable(f"cannot write to the inbox {self.folder}: {error.strerror}") from error

    def _redrive(self, choose: str | None) -> list[str]:
        letters = list(self.dead_letters())
        chosen = [one for one in letters if choose is None or choose in _names(one)]
        if choose is not None and not chosen:
            raise InputError(f"there is no dead letter '{choose}'", hint="'remuda inbox dead' lists them")
        whole = [one for one in chosen if not _entry(one).broken]
        if choose is not None and not whole:
            raise InputError(f"the dead letter '{choose}' was cut short", hint="send its prompt again")
        messages = [_again(one) for one in whole]
        known = self._known({message.id for message in messages})
        for message, letter in zip(messages, whole, strict=True):
            if message.id not in known:  # else a crash ended this before its letters were taken away
                self._append(message)
                self._note_redriven(message, letter)
        left = [one for one in letters if one not in whole]
        data = b"".join(json.dumps(one).encode() + b"\n" for one in left)
        self._files.replace(self._files.dead_letters, data)
        return [message.id for message in messages]

    def _known(self, ids: set[str]) -> set[str]:
        """Those that were put back before: they wait, or have a receipt."""
        inbox = stop_hook.Inbox(self._files)
        try:
            inbox.open()
            waiting = {entry.id for entry in self._entries(inbox)} & ids
        finally:
            inbox.close()
        return waiting | {str(one.get("id")) for one in json_lines(self._files.receipts)} & ids

    def _note_redriven(self, message: Message, letter: dict[str, Any]) -> None:
        stop_hook.Inbox(self._files).receipt(message.id, "accepted", redriven=_entry(letter).id)


def _entry(letter: dict[str, Any]) -> Entry:
    return Entry(int(stop_hook.number(letter.get("start_offset"))), 0, str(letter.get("raw_line")))


def _again(letter: dict[str, Any]) -> Message:
    """The message of a dead letter, with an id that is the same whenever it is asked for."""
    entry = _entry(letter)
    message = make_message(
        entry.text,
        sender=entry.fields.get("from"),
        max_attempts=int(stop_hook.number(entry.fields.get("max_attempts"))),
        command=bool(entry.fields.get("command")),
        literal=bool(entry.fields.get("literal")),
        max_bytes=max(DEFAULT_MAX_BYTES, 4 * len(entry.text)),
    )
    return replace(message, id=f"r{stop_hook.digest(json.dumps(letter, sort_keys=True))[:20]}")


def _wait(inbox: stop_hook.Inbox, entry: Entry) -> float:
    held = inbox.queue.find(entry.start)
    return entry.wait(inbox.queue.clock) if held is None else inbox.queue.wait(held, inbox.queue.clock())


def _names(letter: dict[str, Any]) -> set[str]:
    return {str(letter.get("entry_id")), _entry(letter).id}
