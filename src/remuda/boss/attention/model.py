"""What the boss knows, as data: sessions, what each waits for, permission requests. Pure.

A `BossSession` is one conversation of an agent, wherever it runs. While it needs a human there is exactly one
open `Item` for it in the queue. A permission request is an `Approval` as well. Only the rules
(`boss/attention/rules`) make them, from `Event`s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any

from remuda.agents import DEFAULT_AGENT
from remuda.agents.attention import Event, EventKind, digest
from remuda.agents.state import Source

__all__ = [
    "UNDECIDED",
    "Activity",
    "Approval",
    "ApprovalState",
    "BossSession",
    "Event",
    "EventKind",
    "Item",
    "Origin",
    "Reason",
    "Source",
    "Wait",
    "digest",
    "document",
]

UNDECIDED = "undecided"
"""Why a request ended (`why` of ASK_ENDED) whose dialog opens in the terminal then."""


class Origin(StrEnum):
    """How a session is known to us; if in several ways, the one that says most."""

    KEPT = "kept"
    BACKGROUND = "background"
    HOOKS = "hooks"
    REGISTRY = "registry"
    TMUX = "tmux"


class Activity(StrEnum):
    SEEN = "seen"
    """It runs, and nothing is known about what it does."""
    STARTED = "started"
    """It has not got a prompt yet."""
    WORKING = "working"
    BACKGROUND = "background"
    """It stopped, and what it started in the background will wake it."""
    WAITING = "waiting"
    """A dialog is open."""
    STOPPED = "stopped"
    FAILED = "failed"
    LIMITED = "limited"
    HUNG = "hung"
    ENDED = "ended"
    DEAD = "dead"


class Reason(StrEnum):
    """Why a human is needed."""

    STOPPED = "stopped"
    PERMISSION = "permission"
    QUESTION = "question"
    PLAN = "plan"
    API_ERROR = "api_error"
    LIMITED = "limited"
    HUNG = "hung"
    DEAD = "dead"
    LEFT_ALONE = "left_alone"
    """It ended again and again, and is not restarted any more."""
    BUDGET = "budget"
    """It has used up a budget, and gets no more messages."""


@dataclass(frozen=True, slots=True)
class BossSession:
    """One conversation. `id` is the agent's own, or one of ours for an agent that has none."""

    id: str
    origin: Origin = Origin.HOOKS
    agent: str = DEFAULT_AGENT
    name: str | None = None
    """Of a kept session."""
    pane: str | None = None
    tmux: str | None = None
    """The socket of the pane's tmux server; None for the user's default one."""
    pid: int | None = None
    cwd: str | None = None
    repo: str | None = None
    transcript_path: str | None = None
    entrypoint: str | None = None
    title: str | None = None
    state: Activity = Activity.SEEN
    since: float = 0.0
    """When that state began."""
    first_seen: float = 0.0
    last_seen: float = 0.0
    ended: float | None = None
    replaced_by: str | None = None
    """The session that has its pane, process or name now: this one is gone."""
    dated: Mapping[str, float] = field(default_factory=dict)
    """When each of the above was last reported. Older reports do not count."""


@dataclass(frozen=True, slots=True)
class Wait:
    """What a session needs a human for, according to its events."""

    reason: Reason
    since: float
    message: str = ""
    """The agent's complete last message."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """tool, input, diff, options, until, error, ask…: everything needed to decide."""


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of the queue."""

    id: str
    session_id: str
    reason: Reason
    since: float
    message: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)
    skip_until: float | None = None
    skipped_at: float | None = None
    """It comes after those that were waiting at that time."""
    snooze_until: float | None = None
    resolved_at: float | None = None
    resolution: str | None = None
    """working, prompted, answered, ended, dead, dismissed, replaced, moved_on."""

    @property
    def place(self) -> tuple[float, str]:
        """Return the sort key of the queue."""
        return (max(self.since, self.skipped_at or 0.0), self.id)

    def is_shown(self, now: float) -> bool:
        return (
            self.resolved_at is None and now >= (self.skip_until or 0.0) and now >= (self.snooze_until or 0.0)
        )


class ApprovalState(StrEnum):
    OPEN = "open"
    ANSWERED = "answered"
    ENDED = "ended"
    """It was decided in the terminal, or its turn is over."""


@dataclass(frozen=True, slots=True)
class Approval:
    """A permission request: what exactly is requested, who decided, and what happened then."""

    id: str
    session_id: str
    reason: Reason
    tool: str
    input: Mapping[str, Any]
    asked_at: float
    tool_use_id: str | None = None
    suggestions: tuple[Any, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)
    refuses: Mapping[str, str] = field(default_factory=dict)
    """Decisions that its agent cannot take, each with a sentence (`agents/permission.Refusals`)."""
    expires_at: float | None = None
    state: ApprovalState = ApprovalState.OPEN
    answer: Mapping[str, Any] | None = None
    by: str | None = None
    at: float | None = None
    """When it was decided, or ended."""
    delivered_at: float | None = None
    proof: Mapping[str, Any] | None = None
    """What is known about what happened then: the tool ran or was denied, and which source says so."""


def document(value: Any) -> Any:
    """Return a JSON document of any of the above."""
    if is_dataclass(value):
        return {one.name: document(getattr(value, one.name)) for one in fields(value) if one.name != "dated"}
    if isinstance(value, tuple | list):
        return [document(one) for one in value]
    return dict(value) if isinstance(value, Mapping) else value
