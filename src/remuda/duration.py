"""Durations as people write and read them: `90s`, `2h30m`, `1d`. Pure."""

from __future__ import annotations

import re

from .errors import InvalidOptions

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"([0-9]+)([smhd])")


def parse_duration(text: str) -> float:
    """Seconds of `2h30m`. Zero, a missing unit and an unknown unit are errors."""
    if not re.fullmatch(r"(?:[0-9]+[smhd])+", text):
        raise InvalidOptions(
            f"{text!r} is not a duration", hint="write for example 90s, 45m, 24h, 7d or 2h30m"
        )
    seconds = sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if seconds == 0:
        raise InvalidOptions("a duration of zero is not useful here")
    return float(seconds)


def show_duration(seconds: float) -> str:
    """Short, for a table: `850ms`, `12s`, `3m`, `2h30m`, `4d`. Never more than has passed."""
    if seconds < 1:
        return f"{int(max(0.0, seconds) * 1000)}ms"
    if seconds < 60:
        return f"{int(seconds)}s"
    if seconds < 3600:
        return f"{seconds // 60:.0f}m"
    if seconds < 86400:
        return f"{seconds // 3600:.0f}h{seconds % 3600 // 60:02.0f}m"
    return f"{seconds // 86400:.0f}d"
