"""Append to an inbox that others append to as well, and make sure that it is on the disk.

A put is an fsync and what Python does around it, which is a good part of it on a fast disk: so nothing is
checked twice here.

Every envelope gets the mark of its inbox here. The first writer makes the key, and has it on the disk before
the first line that is marked with it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from typing import Any

from remuda.lockfile import FileLock

from . import stop_hook
from .compaction import DEDUP_FILE, DEDUP_WINDOW, WRITER_LOCK
from .locks import close_writer_lock, lock_writer, unlock_writer
from .message import Message
from .stop_hook import Entry, Files, InboxKey, decode_json, encode_json, number

_TORN_LOOK = 0.05
_SIGURG = 23  # `signal` is not imported for it: every command that puts a message imports this module


class Writer:
    """Appends to one inbox. The caller of `append` holds `lock()`."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._path = files.inbox
        self._lock = f"{files.folder}/{WRITER_LOCK}"
        self.synced: tuple[int, int] | None = None
        """The file whose name, with that of its folder, is known to be on the disk."""
        self._left: tuple[int, int, int, int] | None = None
        """File, size and time after the last put: while they are unchanged, the last line is ours."""
        self._key: tuple[os.stat_result, bytes] | None = None

    def lock(self) -> FileLock:
        return FileLock(self._lock, stop_hook.open_file)

    def close(self) -> None:
        close_writer_lock(self._lock)

    def put(self, line: bytes) -> None:
        lock = lock_writer(self._lock)
        try:
            self.append(line)
        finally:
            unlock_writer(self._lock, lock)

    def append(self, line: bytes) -> int:
        """Mark the line and write it to the disk. Returns where it ends.

        Raises FileNotFoundError if the file was removed during the write.
        """
        fd = stop_hook.open_file(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            before = os.fstat(fd)
            as_left = self._left == (before.st_dev, before.st_ino, before.st_size, before.st_mtime_ns)
            end_line = b"" if as_left or not _is_torn(fd, before) else b"\n"
            if end_line:
                before = os.fstat(fd)
            line = stop_hook.marked_line(self._secret(before.st_size), line, before.st_size + len(end_line))
            data = end_line + line
            # In one write, so that no other writer's line can get into it. On a full disk part of it remains:
            # a broken envelope, which no consumer hands out.
            if os.write(fd, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self._files.durable:
                os.fsync(fd)
            # While it is open: the inode number of a removed file may be used again at once.
            there = os.stat(self._path)
            end = before.st_size + len(data)
            if there.st_ino == before.st_ino and there.st_dev == before.st_dev and there.st_size == end:
                self._left = (before.st_dev, before.st_ino, end, there.st_mtime_ns)
            else:
                self._left, end = None, self._look_again(fd, there, line)
        finally:
            os.close(fd)
        # An empty file is new, also if it has the inode number of one that was removed.
        if not before.st_size or self.synced != (before.st_dev, before.st_ino):
            # The process that created the file, a foreign writer or one that was killed, may not have done
            # this.
            self._files.sync()
            self.synced = (before.st_dev, before.st_ino)
        self._files.crossed(end - len(data), end)
        return end

    def _secret(self, size: int) -> bytes:
        """Return the inbox's key; create it if there is none.

        Under the lock, so that no two writers create one.
        """
        try:
            there = os.lstat(self._files.key)
        except FileNotFoundError:
            return self._make_key(size)
        if self._key is None or not _is_same_file(self._key[0], there):
            # A key of another user is not replaced.
            os.close(stop_hook.open_file(self._files.key, os.O_RDONLY))
            secret = stop_hook.InboxKey(self._files.key).secret
            if not secret:
                return self._make_key(size)
            self._key = there, secret
        return self._key[1]

    def _make_key(self, size: int) -> bytes:
        secret = os.urandom(32)
        self._files.replace(self._files.key, f"{secret.hex()} {size}\n".encode())
        self._key = os.stat(self._files.key), secret
        return secret

    def _look_again(self, fd: int, there: os.stat_result, line: bytes) -> int:
        """Return where the line ends, after other writers changed the file at the same time."""
        if not os.path.samestat(os.fstat(fd), there) and not self.is_in_place(line):
            # The file was removed or replaced: what was written there will not be read.
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return os.lseek(fd, 0, os.SEEK_CUR)

    def is_in_place(self, line: bytes) -> bool:
        """Return whether the current file has the line too, durably: an editor may have read and saved it."""
        fd = stop_hook.open_file(self._path, os.O_RDONLY)
        try:
            if line not in stop_hook.read_all(fd):
                return False
            os.fsync(fd)
            return True
        finally:
            os.close(fd)


def _is_same_file(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_ino, one.st_mtime_ns, one.st_dev) == (other.st_ino, other.st_mtime_ns, other.st_dev)


def _is_torn(fd: int, status: os.stat_result) -> bool:
    """Return whether the last line has no end. A writer that is still at it gets time to end it."""
    if _ends(fd, status.st_size):
        return False
    deadline = time.monotonic() + stop_hook.TORN_GRACE
    while time.time() - status.st_mtime < stop_hook.TORN_GRACE and time.monotonic() <= deadline:
        time.sleep(_TORN_LOOK)
        status = os.fstat(fd)
        if _ends(fd, status.st_size):
            return False
    return True


def _ends(fd: int, size: int) -> bool:
    # A NUL does not end a line: the holes of `compaction` never reach the last bytes of the file.
    return not size or os.pread(fd, 1, size - 1) == b"\n"


def has_writer(path: str) -> bool:
    """Return whether a process has this file open for writing. False also where the system cannot say."""
    try:
        fd = stop_hook.open_file(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        # The kernel grants a lease only for a file without writers. A process that opens it then waits for
        # the end of the lease, and we get a signal: SIGURG, which is ignored, and not SIGIO, which would end
        # us.
        fcntl.fcntl(fd, fcntl.F_SETSIG, _SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except BlockingIOError:
        return True
    except (OSError, AttributeError):  # a filesystem, or a system, without leases
        pass
    finally:
        os.close(fd)
    return False


# ── dedup keys ──

# A record is written after the message itself, so a crash may lose the last one. Each record says how long
# the inbox was; the lines after the last record are searched for the key.

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
        inbox = stop_hook.HookInbox(self._files)
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
            record = _search(fd, position, key, InboxKey(self._files.key))
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


def _search(fd: int, position: int, key: str, secret: InboxKey) -> dict[str, Any] | None:
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
