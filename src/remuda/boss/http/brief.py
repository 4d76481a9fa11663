"""The beginning of long texts, so that lists stay small. Pure.

An agent's message may have 5 MB, and so may the input of a request. A list has their beginning if the client
asks for that, and names what was cut; the URL of the item or the request itself has everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .schema import Schema

MOST: Schema = {
    "type": "integer",
    "minimum": 200,
    "maximum": 1_000_000,
    "description": "characters of each long field; 'cut' of each document names the fields that had more",
}
_SHORT = 200
_VALUE = 8


def brief(document: dict[str, Any], fields: Iterable[str], most: int | None) -> dict[str, Any]:
    """Return the document with about `most` characters in each of these fields; None: with all.

    `cut` has the names of the fields that are not complete. Of an object the short values are kept first: an
    id must not be lost because a text before it is long.
    """
    if most is None:
        return document | {"cut": []}
    shown, cut = dict(document), []
    for name in fields:
        room = _Room(most)
        shown[name] = room.take(document[name])
        if room.left < 0:
            cut.append(name)
    return shown | {"cut": cut}


class _Room:
    """Counts the characters that are left; negative if something was cut."""

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, value: Any) -> Any:
        if isinstance(value, str):
            kept = value[: max(0, self.left)]
            self.left -= len(value)
            return kept
        if isinstance(value, Mapping):
            taken = {}
            for name in sorted(value, key=lambda one: _is_long(value[one])):
                self.left -= len(name) + _VALUE
                if self.left < 0:
                    break
                taken[name] = self.take(value[name])
            return {name: taken[name] for name in value if name in taken}
        if isinstance(value, list | tuple):
            rows = []
            for one in value:
                self.left -= _VALUE
                if self.left < 0:
                    break
                rows.append(self.take(one))
            return rows
        return value


def _is_long(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple) or (isinstance(value, str) and len(value) > _SHORT)
