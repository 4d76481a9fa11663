"""Find the terminal of a conversation that a shared server runs (`agents/sources.SharedTerminals`).

The hooks of such an agent do not name the terminal. It is known only if no other can be meant: the terminal
whose command names the conversation, else the only one in its folder, else the only one there that was
started just before the conversation. A guess would lead a human to another agent.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from remuda.agents.sources import SharedTerminals
from remuda.proctree import command_lines, folder_of, variable_of

from .processes import started_at

_FIRST_MOMENTS = 30.0
"""Seconds in which a terminal makes its conversation. 4.5 s were seen where it started the server too."""
_CLOCK_SLACK = 1.0


@dataclass(frozen=True, slots=True)
class OpenTerminal:
    pid: int
    folder: str
    conversation: str = ""
    """The one that its command names, if any."""
    started_at: float | None = None


def list_terminals(kind: SharedTerminals) -> list[OpenTerminal]:
    """Return the terminals that no keeper started. Blocking."""
    found = []
    for pid, words in command_lines():
        named = kind.conversation_of(words)
        if named is None or variable_of(pid, "REMUDA_SESSION"):
            continue
        own = folder_of(pid)
        if own is not None:
            folder = os.path.realpath(os.path.join(own, kind.folder_of(words) or ""))
            found.append(OpenTerminal(pid, folder, named, started_at(pid)))
    return found


def choose_terminal(
    terminals: Sequence[OpenTerminal], session_id: str, folder: str, began: float | None
) -> OpenTerminal | None:
    """Return the terminal that shows a conversation; None unless only one can be meant. Pure."""
    named = [one for one in terminals if one.conversation == session_id]
    if named:
        return named[0] if len(named) == 1 else None
    there = [one for one in terminals if one.folder == folder]
    if len(there) > 1:
        there = [one for one in there if not one.conversation and _made(one, began)]
    return there[0] if len(there) == 1 else None


def _made(terminal: OpenTerminal, began: float | None) -> bool:
    if began is None or terminal.started_at is None:
        return False
    return -_CLOCK_SLACK <= began - terminal.started_at <= _FIRST_MOMENTS
