"""The files of the boss; see docs/reference/files.md."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from remuda.durable import open_regular
from remuda.errors import InvalidOptions
from remuda.frozen import frozen
from remuda.paths import home

_MOST_BYTES = 1 << 20


@frozen
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
        """Locked while a boss runs; holds its pid."""
        return self.path / "boss.pid"

    @property
    def token(self) -> Path:
        return self.path / "token"

    @property
    def trail_token(self) -> Path:
        """Return the file of the token for Trail Boss's own clients."""
        return self.path / "trail-boss-token"

    @property
    def push_key(self) -> Path:
        """Return the file of the key that signs notices to browsers."""
        return self.path / "push-key"

    @property
    def database(self) -> Path:
        return self.path / "boss.db"

    @property
    def log(self) -> Path:
        return self.path / "boss.log"

    @property
    def spool(self) -> Path:
        """Events that were reported while no boss was running."""
        return self.path / "spool"


def read_own(path: Path) -> bytes:
    """Return all of a file that decides in the user's place. Raises OSError as `open`.

    Raises `InvalidOptions` for a file that another user wrote or can write, and for one over 1 MiB.
    """
    with open(open_regular(path), "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid not in (os.getuid(), 0):
            raise InvalidOptions(
                f"{path} belongs to another user", hint=f"make it yours: chown {os.getuid()} {path}"
            )
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise InvalidOptions(
                f"other users can write {path}", hint=f"make it yours alone: chmod 600 {path}"
            )
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise InvalidOptions(f"{path} is larger than {_MOST_BYTES} bytes")
    return data
