"""Record a session as asciicast v2: one JSON header line, then one line per event."""

from __future__ import annotations

import codecs
import errno
import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

from remuda.durable import open_new


def _open_new(path: Path) -> int:
    """Create a new file for its owner alone. It replaces an old one, which others may be able to read, or
    have open.

    A symbolic link or a pipe is replaced as well, and not what it leads to. Raises `OSError`, also for a file
    of another user, and for a device: to replace /dev/null would harm the system.
    """
    if os.path.lexists(path) and os.lstat(path).st_uid != os.getuid():
        raise PermissionError(errno.EPERM, "it belongs to another user")
    if os.path.exists(path) and stat.S_IFMT(os.stat(path).st_mode) in (stat.S_IFCHR, stat.S_IFBLK):
        raise OSError(errno.EINVAL, "it is a device")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fd = open_new(temporary)
    try:
        os.rename(temporary, path)
    except OSError:
        os.close(fd)
        temporary.unlink()
        raise
    return fd


class Recorder:
    """Writes what the terminal shows, and when. A failed write ends the recording, never the session."""

    def __init__(
        self, path: Path, cols: int, rows: int, title: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path = path
        self.failure: str | None = None
        self._clock = clock
        self._begun = clock()
        # A character may be cut between two reads of the terminal.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._fd = _open_new(path)
        header = {"version": 2, "width": cols, "height": rows, "timestamp": int(time.time()), "title": title}
        self._write(header)

    def output(self, data: bytes) -> None:
        if text := self._decoder.decode(data):
            self._event("o", text)

    def resized(self, cols: int, rows: int) -> None:
        self._event("r", f"{cols}x{rows}")

    def _event(self, kind: str, data: str) -> None:
        self._write([round(self._clock() - self._begun, 6), kind, data])

    def _write(self, document: object) -> None:
        if self._fd < 0:
            return
        line = memoryview(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        try:
            while line:
                line = line[os.write(self._fd, line) :]
        except OSError as error:
            self.failure = f"recording stopped: {error.strerror}"
            self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
