"""Durations and times as people write and read them: `90s`, `2h30m`, `1d`; `14:30`. Pure."""

from __future__ import annotations

import re

from .errors import InvalidOptions

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"([0-9]+)([smhd])")
_CLOCK = re.compile(r"[0-9]{1,2}:[0-9]{2}")


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


def parse_moment(text: str, now: float) -> float:
    """Since the epoch, of `14:30` (the next time that a clock here shows that) or `2026-02-03 09:00`."""
    from datetime import datetime, timedelta  # slow to load, and seldom wanted

    here = datetime.fromtimestamp(now)
    try:
        if _CLOCK.fullmatch(text):
            hour, minute = map(int, text.split(":"))
            found = here.replace(hour=hour, minute=minute, second=0, microsecond=0)
            return (found if found > here else found + timedelta(days=1)).timestamp()
        at = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise InvalidOptions(
            f"{text!r} is not a time", hint="write for example 14:30 or '2026-02-03 09:00'"
        ) from None
    if at <= now:
        raise InvalidOptions(f"{text} is over")
    return at


def show_moment(at: float, now: float) -> str:
    """As short as it can be said: `14:30`, `Tue 09:00` within six days, else `2026-02-03 09:00`."""
    import time

    then, today = time.localtime(at), time.localtime(now)
    if then[:3] == today[:3]:
        return time.strftime("%H:%M", then)
    return time.strftime("%a %H:%M" if 0 < at - now < 6 * 86400 else "%Y-%m-%d %H:%M", then)
