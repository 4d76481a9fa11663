"""What people type into a session: passed on at once, but while a message is being handed over."""

from __future__ import annotations

import asyncio

from .child import Child


class Keyboard:
    def __init__(self, child: Child) -> None:
        self._child = child
        self._loop = asyncio.get_running_loop()
        self._held: list[bytes] | None = None
        self.typed_at = float("-inf")
        """When somebody last typed, on the loop's clock."""

    def type(self, data: bytes) -> None:
        self.typed_at = self._loop.time()
        if self._held is None:
            self._child.write(data)
        else:
            self._held.append(data)

    def hold(self) -> None:
        """Keep what is typed from here on."""
        if self._held is None:
            self._held = []

    def release(self) -> None:
        """Hand on what was kept, in its order."""
        held, self._held = self._held, None
        for data in held or ():
            self._child.write(data)
