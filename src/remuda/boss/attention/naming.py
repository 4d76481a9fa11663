"""What people call a session. Pure, and loads little: every command asks it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from remuda.untrusted import one_line

_BEGINNING = 8


def label(name: str | None, folder: str | None, session_id: str) -> str:
    """A kept session's name, else the folder that it works in, else the beginning of its id.

    Nothing in it does anything to a terminal.
    """
    text = name or (folder or "").rstrip("/").rpartition("/")[2] or session_id[:_BEGINNING]
    return one_line(text) or session_id[:_BEGINNING]


def beginnings(ids: Sequence[str]) -> dict[str, str]:
    """Of each id as much as tells it from the others."""
    size = _BEGINNING
    while len({one[:size] for one in ids}) < len(set(ids)):
        size += 1
    return {one: one[:size] for one in ids}


def distinct(labels: Mapping[str, str]) -> dict[str, str]:
    """By id: labels that several have are followed by the beginning of the id, which can be typed as well."""
    often = Counter(labels.values())
    begin = beginnings(list(labels))
    return {
        one: label if often[label] == 1 or begin[one] == label else f"{label} {begin[one]}"
        for one, label in labels.items()
    }
