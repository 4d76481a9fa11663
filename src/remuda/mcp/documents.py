"""Texts and results as a model reads them: printable and bounded. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.agents.state import State
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
    who = f"session {caller.name}" if caller.kind == "session" else one_line(caller.label)
    reply = "" if in_reply_to is None else f", in reply to your message {in_reply_to}"
    way = (
        f"; to reply before your turn ends: send with in_reply_to={message}"
        if caller.kind == "session"
        else ""
    )
    return f"[message {message} from {who}{reply}{way}]\n{text}"


def shown_lines(lines: list[str]) -> list[str]:
    """Return lines of a terminal, without the empty ones at the end."""
    shown = [printable(line)[:LINE_CHARACTERS].rstrip() for line in lines]
    while shown and not shown[-1]:
        shown.pop()
    return shown


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
    return "the session has ended" if state == State.DEAD else "the time is over; call wait again"
