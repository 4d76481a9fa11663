"""Errors of Claude Code's service, and when its usage limits end: as hooks and transcript say it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from remuda.agents.events import Failure, TurnFailed
from remuda.duration import clamp_seconds
from remuda.untrusted import finite

_EPOCH = re.compile(r"\|(\d{10})\b")
_WAIT = re.compile(
    r"(?:try again|retry|resets?|wait)\D{0,20}(\d+)\s*"
    r"(s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?)\b",
    re.IGNORECASE,
)
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_KINDS = {
    "rate_limit": Failure.RATE_LIMITED,
    "overloaded": Failure.OVERLOADED,
    "server_error": Failure.OVERLOADED,
    "authentication_failed": Failure.AUTHENTICATION,
    "billing_error": Failure.AUTHENTICATION,
    "oauth_org_not_allowed": Failure.AUTHENTICATION,
    "invalid_request": Failure.INVALID,
    "model_not_found": Failure.INVALID,
}


def read_failure(
    name: object, text: str, at: float, *, prompt_id: str | None = None, left: float | None = None
) -> TurnFailed:
    """Return a failure. `name` is the CLI's word for it; `left` is how long the limit lasts, if known."""
    kind, retry_after = _kind(name, text), left or _delay(text)
    resets_at = None
    if kind is Failure.RATE_LIMITED:
        if found := _EPOCH.search(text):
            resets_at = float(found[1])
        elif retry_after is not None:
            resets_at = at + retry_after
        else:
            resets_at = reset_in_words(text, at)
    return TurnFailed(kind, text, prompt_id, retry_after, resets_at)


def _kind(name: object, text: str) -> Failure:
    known = _KINDS.get(str(name))
    if known is not None:
        return known
    found = re.search(r"API Error: (\d{3})", text)
    status = int(found[1]) if found else 0
    if status == 429:
        return Failure.RATE_LIMITED
    if status in (401, 403):
        return Failure.AUTHENTICATION
    if status >= 500:
        return Failure.OVERLOADED
    return Failure.INVALID if 400 <= status < 500 and status not in (408, 409) else Failure.OTHER


def _delay(text: str) -> float | None:
    found = _WAIT.search(text)
    return clamp_seconds(float(found[1]) * _SECONDS[found[2][0].lower()]) if found else None


# ── when a usage limit ends ──

# Seen on 2.1.325, with an account of claude.ai: a record of the transcript has the moment (`quotaLimits`).
# The hook has only words: "resets 5:11pm (UTC)", "resets Nov 17, 2pm (America/New_York)", in the zone of the
# machine, without seconds. A minute or more after that the CLI goes on by itself, unless a prompt came first.

_WORDS = re.compile(
    r"\bresets (?:at )?(?:([A-Z][a-z]{2}) (\d{1,2}), )?(\d{1,2})(?::(\d{2}))?([ap])m \(([\w/+-]+)\)"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def reset_of(record: Mapping[str, Any]) -> float | None:
    """Return when a limit ends by a record of the transcript, in seconds since the epoch."""
    limits = record.get("quotaLimits")
    found = limits.get("resetsAt") if isinstance(limits, dict) else None
    at = finite(found)
    return at if at > 0 else None


def reset_in_words(text: str, now: float) -> float | None:
    """Return when a limit ends by the words of the CLI, to the minute; None if they do not say."""
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
        # It may be the current minute.
        if at + timedelta(minutes=1) <= here:
            at = at.replace(year=at.year + 1) if month else at + timedelta(days=1)
    except ValueError:
        return None
    return at.timestamp()


def _zone(name: str) -> Any:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # slow to load, and rarely needed

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
