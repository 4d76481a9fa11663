"""The state of a session after all its events, and what it needs a human for. Pure.

The `rules` make it, event by event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from remuda.agents.state import State as AgentState

from .model import Activity, Reason, Source, Wait

RESTING = frozenset({Activity.STOPPED, Activity.FAILED, Activity.LIMITED})
OVER = frozenset({Activity.ENDED, Activity.DEAD})
_REASONS = {
    Activity.STOPPED: Reason.STOPPED,
    Activity.FAILED: Reason.API_ERROR,
    Activity.LIMITED: Reason.LIMITED,
    Activity.HUNG: Reason.HUNG,
    Activity.DEAD: Reason.DEAD,
}
_AGENT_STATES = {
    Activity.STARTED: AgentState.IDLE,
    Activity.WORKING: AgentState.THINKING,
    Activity.BACKGROUND: AgentState.IDLE,
    Activity.STOPPED: AgentState.IDLE,
    Activity.FAILED: AgentState.ERROR,
    Activity.LIMITED: AgentState.LIMITED,
    Activity.HUNG: AgentState.THINKING,
    Activity.ENDED: AgentState.DEAD,
    Activity.DEAD: AgentState.DEAD,
}
_SHOWN = (
    "tool",
    "input",
    "tool_use_id",
    "diff",
    "options",
    "suggestions",
    "at_terminal",
    "permission_mode",
    "subagent",
    "waiting_for",
)


@dataclass(frozen=True, slots=True)
class Ask:
    """A dialog that was opened. `key` identifies the call that it is about; empty if no source said which."""

    id: str
    key: str
    reason: Reason
    asked_at: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    ended_at: float | None = None
    proof: Mapping[str, Any] | None = None

    @property
    def tool_use_id(self) -> str | None:
        value = self.facts.get("tool_use_id")
        return value if isinstance(value, str) else None

    @property
    def detail(self) -> dict[str, Any]:
        return {name: self.facts[name] for name in _SHOWN if name in self.facts}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that has begun."""

    key: str
    tool: str
    at: float
    input: Mapping[str, Any] | None = None
    subagent: bool = False
    asks: Mapping[str, Any] | None = None
    """Reason, options and message of the dialog that the call opens, if it opens one."""


