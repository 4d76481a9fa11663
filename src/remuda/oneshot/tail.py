"""The transcript of a call while the agent writes it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.agents.claude.order import HOLD_SECONDS, InOrder
from remuda.durable import open_regular
from remuda.untrusted import parse_json

Record = Mapping[str, Any]


class Tail:
    """The records of one turn, from its prompt on, as they are appended. Unfinished lines wait."""

    def __init__(self, path: Path, prompt_id: str | None) -> None:
        self._path = path
        self._prompt_id = prompt_id
        self._offset = 0
        self._rest = b""
        self._begun = False
        self._order = InOrder()
        self._held_since: float | None = None

    def read(self) -> list[Record]:
        try:
            with open(open_regular(self._path), "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        records = [record for line in lines for record in self._in_order(line)]
        return [record for record in [*records, *self._overdue()] if self._is_ours(record)]

    def _in_order(self, line: bytes) -> Sequence[Record]:
        try:
            record = parse_json(line)
        except ValueError:
            return []
        return self._order.take(record) if isinstance(record, dict) else []

    def _overdue(self) -> Sequence[Record]:
        now = time.monotonic()
        if not self._order.holds:
            self._held_since = None
        elif self._held_since is None:
            self._held_since = now
        elif now - self._held_since >= HOLD_SECONDS:
            return self._order.flush()
        return []

    def _is_ours(self, record: Record) -> bool:
        if not self._begun and record.get("type") == "user":
            self._begun = self._prompt_id is None or record.get("promptId") == self._prompt_id
        return self._begun
