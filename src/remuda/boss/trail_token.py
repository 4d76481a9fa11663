"""The token that Trail Boss's own clients carry in their address.

They can send no header. So it stands in a path, where other processes of the user may see it, and it is good
for Trail Boss's endpoints alone.
"""

from __future__ import annotations

import logging
import os
import secrets
from pathlib import Path

from remuda.admission.credentials import load_token
from remuda.durable import replace_file
from remuda.errors import FolderUnusable, RemudaError

log = logging.getLogger("remuda.boss.trail_token")


class TokenFile:
    """A token in a file of its own. It is read again when the file has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = ""
        self._seen: tuple[int, int] | None = None

    def load(self) -> str:
        """The token; it is made when there is none. Raises `FolderUnusable`, `InvalidOptions`."""
        return load_token(self._path)

    def current(self) -> str:
        """The token as it is now; empty, which nothing matches, where the file is gone or cannot be used."""
        try:
            found = os.stat(self._path)
        except OSError:
            self._token, self._seen = "", None
            return ""
        seen = (found.st_ino, found.st_mtime_ns)
        if seen != self._seen:
            try:
                self._token = load_token(self._path)
            except RemudaError as error:
                log.warning("clients of Trail Boss are refused: %s", error)
                self._token = ""
            self._seen = seen
        return self._token

    def renew(self) -> str:
        """Put a new one in its place: the old one opens nothing any more."""
        try:
            replace_file(self._path, secrets.token_urlsafe(32).encode() + b"\n")
        except OSError as error:
            raise FolderUnusable(f"cannot write {self._path}: {error.strerror}") from error
        return self.load()
