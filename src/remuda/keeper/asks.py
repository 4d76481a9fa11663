"""Permission requests that clients may decide: all watching clients get each, and the first answer counts.

The agent's hook, or its request over the call channel, is held open until then. Its dialog is on the terminal
too, and a human there may answer it. A client that connects later gets the open requests with `asks`. After
the timeout of the hook, only the terminal can answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from remuda.agents.events import Report
from remuda.agents.permission import (
    PermissionDecision,
    PermissionRequest,
    PermissionTracker,
    Refusals,
    RequestsEnded,
    check_refusals,
)
from remuda.errors import AlreadyAnswered, InvalidOptions, ProtocolError
from remuda.frozen import replaced

if TYPE_CHECKING:
    from remuda.agents.base import Agent

    from .call import CallLink

log = logging.getLogger("remuda.keeper.asks")


@dataclass(frozen=True, slots=True)
class CallDecision:
    """A decision for an agent that is called. A hook gets a document instead."""

    request: PermissionRequest
    decision: PermissionDecision


def decide_call(
    link: CallLink,
    refusals: Callable[[PermissionRequest], Refusals],
    request: PermissionRequest,
    decision: PermissionDecision,
) -> CallDecision:
    """Return a decision for a call. Raises `InvalidOptions` for one that the agent cannot take."""
    # How much an agent allows with "always" is for people to weigh: a program that says it means it.
    check_refusals(refusals, request, replaced(decision, always=False))
    link.check_decision(request, decision)
    return CallDecision(request, decision)


def refusals_of(agent: Agent, request: PermissionRequest) -> Refusals:
    from remuda.agents.sources import find_refusals

    sources = agent.sources
    return find_refusals(sources.permissions if sources is not None else None, request)


_REMEMBERED = 64
_TEXT_CHARACTERS = 1 << 18


@dataclass(slots=True)
class _Open:
    id: str
    request: PermissionRequest
    at: float
    answer: asyncio.Future[Any]
    refuses: Refusals
    dialog: bool = False
    """Whether the agent has shown its dialog since."""

    def document(self) -> dict[str, Any]:
        request = self.request
        return {
            "id": self.id,
            "tool": request.tool,
            "input": dict(request.input),
            "suggestions": [dict(one) for one in request.suggestions],
            "tool_use_id": request.tool_use_id,
            "reason": request.reason,
            "cwd": request.cwd,
            "at": round(self.at, 3),
            "refuses": dict(self.refuses),
        }


class Asks:
    """`decide` turns a decision into what the agent gets. `tell` reports to clients; `wall` is the clock.

    `refusals` says which decisions on a request the agent cannot take: clients offer what is left.
    """

    def __init__(
        self,
        decide: Callable[[PermissionRequest, PermissionDecision], dict[str, Any] | CallDecision],
        tell: Callable[[dict[str, Any]], None],
        wall: Callable[[], float],
        refusals: Callable[[PermissionRequest], Refusals],
    ) -> None:
        self._decide = decide
        self._tracker = PermissionTracker()
        self._tell = tell
        self._wall = wall
        self._refusals = refusals
        self._open: dict[str, _Open] = {}
        self._closed: deque[tuple[str, str]] = deque(maxlen=_REMEMBERED)
        self._waiting = False  # whether a dialog was open at the last report

    # ── what the agent reports ──

    def take(self, report: Report) -> asyncio.Future[Any] | None:
        """Take a report. Returns the future answer to a permission request; its result may be None."""
        waiting = self._tracker.is_waiting(report)
        if waiting is not None:
            self._dialog_shown(waiting)
        found = self._tracker.take(report)
        if isinstance(found, PermissionRequest):
            return self._ask(found)
        if isinstance(found, RequestsEnded):
            self._close(found)
        return None

    def _dialog_shown(self, waiting: bool) -> None:
        """End requests whose dialog was shown and is gone: it was answered at the terminal.

        An earlier dialog may have closed at the same time. So only a dialog counts that was seen to open.
        """
        came = waiting and not self._waiting
        self._waiting = waiting
        for one in list(self._open.values()):
            if came:
                one.dialog = True
            elif not waiting and one.dialog:
                self._end(one, "the dialog was answered at the terminal")

    def _ask(self, request: PermissionRequest) -> asyncio.Future[Any]:
        request_id = f"a{uuid4().hex[:12]}"
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        one = self._open[request_id] = _Open(
            request_id, request, self._wall(), future, self._refusals(request)
        )
        future.add_done_callback(lambda done: self._given_up(one, done))
        log.info("%s requests permission for %s", request_id, request.tool)
        try:
            self._tell({"event": "ask", **one.document()})
        except (ProtocolError, ValueError, RecursionError) as error:
            log.warning("%s cannot be sent to clients: %s", request_id, error)
            self._end(one, "it cannot be sent to clients")
        return future

    def _close(self, found: RequestsEnded) -> None:
        for one in list(self._open.values()):
            if found.all or one.request.tool_use_id in found.ids:
                self._end(one, "it was answered at the terminal, or the turn has ended")

    def _given_up(self, one: _Open, done: asyncio.Future[Any]) -> None:
        if done.cancelled():
            self._end(one, "the agent is no longer waiting", undecided=True)

    def _end(self, one: _Open, why: str, *, undecided: bool = False) -> None:
        if self._open.pop(one.id, None) is None:
            return
        self._closed.append((one.id, why))
        if not one.answer.done():
            one.answer.set_result(None)
        log.info("%s: %s", one.id, why)
        more = {"undecided": True} if undecided else {}
        self._tell({"event": "ask_ended", "id": one.id, "why": why, **more})

    # ── what clients say ──

    def document(self) -> list[dict[str, Any]]:
        return [one.document() for one in self._open.values()]

    def answer(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Decide a request. Raises `AlreadyAnswered` if it was decided already, or is over."""
        decision = read_decision(args)
        one = self._open.get(str(args.get("id")))
        if one is None or one.answer.done():
            raise self._too_late(str(args.get("id")))
        one.answer.set_result(self._decide(one.request, decision))
        self._end(one, f"answered: {'allow' if decision.allow else 'deny'}")
        return {"id": one.id, "tool": one.request.tool}

    def _too_late(self, request_id: str) -> AlreadyAnswered:
        why = dict(self._closed).get(request_id)
        return AlreadyAnswered(
            f"no permission request '{request_id}'"
            if why is None
            else f"permission request '{request_id}' is closed: {why}"
        )

    def close(self) -> None:
        for one in list(self._open.values()):
            self._end(one, "the session has ended")


def read_decision(args: Mapping[str, Any]) -> PermissionDecision:
    """Return the decision in the arguments of a client. Raises `InvalidOptions`."""
    behavior, given = args.get("behavior"), args.get("input")
    if behavior not in ("allow", "deny"):
        raise InvalidOptions(f"behavior must be allow or deny, not {behavior!r}")
    if given is not None and not isinstance(given, dict):
        raise InvalidOptions("input must be an object")
    message = args.get("message", "")
    if not isinstance(message, str) or len(message) > _TEXT_CHARACTERS:
        raise InvalidOptions(f"message must be a string of at most {_TEXT_CHARACTERS} characters")
    allow = behavior == "allow"
    wrong = [key for key in (("message", "interrupt") if allow else ("input", "always")) if args.get(key)]
    if wrong:
        raise InvalidOptions(f"{wrong[0]} cannot be combined with {behavior}")
    return PermissionDecision(allow, given, message, bool(args.get("interrupt")), bool(args.get("always")))
