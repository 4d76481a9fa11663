"""Which terminal size a session has when several clients watch it. Pure.

`latest`    the client that typed last decides; its RESIZE counts as typing
`smallest`  everything fits on every screen that can type
`fixed`     the size it was started with, or that `remuda resize` set last

A client that only watches never decides.
"""

from __future__ import annotations

from typing import Literal, get_args

from remuda.errors import InvalidOptions

Policy = Literal["latest", "smallest", "fixed"]
Size = tuple[int, int]

MIN_COLS, MIN_ROWS = 1, 1
MAX_COLS, MAX_ROWS = 2000, 1000


def check_policy(name: str) -> Policy:
    for policy in get_args(Policy):
        if name == policy:
            return name  # type: ignore[return-value]  # narrowed by the comparison
    raise InvalidOptions(f"unknown size policy {name!r}", hint="use latest, smallest or fixed")


def check_size(cols: int, rows: int) -> Size:
    if not (MIN_COLS <= cols <= MAX_COLS and MIN_ROWS <= rows <= MAX_ROWS):
        raise InvalidOptions(
            f"a terminal cannot be {cols}x{rows}",
            hint=f"the minimum is {MIN_COLS}x{MIN_ROWS}, the maximum is {MAX_COLS}x{MAX_ROWS}",
        )
    return cols, rows


class SizeKeeper:
    """Remembers the sizes that clients request and returns the session's size."""

    def __init__(self, policy: Policy, size: Size) -> None:
        self.policy = policy
        self.size = size
        self._wishes: dict[int, Size] = {}
        self._typed: list[int] = []  # the last typist at the end
        self._commanded = False

    def wish(self, client: int, size: Size) -> Size:
        self._commanded = False
        self._wishes[client] = size
        self.typed(client)
        return self._settle()

    def typed(self, client: int) -> Size:
        if self._typed and self._typed[-1] == client:
            return self.size  # the common case: one more keystroke
        if client in self._typed:
            self._typed.remove(client)
        self._typed.append(client)
        self._commanded = False
        return self._settle()

    def gone(self, client: int) -> Size:
        self._wishes.pop(client, None)
        if client in self._typed:
            self._typed.remove(client)
        return self._settle()

    def command(self, size: Size) -> Size:
        """Set a size that a user requested explicitly; it holds until a terminal or its typist changes."""
        self.size = size
        self._commanded = True
        return size

    def _settle(self) -> Size:
        if self._commanded:
            return self.size
        if self.policy == "smallest" and self._wishes:
            self.size = (min(c for c, _ in self._wishes.values()), min(r for _, r in self._wishes.values()))
        elif self.policy == "latest":
            wishes = (self._wishes[client] for client in reversed(self._typed) if client in self._wishes)
            self.size = next(wishes, self.size)
        return self.size
