"""Permissions that an agent asks for: requests, decisions, and which requests are still open. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, cast

from remuda.errors import InvalidOptions
from remuda.untrusted import as_object, one_line

from .events import (
    ConversationEnded,
    PermissionDecided,
    PermissionRequested,
    Report,
    StatusReported,
    ToolFinished,
    ToolsFinished,
    ToolStarted,
    TurnFailed,
    TurnInterrupted,
    TurnStopped,
)
from .state import Source


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """A tool that the agent may not use by itself. A question to the user and a plan come the same way."""

    tool: str
    input: Mapping[str, Any]
    suggestions: Sequence[Mapping[str, Any]] = ()
    """Ways to be asked less, in the agent's own words."""
    tool_use_id: str | None = None
    reason: str = "permission"
    """Or "question", or "plan"."""
    cwd: str | None = None
    """The folder in which the tool would be used."""


@dataclass(frozen=True, slots=True)
class PermissionDecision:
    allow: bool
    input: Mapping[str, Any] | None = None
    """Used in place of what was requested."""
    message: str = ""
    """For the agent, with a denial."""
    interrupt: bool = False
    """With a denial: end the turn too."""
    always: bool = False
    """With an approval: do not ask again in this conversation."""


class Refusals(TypedDict, total=False):
    """Decisions that cannot be delivered, each with a sentence: why, and what works instead.

    What is not named can be delivered, as far as is known. A denial always can.
    """

    allow: str
    """Once; of a question: to answer it."""
    always: str
    edit: str
    """To allow another input."""
    message: str
    """With a denial, for the agent. The denial counts without it."""


_LONGEST_REFUSAL = 500


def read_refusals(value: object) -> Refusals:
    """Return what a keeper says it cannot deliver. One of before 0.3 does not say it: then nothing."""
    told = as_object(value)
    known = {name: told[name] for name in Refusals.__annotations__ if isinstance(told.get(name), str)}
    return cast("Refusals", {name: one_line(why[:_LONGEST_REFUSAL]) for name, why in known.items() if why})


def check_refusals(
    read: Callable[[PermissionRequest], Refusals], request: PermissionRequest, decision: PermissionDecision
) -> None:
    """Raise `InvalidOptions` for an approval that the agent cannot take. `read` says what it refuses."""
    if not decision.allow:
        return
    refused, given = read(request), decision.input
    if given is not None and dict(given) != dict(request.input) and request.reason != "question":
        if why := refused.get("edit"):
            raise InvalidOptions(why)
        # What the agent suggests is for the input that it asked for.
        refused = read(replace(request, input=given, suggestions=()))
    if why := refused.get("always") if decision.always else refused.get("allow"):
        raise InvalidOptions(why)


@dataclass(frozen=True, slots=True)
class RequestsEnded:
    """These calls are over, or all of them: the agent no longer waits for a decision."""

    ids: frozenset[str] = field(default_factory=frozenset)
    all: bool = False


class PermissionTracker:
    """Turns an agent's reports, in order, into requests and their ends.

    A request may carry no id of its call. The tool that started before it, with the same input, has the id.
    """

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, object]] = {}  # started and not finished: tool and input by id
        self._requested: set[str] = set()

    def take(self, report: Report) -> PermissionRequest | RequestsEnded | None:
        ended: set[str] = set()
        for event in report.events:
            match event:
                case ToolStarted() if report.source is Source.HOOK and event.id:
                    self._calls[event.id] = event.tool, event.input
                case PermissionRequested():
                    return self._request(event, report)
                case PermissionDecided():
                    ended.add(event.id)
                case ToolFinished() if event.id and (not event.denied or report.source is Source.TRANSCRIPT):
                    ended.add(event.id)
                case ToolsFinished():
                    ended |= {result.id for result in event.results}
                case TurnInterrupted() | ConversationEnded() | TurnStopped(background=()):
                    return self._end_all()  # what runs on in the background may ask, too
                case TurnFailed() if report.source is Source.HOOK:
                    return self._end_all()
        return self._end(ended) if ended else None

    def is_waiting(self, report: Report) -> bool | None:
        """Whether the agent says that a dialog is open; None if the report does not say."""
        found = [
            event.status for event in report.events if isinstance(event, StatusReported) and event.status
        ]
        return found[-1] == "waiting" if found else None

    def _request(self, event: PermissionRequested, report: Report) -> PermissionRequest:
        call_id = event.id or self._call_of(event)
        if call_id is not None:
            self._requested.add(call_id)
        inputs = event.input if isinstance(event.input, dict) else {}
        cwd = report.conversation.get("cwd")
        return PermissionRequest(event.tool, inputs, event.suggestions, call_id, event.reason, cwd)

    def _call_of(self, event: PermissionRequested) -> str | None:
        open_calls = [
            call_id
            for call_id, (tool, _) in self._calls.items()
            if tool == event.tool and call_id not in self._requested
        ]
        exact = [call_id for call_id in open_calls if self._calls[call_id][1] == event.input]
        return next(iter(exact or open_calls), None)

    def _end(self, ids: set[str]) -> RequestsEnded:
        for call_id in ids:
            self._calls.pop(call_id, None)
        self._requested -= ids
        return RequestsEnded(frozenset(ids))

    def _end_all(self) -> RequestsEnded:
        self._calls.clear()
        self._requested.clear()
        return RequestsEnded(all=True)
