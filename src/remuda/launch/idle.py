"""When a silent program is prompted, and when it is given up. Pure: times come from the caller."""

from __future__ import annotations

from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal["wait", "prompt", "give_up"]

ECHO_GRACE = 20.0
"""Output so soon after a prompt may be no more than its echo."""


class IdleRule:
    """Silence of `timeout` seconds calls for a prompt, and after `max_retries` of them in vain for the end.

    The count begins anew when the program prints something that cannot be an echo of the last prompt.
    """

    def __init__(self, timeout: float, max_retries: int, now: float) -> None:
        self._timeout = timeout
        self._max_retries = max_retries
        self._heard = now
        self._prompted = float("-inf")
        self.retries = 0

    def heard(self, now: float) -> None:
        """The program printed something."""
        self._heard = now
        if now - self._prompted >= ECHO_GRACE:
            self.retries = 0

    def due(self) -> float:
        """When to look again, unless something is heard before."""
        return max(self._heard, self._prompted) + self._timeout

    def look(self, now: float) -> Verdict:
        if now < self.due():
            return "wait"
        if self.retries >= self._max_retries:
            return "give_up"
        self.retries += 1
        self._prompted = now
        return "prompt"
