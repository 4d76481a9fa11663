"""Texts and results as a model reads them: printable and bounded. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.agents.state import WAITING, State
from remuda.inbox.receipts import Trace
from remuda.untrusted import one_line, printable

from .rights import Caller

Document = dict[str, Any]
ANSWER_CHARACTERS = 100_000
LINE_CHARACTERS = 1000


def with_sender(caller: Caller, message: str, text: str, in_reply_to: str | None = None) -> str:
    """Return a prompt that says who sent it and how to reply. The first line is ours, so that the text stays
    data: it cannot begin with a command of the agent.
    """
    reply = "" if in_reply_to is None else f", in reply to your message {in_reply_to}"
    way = (
        f"; to reply before your turn ends: send with in_reply_to={message}"
        if caller.kind == "session"
        else ""
    )
    return f"[message {message} from {_who(caller)}{reply}{way}]\n{text}"


def with_sender_elsewhere(caller: Caller, host: str, text: str) -> str:
    """Return a prompt for a session of another host, from which no message leads back to the caller."""
    return f"[message from {_who(caller)} on host {host}]\n{text}"


def _who(caller: Caller) -> str:
    return f"session {caller.name}" if caller.kind == "session" else one_line(caller.label)


def shown_lines(lines: list[str]) -> list[str]:
    """Return lines of a terminal, without the empty ones at the end."""
    shown = [printable(line)[:LINE_CHARACTERS].rstrip() for line in lines]
    while shown and not shown[-1]:
        shown.pop()
    return shown


def document_elsewhere(one: Mapping[str, Any]) -> Document:
    """Return a session of another host, as the boss here knows it. Who started it is not known here."""
    session = one["session"]
    state, detail = session["agent_state"], session.get("detail") or ""
    if session["ended"]:
        state = "dead"
    if not one["reachable"]:
        state, detail = "unreachable", "its host cannot be reached"
    since = {} if one["reachable"] else {"unreachable_since": one["unreachable_since"]}
    return {
        "session": f"{one['host']}/{session['name']}",
        "agent": session["agent"],
        "state": state,
        "detail": one_line(str(detail))[:LINE_CHARACTERS],
        "folder": session["cwd"],
        "started_by": "not known",
        "needs_human": state in WAITING,
        **since,
    }


def waiting_elsewhere(one: Mapping[str, Any]) -> Document | None:
    """Return why a session of another host waits for a human; None if it does not."""
    item = one["item"]
    return item and {
        "session": f"{one['host']}/{one['session']['name']}",
        "reason": item["reason"],
        "since": item["since"],
        "message": printable(item["message"] or "")[: 4 * LINE_CHARACTERS],
        "requests": [],
        "note": "only the user can decide it",
    }


def cancel_document(cancelled: Mapping[str, Any]) -> Document:
    return {"outcome": cancelled["outcome"], "reason": cancelled["reason"]}


def receipt_document(session: str, trace: Trace) -> Document:
    document: Document = {
        "session": session,
        "message": trace.id,
        "stage": trace.stage,
        "ended": trace.ended,
        "steps": [{"stage": one.get("stage"), "at": one.get("at")} for one in trace.steps[-20:]],
    }
    if trace.reason:
        document["reason"] = one_line(trace.reason)[:LINE_CHARACTERS]
    if trace.ended:
        answer = str((trace.answer or {}).get("text") or "")
        document["answer"] = printable(answer)[:ANSWER_CHARACTERS]
        if len(answer) > ANSWER_CHARACTERS:
            document["cut"] = "the answer is longer: see the transcript"
    return document


def why_early(state: str) -> str:
    """Say why a wait returns before the end."""
    if state == State.WAITING_PERMISSION:
        return "it asks for a permission that the user must decide: tell the user, and see queue"
    if state == State.WAITING_ANSWER:
        return "it asks the user a question: tell the user, and see queue"
    if state == "unreachable":
        return "the session cannot be reached now; call wait again"
    return "the session has ended" if state == State.DEAD else "the time is over; call wait again"
