"""What the terminal of an ACP session says to its keeper, as reports. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.agents.events import (
    AgentEvent,
    ConversationStarted,
    Failure,
    MessageRecorded,
    PermissionDecided,
    PermissionRequested,
    PromptRecorded,
    PromptSubmitted,
    Report,
    TextShown,
    ToolFinished,
    ToolOutput,
    ToolsFinished,
    ToolStarted,
    TurnFailed,
    TurnInterrupted,
    TurnRecorded,
    TurnStopped,
)
from remuda.agents.state import Source
from remuda.untrusted import as_object, as_objects

from .records import doubt_of

SECRET_VARIABLE = "REMUDA_ACP_SECRET"  # noqa: S105  # its name, not its value
NO_LOAD = "the agent cannot resume a conversation: it does not offer session/load"
RESUMABLE = "resumable"
"""In what is known of a conversation: "no" if the agent cannot resume it."""


def read_note(note: Mapping[str, Any]) -> Report | None:
    """Return what a note reports; None for one that is only for the eyes."""
    events = _events(note)
    mode = str(note.get("mode") or "") or None
    if not events and mode is None:
        return None
    conversation = str(note.get("conversation") or "")
    known = {
        "session_id": conversation,
        "transcript_path": str(note.get("transcript") or ""),
        "cwd": str(note.get("cwd") or ""),
    }
    if note.get("note") == "ready":
        known[RESUMABLE] = str(note.get(RESUMABLE) or "no")
    name = str(note.get("note"))
    return Report(
        Source.HOOK,
        name,
        tuple(events),
        session_id=conversation,
        conversation=known,
        permission_mode=mode,
    )


def _events(note: Mapping[str, Any]) -> list[AgentEvent]:
    turn, text, call = str(note.get("turn")), str(note.get("text") or ""), str(note.get("id"))
    tool = str(note.get("tool") or "")
    match note.get("note"):
        case "ready":
            return [ConversationStarted(str(note.get("how")))]
        case "began":
            return [PromptSubmitted(text, turn), PromptRecorded(text, turn, str(note.get("conversation")))]
        case "text":
            return [TextShown(f"{turn}:{note.get('block')}", _index(note), text)]
        case "tool":
            return [ToolStarted(tool, as_object(note.get("input")), call)]
        case "tool_ended":
            finished = ToolFinished(call, ok=note.get("ok") is True, tool=tool)
            return [finished, ToolsFinished((ToolOutput(call, tool, text),))]
        case "asked":
            reason, offers = str(note.get("reason")), as_objects(note.get("suggestions"))
            return [PermissionRequested(tool, as_object(note.get("input")), reason, offers, turn, call)]
        case "decided":
            return [PermissionDecided(call)]
        case "ended":
            return _ended(note, turn, text)
    return []


def _index(note: Mapping[str, Any]) -> int | None:
    index = note.get("index")
    return index if isinstance(index, int) else None


def _ended(note: Mapping[str, Any], turn: str, text: str) -> list[AgentEvent]:
    if note.get("how") == "interrupted":
        return [TurnInterrupted(turn)]
    if note.get("how") == "failed":
        # Not one that is tried again: nothing proves that the agent did none of it.
        kind = Failure.AUTHENTICATION if note.get("signed_out") is True else Failure.INVALID
        return [TurnFailed(kind, text, turn)]
    message = MessageRecorded(turn, as_object(note.get("usage")), text, final=True)
    stopped = TurnStopped(text, turn, conversation=str(note.get("conversation")), doubt=doubt_of(text))
    return [message, stopped, TurnRecorded()]
