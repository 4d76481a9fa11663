"""Errors of Claude Code's service, as its hooks and its transcript word them. Pure."""

from __future__ import annotations

import re

from remuda.agents.events import Failure, TurnFailed
from remuda.duration import clamp_seconds

from .limit import reset_in_words

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
    """`name` is the CLI's word for it, `left` how long the limit lasts where the record says so."""
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
