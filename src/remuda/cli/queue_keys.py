"""What popup and dashboard share: the keys, and when a request may be decided. Pure, without Textual."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from remuda.untrusted import parse_json

READ = 0.7
"""Seconds for which a request must be on the screen before it can be decided."""
PUT_OFF: Mapping[str, Mapping[str, float]] = {"skip": {}, "snooze": {"seconds": 600.0}, "dismiss": {}}
"""What the actions that only change the queue send to the boss."""
_TABLE = Path(__file__).parents[1] / "boss" / "web" / "keys.json"


def key_table() -> list[dict[str, Any]]:
    """Return the keys that page, dashboard and popup have in common."""
    table: list[dict[str, Any]] = parse_json(_TABLE.read_bytes())
    return table


def key_actions(names: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return the action of each key of the table. `names`: what a key with a long name is called here."""
    return {
        key: one["action"]
        for one in key_table()
        for name in (one["key"], *one.get("also", ()))
        for key in names.get(name, (name,))
    }


class SeenRequest:
    """Takes note of the request on the screen, so that no key decides what could not be read.

    The list changes while the user looks at it: a key may be meant for what was there before.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.is_complete = False
        """Whether all of the request was on the screen."""
        self._clock = clock
        self._request, self._since = "", 0.0

    def drawn(self, request_id: str, *, is_complete: bool) -> None:
        """A request is on the screen, an empty id for none."""
        if request_id != self._request:
            self._request, self._since = request_id, self._clock()
        self.is_complete = is_complete

    def shows(self, request_id: str) -> bool:
        return request_id == self._request

    def why_not(self, request_id: str) -> str:
        """Return why the request cannot be decided yet; empty if it can."""
        if self.shows(request_id) and self._clock() - self._since >= READ:
            return ""
        return "this request is new: read it, then press the key again"