@dataclass(frozen=True, slots=True)
class SessionProjection:
    activity: Activity = Activity.SEEN
    """What it does, apart from open dialogs."""
    since: float = 0.0
    by: Source = Source.TIMING
    message: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)
    asks: tuple[Ask, ...] = ()
    shut_at: float = 0.0
    """No dialog was open at that time, by a source that sees whether a dialog is open, but not which."""
    calls: Mapping[str, ToolCall] = field(default_factory=dict)
    earlier: tuple[Mapping[str, Any], ...] = ()
    """What it said before it woke itself: no human has answered that."""
    unrepeated: tuple[tuple[str, float], ...] = ()
    """What its transcript reported last, and when: its hooks have not repeated that yet."""
    continued_at: float = 0.0
    dismissed_at: float = 0.0
    pid: int | None = None
    scripted: bool = False
    """A program started it and reads its answer or error: no human is needed for that."""
    hold: Ask | None = None
    """The budget that it has used up. It ends with a decision, and is dropped when messages flow again."""
    why: str = ""
    """The last change of state."""

    @property
    def open_asks(self) -> list[Ask]:
        return [ask for ask in self.asks if ask.ended_at is None and ask.asked_at > self.shut_at]

    @property
    def open_hold(self) -> Ask | None:
        is_open = self.hold is not None and self.hold.ended_at is None and self.activity not in OVER
        return self.hold if is_open else None

    @property
    def over_budget(self) -> str:
        """Return which budget it has used up, also after a human denied more; empty for none."""
        return "" if self.hold is None else str(self.hold.facts.get("over_budget") or "a budget is used up")

    @property
    def asking(self) -> Ask | None:
        """Return the dialog to answer first.

        A dialog that a human opens in an idle session is left to them.
        """
        if self.activity in OVER:
            return None
        bare = self.activity in RESTING
        open_asks = [ask for ask in self.open_asks if ask.key or not bare]
        return min(open_asks, key=lambda ask: (ask.asked_at, ask.id), default=None)

    @property
    def is_left_alone(self) -> bool:
        return self.activity is Activity.DEAD and "tries" in self.detail

    @property
    def state(self) -> Activity:
        return Activity.WAITING if self.asking else self.activity

    @property
    def agent_state(self) -> AgentState | None:
        """Return the state in the words of `remuda ls`; None while nothing is known."""
        if (ask := self.asking) is not None:
            is_question = ask.reason is Reason.QUESTION
            return AgentState.WAITING_ANSWER if is_question else AgentState.WAITING_PERMISSION
        if self.activity is Activity.STOPPED and self.detail.get("interrupted"):
            return AgentState.INTERRUPTED
        if self.activity in (Activity.WORKING, Activity.HUNG) and self.calls:
            return AgentState.TOOL_USE
        return _AGENT_STATES.get(self.activity)

    @property
    def state_since(self) -> float:
        return ask.asked_at if (ask := self.asking) else self.since

    def wait(self) -> Wait | None:
        """Return what it needs a human for; None if nothing."""
        wait = self._wait()
        return wait if wait is not None and wait.since > self.dismissed_at else None

    def _wait(self) -> Wait | None:
        if (ask := self.asking) is not None:
            more = len(self.open_asks) - 1
            detail = ask.detail | {"ask": ask.id} | ({"more": more} if more else {})
            detail |= {} if ask.key else {"at_terminal": True}  # there is nothing that could be decided
            detail |= {"over_budget": self.over_budget} if self.over_budget else {}
            return Wait(ask.reason, ask.asked_at, str(ask.facts.get("message", "")), detail)
        if (hold := self.open_hold) is not None and hold.asked_at > self.dismissed_at:
            message = str(hold.facts.get("message", ""))
            return Wait(Reason.BUDGET, hold.asked_at, message, hold.detail | {"ask": hold.id})
        reason = Reason.LEFT_ALONE if self.is_left_alone else _REASONS.get(self.activity)
        if reason is None or (self.scripted and reason is not Reason.HUNG):
            return None
        earlier = {"earlier": [dict(one) for one in self.earlier]} if self.earlier else {}
        return Wait(reason, self.since, self.message, dict(self.detail) | earlier)


# ── on disk ──

_STORED_NAMES = {"activity": "under", "unrepeated": "told"}
"""Fields that have another name in the database, which bosses of other versions read as well."""


def save(projection: SessionProjection) -> dict[str, Any]:
    """Return a JSON document from which `load` makes the same projection again."""
    plain = {
        _STORED_NAMES.get(one.name, one.name): getattr(projection, one.name) for one in fields(projection)
    }
    return plain | {
        "by": int(projection.by),
        "asks": [_save_ask(ask) for ask in projection.asks],
        "calls": {
            tool_use_id: {one.name: getattr(call, one.name) for one in fields(call)}
            for tool_use_id, call in projection.calls.items()
        },
        "earlier": list(projection.earlier),
        "hold": _save_ask(projection.hold) if projection.hold is not None else None,
    }


def _save_ask(ask: Ask) -> dict[str, Any]:
    return {one.name: getattr(ask, one.name) for one in fields(ask)}


def _load_ask(document: Mapping[str, Any]) -> Ask:
    return Ask(**{**document, "reason": Reason(document["reason"])})


def load(document: Mapping[str, Any]) -> SessionProjection:
    """Read what `save` made. Fields that a later version has added are dropped."""
    stored = {one.name: _STORED_NAMES.get(one.name, one.name) for one in fields(SessionProjection)}
    known = {name: document[key] for name, key in stored.items() if key in document}
    return SessionProjection(
        **known
        | {
            "activity": Activity(known["activity"]),
            "by": Source(known["by"]),
            "asks": tuple(_load_ask(ask) for ask in document["asks"]),
            "hold": _load_ask(document["hold"]) if document.get("hold") else None,
            "calls": {tool_use_id: ToolCall(**call) for tool_use_id, call in document["calls"].items()},
            "earlier": tuple(document["earlier"]),
            "unrepeated": tuple((str(words), float(at)) for words, at in document.get("told", ())),
        }
    )
