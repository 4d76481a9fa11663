"""What happened in a session of some agent, in words of no agent: the events of the attention queue.

Pure. What is true of one CLI and of no other turns its hooks, files and records into these
(`agents/claude/attention`); the boss weighs them (`boss/attention/rules`).

`facts` are plain JSON values. Those that say which session it is may come with any event:

    pane, tmux      the tmux pane ("%3"), and the socket of its server
    pid             the agent's process
    name            of a kept session
    cwd, transcript_path, agent, entrypoint, title, origin, repo

and these belong to one kind or another:

    PROMPTED    prompt, prompt_id
    WORKING     continued (a hook did not let it stop), notice (woken by what ran in its background)
    STOPPED     message; background (tasks that go on and will wake it), shells (those that may run for ever)
    ASKED       reason ("permission", "question", "plan"), tool, input, suggestions, options, diff,
                prompt_id (of the prompt that led to it)
    ASK_ENDED   ask (its id), or tool and input, or tool_use_id
    TOOL_BEGAN  tool, input or digest, tool_use_id, subagent; asks (reason, options and message of the dialog
                that the call opens)
    TOOL_RAN    the same, and ok; denied (it did not run), without which one that is not ok counts as such
    FAILED      message, error
    LIMITED     message, error, until (seconds since the epoch)
    REGISTERED  how ("startup", "resume", "clear", "fork")
    ENDED       why ("clear", "logout", "other"…)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from .state import Source


class EventKind(StrEnum):
    REGISTERED = "registered"
    """A conversation begins, or goes on in this process: nothing has been asked of it yet."""
    PROMPTED = "prompted"
    """A human, or a program in his place, gave it something to do."""
    WORKING = "working"
    STOPPED = "stopped"
    ASKED = "asked"
    ASK_ENDED = "ask_ended"
    TOOL_BEGAN = "tool_began"
    TOOL_RAN = "tool_ran"
    """A tool's call is over: it ran, failed, or was denied."""
    FAILED = "failed"
    LIMITED = "limited"
    INTERRUPTED = "interrupted"
    HUNG = "hung"
    ENDED = "ended"
    """It said goodbye."""
    GONE = "gone"
    """Its process is no more."""
    DISMISSED = "dismissed"
    """A human wants to hear no more of what it waits for now."""
    SEEN = "seen"
    """It is there: nothing but what says which session it is."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at `at` (seconds since the epoch), told by `source`.

    `id` is the same for the same event, however often and by whatever way it comes; empty where nobody knows.
    """

    kind: EventKind
    session_id: str
    at: float
    source: Source = Source.HOOK
    id: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


_encode = json.JSONEncoder(sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode


def digest(tool: object, given: object) -> str:
    """The same for the same call of the same tool: a request for permission carries no id of its call."""
    return hashlib.sha256(_encode([tool, given]).encode()).hexdigest()[:24]
