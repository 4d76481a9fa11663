"""A conversation as an agent recorded it: typed entries for people, and what each message used. Pure.

An agent's own parser makes these from its records. Text is as the agent wrote it: hostile, and not bounded
yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class EntryKind(StrEnum):
    PROMPT = "prompt"
    ANSWER = "answer"
    THINKING = "thinking"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    ERROR = "error"
    NOTICE = "notice"
    """What the agent noted itself: an interrupt, a command, a compaction."""
    USAGE = "usage"


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a message used. None: the agent does not say."""

    input: int | None = None
    """Neither read from nor written to the cache."""
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    id: str
    kind: EntryKind
    at: float | None = None
    text: str = ""
    tool: str | None = None
    call: str | None = None
    """The id of the tool call, of a call and of its result."""
    input: Mapping[str, Any] | None = None
    ok: bool | None = None
    """Of a result."""
    denied: bool | None = None
    diff: str | None = None
    """What a tool changed in a file, as a unified diff."""
    model: str | None = None
    tokens: Tokens | None = None
    subagent: bool = False


@dataclass(frozen=True, slots=True)
class MessageUsage:
    """What one message of a model used. Several records can report it: the last one counts."""

    id: str
    model: str
    tokens: Tokens
    at: float | None = None
    cost: float | None = None
    """In US dollars, where the agent says so itself."""
    subagent: bool = False


@dataclass(frozen=True, slots=True)
class TurnBegun:
    """A prompt: what is used after it belongs to this turn."""

    id: str
    at: float | None = None
