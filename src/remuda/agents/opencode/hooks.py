"""What our plugin reports of an opencode that a user started: each payload as typed events. Pure.

`plugin.js` passes on the events of opencode with the session that they belong to: a subagent's are those of
the session that started it. `session.idle` has the last answer: its text, its error and how it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from remuda.agents.attention import agent_pid, pane_facts
from remuda.agents.events import (
    AgentEvent,
    ConversationEnded,
    Failure,
    PermissionDecided,
    PromptSubmitted,
    Report,
    StatusReported,
    TurnFailed,
    TurnInterrupted,
    TurnStopped,
)
from remuda.agents.state import Source
from remuda.untrusted import LONGEST_NAME, as_object, finite, name_at, text_at

from .messages import failure, limit
from .reader import EventReader

Facts = Mapping[str, Any]
_PATIENT_ATTEMPTS = 4
_ABORTED = "MessageAbortedError"


def read_hook(payload: Facts, at: float, env: Mapping[str, str]) -> Report:
    name, facts = str(payload.get("hook_event_name"))[:LONGEST_NAME], as_object(payload.get("properties"))
    session_id, cwd = name_at(payload, "session_id"), name_at(payload, "cwd")
    read = _READERS.get(name)
    return Report(
        Source.HOOK,
        name,
        tuple(read(facts, at)) if read is not None and session_id else (),
        session_id=session_id,
        pid=agent_pid(env),
        conversation={"cwd": cwd} if cwd else {},
        facts=pane_facts(env),
    )


def _prompt(facts: Facts, _at: float) -> Iterator[AgentEvent]:
    yield PromptSubmitted(text_at(facts, "prompt") or "", name_at(facts, "id"))


def _status(facts: Facts, at: float) -> Iterator[AgentEvent]:
    status = as_object(facts.get("status"))
    if status.get("type") != "retry":
        yield StatusReported("busy")
        return
    end = limit(status, None, at)
    if end.kind is Failure.RATE_LIMITED or finite(status.get("attempt")) >= _PATIENT_ATTEMPTS:
        yield TurnFailed(end.kind, end.text, None, end.retry_after, at + (end.retry_after or 0.0))


def _rest(facts: Facts, _at: float) -> Iterator[AgentEvent]:
    error = as_object(facts.get("error"))
    if error and error.get("name") != _ABORTED:
        yield failure(error, None)
    # As `messages.end_of` reads it: a turn that a person ended has no end of its own.
    elif error or facts.get("finish") in (None, "tool-calls"):
        yield TurnInterrupted()
    else:
        yield TurnStopped(text_at(facts, "text") or "")


def _failed(facts: Facts, _at: float) -> Iterator[AgentEvent]:
    error = as_object(facts.get("error"))
    yield TurnInterrupted() if error.get("name") == _ABORTED else failure(error, None)


def _asked(facts: Facts, _at: float) -> Iterator[AgentEvent]:
    yield from EventReader("").asked(facts)


def _questioned(facts: Facts, _at: float) -> Iterator[AgentEvent]:
    yield from EventReader("").questioned(facts)


def _decided(facts: Facts, _at: float) -> Iterator[AgentEvent]:
    yield PermissionDecided(str(facts.get("requestID"))[:LONGEST_NAME])


def _deleted(_facts: Facts, _at: float) -> Iterator[AgentEvent]:
    yield ConversationEnded("deleted")


_READERS: dict[str, Callable[[Facts, float], Iterator[AgentEvent]]] = {
    "chat.message": _prompt,
    "session.status": _status,
    "session.idle": _rest,
    "session.error": _failed,
    "session.deleted": _deleted,
    "permission.asked": _asked,
    "permission.replied": _decided,
    "question.asked": _questioned,
    "question.replied": _decided,
    "question.rejected": _decided,
}
