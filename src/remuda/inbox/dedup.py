"""Which dedup keys were accepted, and for which message.

A record is written after the message itself, so a crash may lose the last one. Each record says how long the
inbox was; the lines after the last record are searched for the key.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from . import stop_hook
from .compaction import DEDUP_FILE, DEDUP_WINDOW
from .message import Message
from .stop_hook import Entry, Files, Key, decode_json, encode_json, number

_CHUNK = 1 << 20


class DedupKeys:
    """The keys of one inbox. The caller holds the writers' lock, and the inbox's."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._path = f"{files.folder}/{DEDUP_FILE}"

    def find(self, key: str) -> str | None:
        """Return the message that has this key: one that still waits, or one of the last day."""
        data = stop_hook.read_file(self._path) or b""
        for one in _records(data, _field("key", key)):
            if one.get("key") == key and self._counts(one):
                return str(one.get("id"))
        last = next(_records(data[-_CHUNK:], b""), {})
        return self._unrecorded(key, int(number(last.get("end"))))

    def _counts(self, one: dict[str, Any]) -> bool:
        if time.time() - number(one.get("at")) <= DEDUP_WINDOW:
            return True
        end = int(number(one.get("end")))
        inbox = stop_hook.Inbox(self._files)
        try:
            inbox.open()
            return end > inbox.queue.frontier or any(int(held["end"]) == end for held in inbox.queue.held)
        finally:
            inbox.close()

    def _unrecorded(self, key: str, position: int) -> str | None:
        """Search the inbox after the last record. That part is short, except for the first key of all."""
        try:
            fd = stop_hook.open_file(self._files.inbox, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            if position > os.fstat(fd).st_size:  # the file was replaced
                position = 0
            record = _search(fd, position, key, Key(self._files.key))
            return str(record["id"]) if record is not None and self._counts(record) else None
        finally:
            os.close(fd)

    def add(self, message: Message, end: int) -> None:
        record = {"key": message.dedup, "id": message.id, "end": end, "at": message.sent_at}
        self._files.append(self._path, record)


def _field(name: str, value: str) -> bytes:
    return f"{encode_json(name)}: {encode_json(value)}".encode()


def _records(data: bytes, needle: bytes) -> Iterator[dict[str, Any]]:
    """Yield the records with this in their line, the last one first."""
    for line in reversed(data.split(b"\n")):
        if line and needle in line:
            try:
                document = decode_json(line)
            except ValueError:  # torn by a crash
                continue
            if isinstance(document, dict):
                yield document


def _search(fd: int, position: int, key: str, secret: Key) -> dict[str, Any] | None:
    """Return the last envelope with this key. Skips the holes of `compaction`."""
    needle = _field("dedup", key)
    try:
        position = os.lseek(fd, position, os.SEEK_DATA)
    except (OSError, AttributeError):  # no data after it, or a system that cannot say
        pass
    rest, record = b"", None
    while chunk := os.pread(fd, _CHUNK, position):
        position += len(chunk)
        start = position - len(chunk) - len(rest)
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            start += len(line) + 1
            if needle in line:
                entry = Entry(0, 0, line.strip(b"\0 \r").decode("utf-8", "replace"), secret)
                if entry.fields.get("dedup") == key:
                    record = {"id": entry.id, "at": entry.fields.get("at"), "end": start}
    return record
