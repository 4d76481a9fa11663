"""What the status line says of the queue. Pure.

It tells three things apart: that nobody watches (`✗ down`), that nobody waits (nothing at all), and how many
wait, the longest since when (`⚠ 3 12m`).
"""

from __future__ import annotations

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def segment(waiting: int | None, age: float | None = None, *, styled: bool = True) -> str:
    """`waiting` is None when the boss is down; `age` is how long the first has waited, in seconds."""
    if waiting is None:
        return _in("fg=red", "✗ down", styled)
    if waiting == 0:
        return ""
    since = f" {_short(age)}" if age is not None else ""
    return _in("fg=yellow,bold", f"⚠ {waiting}{since}", styled)


def _in(style: str, text: str, styled: bool) -> str:
    return f"#[{style}]{text}#[default]" if styled else text


def _short(age: float) -> str:
    """In one unit: it is read at a glance, and every second of change would be a redraw."""
    if age < _MINUTE:
        return "<1m"
    if age < _HOUR:
        return f"{age // _MINUTE:.0f}m"
    if age < _DAY:
        return f"{age // _HOUR:.0f}h"
    return f"{age // _DAY:.0f}d"
