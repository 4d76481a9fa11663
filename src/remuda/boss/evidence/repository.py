"""Which repository a folder is in."""

from __future__ import annotations

import asyncio
from pathlib import Path

_REMEMBERED = 4096


class Repositories:
    """Looks beside the loop, as a folder may lie on a disk that does not answer, and once for each folder."""

    def __init__(self) -> None:
        self._found: dict[str, str | None] = {}

    def is_known(self, cwd: str) -> bool:
        return cwd in self._found

    def known(self, cwd: str) -> str | None:
        return self._found.get(cwd)

    async def find(self, cwd: str) -> str | None:
        """The folder of the repository; None for a folder in none."""
        if cwd not in self._found:
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[cwd] = None
            self._found[cwd] = await asyncio.to_thread(_find, cwd)
        return self._found[cwd]


def _find(cwd: str) -> str | None:
    try:
        folder = Path(cwd)
        for one in (folder, *folder.parents):
            if (one / ".git").exists():
                return str(one)
    except (OSError, ValueError):
        pass
    return None
