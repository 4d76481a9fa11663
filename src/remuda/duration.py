"""Durations and times as people write and read them: `90s`, `2h30m`, `1d`; `14:30`. Pure."""

from __future__ import annotations

import math
import re

from .errors import InvalidOptions
from .patterns import pattern
from .untrusted import finite

LONGEST = 1e9
"""Thirty years. A longer time means 'forever', and the system calls that wait take no such number."""

_LAST_MOMENT = 253402214400.0
"""The last day of the year 9999: a later one has no name in a calendar."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = pattern(r"([0-9]+)([smhd])")
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_TIME = pattern(
    rf"(?P<n>{_NUMBER})|(?:(?P<d>{_NUMBER})d)?(?:(?P<h>{_NUMBER})h)?(?:(?P<m>{_NUMBER})m)?(?:(?P<s>{_NUMBER})s)?"
)
_CLOCK = pattern(r"[0-9]{1,2}:[0-9]{2}")


def parse_duration(text: str) -> float:
    """Return the seconds of `2h30m`. Zero, a missing unit and an unknown unit are errors."""
    if not re.fullmatch(r"(?:[0-9]+[smhd])+", text):
        raise InvalidOptions(
            f"{text!r} is not a duration", hint="write for example 90s, 45m, 24h, 7d or 2h30m"
        )
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if seconds == 0:
        raise InvalidOptions("a duration of zero is not allowed here")
    return clamp_seconds(seconds)


def parse_time(text: str) -> float:
    """Return the seconds of `90`, `1.5h`, `45m` or `2h30m`. Zero is allowed.

    Units are in falling order, each once. Raises `InvalidOptions`, also for more than `LONGEST`.
    """
    match = _TIME.fullmatch(text)
    if not text or match is None:
        raise InvalidOptions(f"{text!r} is not a time", hint="write for example 90s, 45m or 2h30m")
    seconds = sum(float(match[unit] or 0) * size for unit, size in _UNITS.items()) + float(match["n"] or 0)
    if seconds > LONGEST:
        raise InvalidOptions(f"{text[:40]!r} is too long", hint=f"the longest time is {LONGEST / 86400:.0f}d")
    return seconds


def clamp_seconds(value: object, *, longest: float = LONGEST) -> float:
    """Return a duration from outside as seconds that every wait can take: 0 to `longest`, always finite.

    Infinity and integers without end are `longest`. NaN, a negative number and what is not a number are 0.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= longest:
        return longest
    return max(0.0, finite(value))


def check_seconds(name: str, value: object) -> float:
    """Return an argument that is a number of seconds; more than `LONGEST` counts as `LONGEST`.

    Raises `InvalidOptions` for a negative number, NaN, infinity, and what is not a number.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value > LONGEST:
        return LONGEST  # it may be too large for a float
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise InvalidOptions(f"{name} must be a number of seconds, not {str(value)[:40]!r}")
    return min(float(value), LONGEST)


def as_seconds(name: str, value: object) -> float:
    """Return an argument that is a TIME: a number of seconds, or a text such as "90", "45m" or "2h30m"."""
    if not isinstance(value, str):
        return check_seconds(name, value)
    try:
        return parse_time(value)
    except InvalidOptions:
        hint = "use a number of seconds, or a time such as 90s, 45m or 2h30m"
        raise InvalidOptions(f"{name} is {value[:40]!r}", hint=hint) from None


def show_duration(seconds: float, *, precise: bool = False) -> str:
    """Format a duration, short, for a table: `0s`, `12s`, `3m`, `2h30m`, `4d`. Never more than has passed.

    With `precise`, less than a second is `850ms`.
    """
    seconds = clamp_seconds(seconds)
    if seconds < 1 and precise:
        return f"{int(seconds * 1000)}ms"
    if seconds < 60:
        return f"{int(seconds)}s"
    if seconds < 3600:
        return f"{seconds // 60:.0f}m"
    if seconds < 86400:
        return f"{seconds // 3600:.0f}h{seconds % 3600 // 60:02.0f}m"
    return f"{seconds // 86400:.0f}d"


def parse_moment(text: str, now: float) -> float:
    """Return the time since the epoch of `14:30` (the next time that a clock here shows that) or `2026-02-03
    09:00`.
    """
    from datetime import datetime, timedelta  # slow to load, and rarely needed

    here = datetime.fromtimestamp(now)
    try:
        if _CLOCK.fullmatch(text):
            hour, minute = map(int, text.split(":"))
            moment = here.replace(hour=hour, minute=minute, second=0, microsecond=0)
            return (moment if moment > here else moment + timedelta(days=1)).timestamp()
        at = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise InvalidOptions(
            f"{text!r} is not a time", hint="write for example 14:30 or '2026-02-03 09:00'"
        ) from None
    if at <= now:
        raise InvalidOptions(f"{text} is in the past")
    return at


def show_moment(at: float, now: float) -> str:
    """Format a time as short as possible: `14:30`, `Tue 09:00` within six days, else `2026-02-03 09:00`."""
    import time

    then, today = time.localtime(min(max(0.0, finite(at)), _LAST_MOMENT)), time.localtime(now)
    if then[:3] == today[:3]:
        return time.strftime("%H:%M", then)
    return time.strftime("%a %H:%M" if 0 < at - now < 6 * 86400 else "%Y-%m-%d %H:%M", then)
