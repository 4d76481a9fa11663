"""What to launch, for how long, and when a silent program is prompted or given up. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

COLS, ROWS = 200, 50
"""The size of the terminal when there is none to show the program on, as heartbeat-launch has it."""
HIGHEST_CODE = 123
"""The highest exit code that a program can end with: higher codes are ours."""
ECHO_GRACE = 20.0
"""Output within this many seconds of a prompt may be only its echo."""

IdleVerdict: TypeAlias = Literal["wait", "prompt", "give_up"]


@dataclass(frozen=True, slots=True)
class Plan:
    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    timeout: float = 3600.0
    """Seconds before it is killed; 0 for no limit."""
    exit_signal: Path | None = None
    """A file whose appearance ends the program."""
    idle_timeout: float = 0.0
    """Seconds of silence before it is prompted; 0 for never."""
    idle_prompt: str = "Continue"
    max_idle_retries: int = 3
    signal_code: int = HIGHEST_CODE
    """The exit code for a program that a signal ended."""


class IdleRule:
    """Prompt after `timeout` seconds of silence, and give up after `max_retries` prompts without effect.

    The count starts again when the program prints something that cannot be an echo of the last prompt. Times
    come from the caller.
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
        """Return when to call `check` again, unless output comes before."""
        return max(self._heard, self._prompted) + self._timeout

    def check(self, now: float) -> IdleVerdict:
        if now < self.due():
            return "wait"
        if self.retries >= self._max_retries:
            return "give_up"
        self.retries += 1
        self._prompted = now
        return "prompt"
