"""When a usage limit of Claude's service ends. Pure.

Seen on 2.1.325, with an account of claude.ai: a record of the transcript has the moment (`quotaLimits`), the
hook only words: "resets 5:11pm (UTC)", "resets Nov 17, 2pm (America/New_York)", in the zone of the machine,
without its seconds. A minute or more after that the CLI goes on by itself, unless a prompt came before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from remuda.untrusted import finite

_WORDS = re.compile(
    r"\bresets (?:at )?(?:([A-Z][a-z]{2}) (\d{1,2}), )?(\d{1,2})(?::(\d{2}))?([ap])m \(([\w/+-]+)\)"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def reset_of(record: Mapping[str, Any]) -> float | None:
    """As the transcript has it, in seconds since the epoch."""
    limits = record.get("quotaLimits")
    found = limits.get("resetsAt") if isinstance(limits, dict) else None
    at = finite(found)
    return at if at > 0 else None


def reset_in_words(text: str, now: float) -> float | None:
    """As the CLI says it, to the minute; None where it says nothing of the kind."""
    found = _WORDS.search(text)
    zone = _zone(found[6]) if found else None
    if found is None or zone is None:
        return None
    month, day, hour, minute, half, _ = found.groups()
    here = datetime.fromtimestamp(now, zone)
    try:
        at = here.replace(
            hour=int(hour) % 12 + 12 * (half == "p"), minute=int(minute or 0), second=0, microsecond=0
        )
        at = at.replace(month=_MONTHS.index(month) + 1, day=int(day)) if month else at
        # The minute that is named may be this one.
        if at + timedelta(minutes=1) <= here:
            at = at.replace(year=at.year + 1) if month else at + timedelta(days=1)
    except ValueError:
        return None
    return at.timestamp()


def _zone(name: str) -> Any:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # slow to load, and seldom wanted

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
