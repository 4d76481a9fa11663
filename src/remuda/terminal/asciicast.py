"""Recording a session as asciicast v2: one JSON header line, then one line per event."""

from __future__ import annotations

import codecs
import json
import os
import time
from collections.abc import Callable
from pathlib import Path


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
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        header = {"version": 2, "width": cols, "height": rows, "timestamp": int(time.time()), "title": title}
        self._write(header)

    def output(self, data: bytes) -> None:
        if text := self._decoder.decode(data):
            self._event("o", text)

    def resized(self, cols: int, rows: int) -> None:
        self._event("r", f"{cols}x{rows}")

    def marker(self, label: str) -> None:
        self._event("m", label)

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
