"""Where copilot keeps its files (1.0.102)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

HOME_VARIABLE = "COPILOT_HOME"
_LOCK_BEGIN, _LOCK_END = "inuse.", ".lock"


def copilot_home(env: Mapping[str, str]) -> Path:
    return Path(env.get(HOME_VARIABLE) or Path(env.get("HOME") or "/") / ".copilot")


def sessions_folder(env: Mapping[str, str]) -> Path:
    return copilot_home(env) / "session-state"


def is_id(session_id: object) -> bool:
    """Return whether this can be the name of a folder there: an id comes from outside."""
    return (
        isinstance(session_id, str)
        and 0 < len(session_id) <= 128
        and all(character.isalnum() or character in "-_" for character in session_id)
    )


def events_file(env: Mapping[str, str], session_id: object) -> Path | None:
    """Return the transcript of a conversation, also before it exists; None for what is not an id."""
    return sessions_folder(env) / str(session_id) / "events.jsonl" if is_id(session_id) else None


def conversation_of(env: Mapping[str, str], pid: int) -> str | None:
    """Return the conversation that a running agent has open.

    The lock stays after a SIGKILL. A later process with the same pid makes the newest one.
    """
    found: list[tuple[int, str]] = []
    try:
        with os.scandir(sessions_folder(env)) as folders:
            for folder in folders:
                lock = Path(folder.path) / f"{_LOCK_BEGIN}{pid}{_LOCK_END}"
                try:
                    found.append((lock.stat().st_mtime_ns, folder.name))
                except OSError:
                    continue
    except OSError:
        return None
    return max(found)[1] if found else None


def has_prompts(events: Path | None) -> bool:
    """Return whether a conversation has a prompt: an empty one cannot be resumed."""
    if events is None:
        return False
    try:
        with open(events, "rb") as file:
            return any(line.startswith(b'{"type":"user.message"') for line in file)
    except OSError:
        return False
