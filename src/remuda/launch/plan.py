"""What to launch, and for how long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

COLS, ROWS = 200, 50
"""The terminal of a program that nobody watches, as heartbeat-launch makes it."""
HIGHEST_CODE = 123
"""Of what a program ends with: higher codes are ours."""


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
