"""Find the repository of a folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

_REMEMBERED = 4096


def find_repository(cwd: str) -> str | None:
    try:
        folder = Path(cwd)
        for one in (folder, *folder.parents):
            if (one / ".git").exists():
                return str(one)
    except (OSError, ValueError):
        pass
    return None


class Repositories:
    """Searches once for each folder, one at a time, each in a thread of its own: the folder may be on a disk
    that does not answer, and then only this thread waits.
    """

    def __init__(self, look: Callable[[str], str | None] = find_repository) -> None:
        self._look = look
        self._looking = asyncio.Lock()
        self._found: dict[str, str | None] = {}

    def is_known(self, cwd: str) -> bool:
        return cwd in self._found

    def known(self, cwd: str) -> str | None:
        return self._found.get(cwd)

    async def find(self, cwd: str) -> str | None:
        """Return the folder of the repository; None for a folder that is in none."""
        if cwd not in self._found:
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[cwd] = None
            self._found[cwd] = await self._find(cwd)
        return self._found[cwd]

    async def _find(self, cwd: str) -> str | None:
        async with self._looking:
            thread = ThreadPoolExecutor(1, "repository")
            try:
                return await asyncio.get_running_loop().run_in_executor(thread, self._look, cwd)
            finally:
                thread.shutdown(wait=False)
