"""Session names: safe as file names, short enough for a socket path, easy to type."""

from __future__ import annotations

import re

from .arguments import shown
from .errors import BadName
from .patterns import pattern

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_NAME_BYTES = 64
_NAME = pattern(r"[A-Za-z0-9_][A-Za-z0-9._@+-]*", re.ASCII)


def is_name(text: str) -> bool:
    return len(text.encode("utf-8", "surrogatepass")) <= MAX_NAME_BYTES and _NAME.fullmatch(text) is not None


def check_name(name: str) -> str:
    """Return `name` if it can name a session, else raise `BadName` saying what is wrong with it."""
    if not isinstance(name, str):
        raise BadName(f"name must be a string, not {shown(name)}")
    if not name:
        raise BadName("a session needs a name", hint="for example: remuda start work -- bash")
    if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        raise BadName(f"session name is longer than {MAX_NAME_BYTES} bytes: {name[:32]!r}…")
    if not _NAME.fullmatch(name):
        raise BadName(
            f"{name!r} cannot name a session",
            hint="use a-z, A-Z, 0-9, '.', '_', '-', '@' and '+'; begin with a letter, digit or '_'",
        )
    return name


# ── near misses ──

_MOST_NEAR = 3


def near_names(word: str, known: Iterable[str]) -> list[str]:
    """Return those of `known` that `word` may be a typing mistake for, the most likely first."""
    word = word[:MAX_NAME_BYTES]
    most = max(1, len(word) // 3)
    near = [
        (far, name)
        for name in {*known}
        if abs(len(name) - len(word)) <= most and (far := _distance(word.lower(), name.lower())) <= most
    ]
    return [name for far, name in sorted(near) if far == min(near)[0]][:_MOST_NEAR]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question for a hint; empty when nothing known is near."""
    near = near_names(word, known)
    return "did you mean " + " or ".join(f"'{one}'" for one in near) + "?" if near else ""


def known_words(word: str, known: Iterable[str]) -> str:
    """Return a hint for a word that is not one of `known`: the near ones, else all."""
    known = list(known)
    return did_you_mean(word, known) or f"known: {', '.join(known)}"


def _distance(one: str, other: str) -> int:
    """Return how many letters must be inserted, removed, replaced or swapped with the next."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for y, left in enumerate(one, 1):
        before, last, row = row, before, [y]
        for x, right in enumerate(other, 1):
            cost = min(before[x] + 1, row[x - 1] + 1, before[x - 1] + (left != right))
            if y > 1 and x > 1 and left == other[x - 2] and right == one[y - 2]:
                cost = min(cost, last[x - 2] + 1)
            row.append(cost)
    return row[-1]
