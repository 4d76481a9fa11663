"""The transcript of a call while the agent writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]


class Tail:
    """The records of one turn, from its prompt on, as they are appended. Unfinished lines wait."""

    def __init__(self, path: Path, prompt_id: str | None) -> None:
        self._path = path
        self._prompt_id = prompt_id
        self._offset = 0
        self._rest = b""
        self._begun = False

    def read(self) -> list[Record]:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [record for line in lines if (record := self._ours(line)) is not None]

    def _ours(self, line: bytes) -> Record | None:
        try:
            record = json.loads(line)
        except ValueError:
            return None
        if not isinstance(record, dict):
            return None
        if not self._begun and record.get("type") == "user":
            self._begun = self._prompt_id is None or record.get("promptId") == self._prompt_id
        return record if self._begun else None
