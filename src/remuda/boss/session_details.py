"""What is known of sessions besides their events, in memory: keepers' own states, inboxes, usage.

Nothing here decides who waits. A change of it is published as a change of the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from remuda.agents.conversation import Tokens
from remuda.agents.state import State
from remuda.untrusted import finite, one_line

from .attention.model import EventKind
from .attention.session_index import SessionEntry

LAST_MESSAGE = 500
_WORDS = {
    EventKind.REGISTERED: State.IDLE,
    EventKind.PROMPTED: State.THINKING,
    EventKind.WORKING: State.THINKING,
    EventKind.STOPPED: State.IDLE,
    EventKind.TOOL_BEGAN: State.TOOL_USE,
    EventKind.TOOL_RAN: State.THINKING,
    EventKind.FAILED: State.ERROR,
    EventKind.LIMITED: State.LIMITED,
    EventKind.INTERRUPTED: State.INTERRUPTED,
    EventKind.ENDED: State.DEAD,
    EventKind.GONE: State.DEAD,
    EventKind.HUNG: State.THINKING,
}
_STATES = {str(state): state for state in State}


@dataclass(frozen=True, slots=True)
class SessionDetails:
    state: State | None = None
    """As its keeper judges it; None without a keeper."""
    since: float = 0.0
    source: str | None = None
    detail: str | None = None
    degraded: tuple[str, ...] = ()
    waiting: int | None = None
    """Messages in its inbox; None without an inbox."""
    held: str | None = None
    """Why they are not delivered now."""
    tokens: Tokens | None = None

    def with_state(self, document: Mapping[str, Any]) -> SessionDetails:
        """Take a state that a keeper reported."""
        return replace(
            self,
            state=_STATES.get(str(document.get("state"))),
            since=max(0.0, finite(document.get("since"))),
            source=str(document.get("source") or "") or None,
            detail=one_line(str(document.get("detail") or ""))[:LAST_MESSAGE] or None,
        )

    def without_keeper(self) -> SessionDetails:
        return SessionDetails(tokens=self.tokens)


NOTHING = SessionDetails()


def add_tokens(before: Tokens | None, added: Mapping[str, int | None]) -> Tokens:
    """Add up. What was never reported stays unknown."""
    now = before or Tokens()
    sums = {}
    for one in fields(Tokens):
        more, had = added.get(one.name), getattr(now, one.name)
        sums[one.name] = had if more is None else (had or 0) + more
    return Tokens(**sums)


def evidence_of(entry: SessionEntry, now: float) -> list[dict[str, Any]]:
    """Return the last event of each source as a row of evidence, as a keeper explains its own."""
    projection = entry.event_log.projection
    last = {event.source: event for event in entry.event_log.events if event.kind is not EventKind.SEEN}
    rows = []
    for source, event in sorted(last.items()):
        reason = event.facts.get("reason")
        state = _WORDS.get(event.kind, projection.agent_state)
        if event.kind is EventKind.ASKED:
            state = State.WAITING_ANSWER if reason == "question" else State.WAITING_PERMISSION
        said = event.facts.get("tool") or event.facts.get("message") or event.facts.get("why") or ""
        rows.append(
            {
                "source": source.label,
                "state": str(state or "unknown"),
                "age": round(max(0.0, now - event.at), 3),
                "detail": one_line(f"{event.kind} {said}")[:LAST_MESSAGE],
                "decides": source is projection.by,
                "counts": True,
            }
        )
    return rows
