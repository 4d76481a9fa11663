"""Where the boss's files lie; see docs/files.md."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from remuda.paths import home


@dataclass(frozen=True, slots=True)
class BossFolder:
    path: Path

    @classmethod
    def default(cls) -> BossFolder:
        return cls(home() / "boss")

    @property
    def socket(self) -> Path:
        return self.path / "boss.sock"

    @property
    def lock(self) -> Path:
        """Locked while a boss lives; says which."""
        return self.path / "boss.pid"

    @property
    def token(self) -> Path:
        return self.path / "token"

    @property
    def database(self) -> Path:
        return self.path / "boss.db"

    @property
    def log(self) -> Path:
        return self.path / "boss.log"

    @property
    def spool(self) -> Path:
        """Events that were told while no boss ran."""
        return self.path / "spool"
