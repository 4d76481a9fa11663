"""Wait for one descriptor, whatever its number: `select` takes none beyond 1023."""

from __future__ import annotations

import select

_LONGEST = 2**31 - 1
"""The maximum of the kernel: 24 days."""


def is_readable(fd: int, timeout: float | None) -> bool:
    """Return whether there is something to read, or its end, within `timeout` seconds; None waits without
    limit.
    """
    waiter = select.poll()
    waiter.register(fd, select.POLLIN)
    return bool(waiter.poll(None if timeout is None else min(timeout * 1000, _LONGEST)))
