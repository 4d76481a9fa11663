"""What people type into a session: passed on at once, but while a message is being handed over."""

from __future__ import annotations

from time import monotonic

from .child import Child


class Keyboard:
    def __init__(self, child: Child) -> None:
        self._child = child
        self._held: list[bytes] | None = None
        self.typed_at = float("-inf")
        """When somebody last typed, on the loop's clock."""

    def type(self, data: bytes) -> bool:
        """Whether the program has taken it already."""
        taken = False
        if self._held is None:
            taken = self._child.write(data)
        else:
            self._held.append(data)
        self.typed_at = monotonic()
        return taken

    def hold(self) -> None:
        """Keep what is typed from here on."""
        if self._held is None:
            self._held = []

    def release(self) -> None:
        """Hand on what was kept, in its order."""
        held, self._held = self._held, None
        for data in held or ():
            self._child.write(data)
