"""Sorts the records of a transcript: each after the record that it follows. Pure.

2.1.280 and 2.1.300 write the answer before the prompt that it answers in about half of all turns. A reader
that looks for the answer after the prompt finds none. But every record names the one that it follows
(`parentUuid`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

HOLD_SECONDS = 1.0
"""Seconds to wait for a record that others follow. Late records came within milliseconds."""
_KNOWN = 4096
_HELD = 64
# Records within a turn. A prompt follows the turn before, which a reader may not have seen.
_OF_A_TURN = ("assistant", "attachment")


class InOrder:
    """`take` returns the records that may be read now, each after the one that it follows.

    With `among`, no record waits for one that is not among those.
    """

    hold_seconds = HOLD_SECONDS

    def __init__(self, among: Iterable[Mapping[str, Any]] | None = None) -> None:
        uuids = {one.get("uuid") if isinstance(one.get("uuid"), str) else "" for one in among or ()}
        self._among = None if among is None else uuids
        self._known: dict[str, None] = {}
        self._held: list[dict[str, Any]] = []

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def take(self, record: dict[str, Any]) -> list[dict[str, Any]]:
        if self._waits(record):
            self._held.append(record)
            return self.flush() if len(self._held) > _HELD else []
        self._note(record)
        return [record, *self._freed()]

    def flush(self) -> list[dict[str, Any]]:
        """Return the held records in the order of the file: what they follow did not come."""
        held, self._held = self._held, []
        for record in held:
            self._note(record)
        return held

    def _waits(self, record: dict[str, Any]) -> bool:
        parent = record.get("parentUuid")
        if not isinstance(parent, str) or parent in self._known or record.get("isSidechain"):
            return False
        if self._among is not None and parent not in self._among:
            return False
        return record.get("type") in _OF_A_TURN or any(one.get("uuid") == parent for one in self._held)

    def _freed(self) -> Iterator[dict[str, Any]]:
        while found := next((one for one in self._held if one["parentUuid"] in self._known), None):
            self._held.remove(found)
            self._note(found)
            yield found

    def _note(self, record: dict[str, Any]) -> None:
        if isinstance(uuid := record.get("uuid"), str):
            self._known[uuid] = None
            if len(self._known) > _KNOWN:
                del self._known[next(iter(self._known))]


def in_order(records: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield all records of a transcript that is no longer written, sorted."""
    order = InOrder()
    for record in records:
        yield from order.take(dict(record))
    yield from order.flush()
