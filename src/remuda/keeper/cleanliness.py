"""What would reach the next conversation of a session that is cleared, for callers that use it again.

Also the processes of the session's program, and which of them started since its last prompt.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.agents.base import Observer
from remuda.agents.progress import Progress
from remuda.agents.prompting import PromptProtocol
from remuda.proctree import children, descendants, start_ticks

if TYPE_CHECKING:
    from .session import Session

# ── processes ──

_COMMAND_CHARACTERS = 200
_MAX_LISTED = 16


class ProcessTracker:
    """Tracks the descendants of the keeper, which adopts the orphans of its program.

    Processes that start before the first tool of a prompt do not count as the prompt's: tool servers, for
    example, take their time to start.
    """

    def __init__(self) -> None:
        self._before: set[tuple[int, str | None]] = set()
        self._has_used_tool = False

    def prompted(self) -> None:
        self._has_used_tool = False

    def tool_started(self) -> None:
        """Note the processes that run now. The agent waits for us before its tool begins."""
        if not self._has_used_tool:
            self._has_used_tool = True
            self._before = {(pid, start_ticks(pid)) for pid in descendants(os.getpid())}

    def started_since_prompt(self) -> list[dict[str, Any]]:
        """Return the processes that run now and started since the last prompt; the first 16 of them."""
        if not self._has_used_tool:
            return []
        living = descendants(os.getpid(), surely=True)
        new = [pid for pid in living if (pid, start_ticks(pid)) not in self._before]
        return [{"pid": pid, "command": _command(pid)} for pid in new[:_MAX_LISTED]]


def left_running(program: int) -> list[str]:
    """Return what the program started and left running on its own, in words. Linux only.

    The keeper adopts it then. What the program still has as a child of its own is its business.
    """
    return [f"{_command(pid) or 'a process'} (pid {pid})" for pid in children(os.getpid()) if pid != program]


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return ""
    return words.decode(errors="replace").strip()[:_COMMAND_CHARACTERS]


# ── everything together ──


class Cleanliness:
    def __init__(
        self, session: Session, observer: Observer, progress: Progress, prompts: PromptProtocol
    ) -> None:
        self._session = session
        self._progress = progress
        self._observer = observer
        self._prompts = prompts
        self._first_mode: str | None = None

    def hook(self) -> None:
        self._first_mode = self._first_mode or self._observer.permission_mode

    def document(self) -> dict[str, Any]:
        session = self._session
        screen = session.screen
        composer = None
        if screen is not None:
            composer = self._prompts.composer(screen.lines(), lambda y: screen.styled_row(y, screen.cols))
        return {
            "typed": session.keyboard.typed_at > float("-inf"),
            "composer": None if composer is None else str(composer.kind),
            "stashed": composer is not None and composer.stash_taken,
            "permission_mode": self._observer.permission_mode,
            "first_permission_mode": self._first_mode,
            "residue": list(self._progress.carry_over),
            "processes": session.processes.started_since_prompt(),
        }
