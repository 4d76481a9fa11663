"""The answer as Claude Code shows it, piece by piece, and whether all of it has come. Pure.

`MessageDisplay` tells every text that appears, exactly, in numbered pieces of which the last says so; a Stop
tells the answer without the blanks around it (2.1.325). The two come side by side, in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Shown:
    """The text that was shown last."""

    def __init__(self) -> None:
        self._message: object = None
        self._pieces: dict[int, str] = {}
        self._last: int | None = None

    def take(self, payload: Mapping[str, Any]) -> str:
        """A hook's payload; the piece that it tells, if any."""
        delta, index = payload.get("delta"), payload.get("index")
        if payload.get("hook_event_name") != "MessageDisplay" or not isinstance(delta, str):
            return ""
        if payload.get("message_id") != self._message:
            self._message, self._pieces, self._last = payload.get("message_id"), {}, None
        if isinstance(index, int):
            self._pieces[index] = delta
            self._last = index if payload.get("final") else self._last
        return delta

    @property
    def whole(self) -> str | None:
        """All of the text; None while a piece is missing."""
        if self._last is None or len(self._pieces) != self._last + 1:
            return None
        return "".join(text for _, text in sorted(self._pieces.items()))
