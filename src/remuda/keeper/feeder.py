"""Feed a screen in a second thread: the emulator works while the next bytes are read.

The emulator releases the interpreter's lock, so a flood is parsed on another core (measured: 141 against 55
MB/s). Small output is fed at once, in the caller's thread: an echo does not wait for another thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

log = logging.getLogger("remuda.keeper.feeder")

INLINE_BYTES = 4096
BEHIND_BYTES = 1 << 16
"""How many bytes may wait for the screen. More gains nothing and makes `settle` longer."""


class Feeder:
    """Passes bytes to `feed` in order, in the caller's thread or in its own, never in both at once."""

    def __init__(self, feed: Callable[[bytes], None]) -> None:
        self._feed = feed
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._caught_up = threading.Condition()
        self._pending_bytes = 0
        self._thread: threading.Thread | None = None

    def feed(self, data: bytes) -> None:
        if self._pending_bytes == 0 and len(data) < INLINE_BYTES:
            self._feed(data)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="screen", daemon=True)
            self._thread.start()
        with self._caught_up:
            self._caught_up.wait_for(lambda: self._pending_bytes <= BEHIND_BYTES)
            self._pending_bytes += len(data)
        self._queue.put(data)

    def settle(self) -> None:
        """Return when all bytes have been fed. Takes less than a millisecond."""
        if self._pending_bytes:
            with self._caught_up:
                self._caught_up.wait_for(lambda: self._pending_bytes == 0)

    def _work(self) -> None:
        while (data := self._queue.get()) is not None:
            try:
                self._feed(data)
            except Exception:
                log.exception("the screen lost %d bytes", len(data))
            with self._caught_up:
                self._pending_bytes -= len(data)
                self._caught_up.notify()

    def close(self) -> None:
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
