"""Read what is appended to a file of JSON lines. Blocking; watches nothing and keeps no file open.

The boss, the keeper and `remuda print` follow transcripts with this.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from .durable import open_regular
from .untrusted import parse_json

MAX_LINE_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 20


class JsonlTail:
    """Yields each JSON object once, when its line is complete. A line that is not one is skipped.

    `offset` is where the first unread line begins; with `inode` it can be stored and passed in again. A file
    that has another inode than at the last read, or is shorter than `offset`, is read as a new file.

    By default a new file is read from its start. With `recent_bytes` only that much of its end is read, and
    the same of a file that has grown by more than `MAX_LINE_BYTES` since the last read.

    With `marks` a line without any of these bytes is skipped without parsing.
    """

    __slots__ = ("_line", "_skips_line", "inode", "marks", "offset", "own", "path", "recent_bytes")

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        inode: int = 0,
        offset: int = 0,
        recent_bytes: int | None = None,
        own: bool = False,
        marks: tuple[bytes, ...] = (),
    ) -> None:
        """`inode` 0: the file has not been seen. `own`: a file of another user is not read."""
        self.marks = marks
        self.own = own
        self.path = os.fspath(path)
        self.inode = inode
        self.offset = offset
        self.recent_bytes = recent_bytes
        self._line = bytearray()
        self._skips_line = False

    @classmethod
    def at_end(cls, path: str | os.PathLike[str]) -> JsonlTail:
        """Skip what the file holds now. A file that does not exist yet is read from its start."""
        try:
            found = os.stat(path)
        except OSError:
            return cls(path)
        return cls(path, inode=found.st_ino, offset=found.st_size)

    @property
    def is_new(self) -> bool:
        """Whether nothing of the file has been read or skipped."""
        return self.inode == 0

    def has_changed(self) -> bool:
        """Whether the file is another or has another size than at the last read. False if it is missing."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return (found.st_ino, found.st_size) != (self.inode, self.offset)

    def read(self) -> Iterator[dict[str, Any]]:
        """Yield the objects that were appended since the last call. Nothing if the file cannot be opened.

        Stops at the size that the file has now. A line of more than `MAX_LINE_BYTES` is dropped.
        """
        try:
            fd = open_regular(self.path, own=self.own)
        except OSError:
            return
        try:
            size = self._find_start(fd)
            position = self.offset + len(self._line)
            while position < size and (data := os.pread(fd, min(_CHUNK_BYTES, size - position), position)):
                position += len(data)
                yield from self._split(data)
        finally:
            os.close(fd)

    def _find_start(self, fd: int) -> int:
        """Move to the first line to read; returns the size of the file."""
        found = os.fstat(fd)
        size = found.st_size
        is_same = found.st_ino == self.inode and size >= self.offset + len(self._line)
        if not is_same:
            self.inode, self.offset = found.st_ino, 0
            self._restart()
        if self.recent_bytes is not None:
            most = MAX_LINE_BYTES if is_same else self.recent_bytes
            if size - self.offset > most:
                self.offset = size - self.recent_bytes - 1  # a line that begins exactly there is complete
                self._restart(skips_line=True)
        return size

    def _restart(self, *, skips_line: bool = False) -> None:
        self._line.clear()
        self._skips_line = skips_line

    def _split(self, data: bytes) -> Iterator[dict[str, Any]]:
        *lines, rest = data.split(b"\n")
        for line in lines:
            whole = bytes(self._line) + line
            self.offset += len(whole) + 1
            skipped = self._skips_line
            self._restart()
            if skipped or (self.marks and not any(mark in whole for mark in self.marks)):
                continue
            if (record := _parse(whole)) is not None:
                yield record
        self._line += rest
        if self._skips_line or len(self._line) > MAX_LINE_BYTES:
            self.offset += len(self._line)
            self._restart(skips_line=True)


def _parse(line: bytes) -> dict[str, Any] | None:
    if not line.strip():
        return None
    try:
        record = parse_json(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
