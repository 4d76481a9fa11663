"""The processes that a session's program has, and which of them came with its last prompt."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from remuda.proctree import descendants, start_ticks

_COMMAND_CHARACTERS = 200
_MOST_TOLD = 16


class Household:
    """A keeper adopts its program's orphans, so that all of them are its own descendants.

    What comes before the first tool of a prompt is not of the prompt's making: servers of tools, say, that
    take their time to come up.
    """

    def __init__(self) -> None:
        self._before: set[tuple[int, str | None]] = set()
        self._tools = False

    def prompted(self) -> None:
        self._tools = False

    def tool_begins(self) -> None:
        """The agent waits for us before it begins."""
        if not self._tools:
            self._tools = True
            self._before = {(pid, start_ticks(pid)) for pid in descendants(os.getpid())}

    def newcomers(self) -> list[dict[str, Any]]:
        """Who lives now and came with the last prompt; the first of them, when they are many."""
        if not self._tools:
            return []
        living = descendants(os.getpid(), surely=True)
        new = [pid for pid in living if (pid, start_ticks(pid)) not in self._before]
        return [{"pid": pid, "command": _command(pid)} for pid in new[:_MOST_TOLD]]


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return ""
    return words.decode(errors="replace").strip()[:_COMMAND_CHARACTERS]
