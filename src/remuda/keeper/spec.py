"""What a keeper is told to keep. It travels through a pipe: arguments are public, environments are not."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

DEFAULT_COLS, DEFAULT_ROWS = 220, 50
DEFAULT_SCROLLBACK_BYTES = 65536
DEFAULT_KILL_GRACE = 5.0
DEFAULT_LOG_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """One session, complete: nothing is looked up elsewhere once its keeper runs."""

    name: str
    folder: str
    argv: list[str]
    cwd: str
    env: dict[str, str]
    agent: str = "simple"
    cols: int = DEFAULT_COLS
    rows: int = DEFAULT_ROWS
    size_policy: str = "latest"
    classifier: str = "simple"
    idle_threshold_ms: int | None = None
    debounce_ms: int | None = None
    scrollback_bytes: int = DEFAULT_SCROLLBACK_BYTES
    kill_group: bool = True
    kill_grace: float = DEFAULT_KILL_GRACE
    log_file: str | None = None
    log_level: str = "info"
    log_filter: str | None = None
    log_max_bytes: int = DEFAULT_LOG_BYTES
    record_file: str | None = None
    resume: bool = False
    facts: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, data: bytes) -> SessionSpec:
        return cls(**json.loads(data))

    @property
    def folder_path(self) -> Path:
        return Path(self.folder)
