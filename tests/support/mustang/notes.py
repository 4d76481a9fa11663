"""What the invented agent says, as events: its hooks and its server send the same notes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.agents.events import (
    AgentEvent,
    CommandRun,
    CommandUnknown,
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
from remuda.agents.prompting import Past
from remuda.agents.state import Source

Note = Mapping[str, Any]


def read_note(note: Note) -> Report:
    known = {"session_id": note["trail"], "transcript_path": note["path"]}
    return Report(
        Source.HOOK,
        str(note["gait"]),
        tuple(_events(note)),
        session_id=note["trail"],
        conversation=known,
        permission_mode="reined",
    )


def _events(note: Note) -> list[AgentEvent]:  # noqa: C901  # one case for each gait
    turn, words = note.get("turn"), str(note.get("words", ""))
    match note["gait"]:
        case "met":
            return _met(note)
        case "asked":
            return [PromptSubmitted(words, turn)]
        case "marked":
            return [PromptRecorded(words, turn, note["trail"])]
        case "spoke":
            return [TextShown(turn, 0, words, final=True)]
        case "kicks":
            return [ToolStarted(note["tool"], note["input"], note["kick"])]
        case "balked":
            return [PermissionRequested(note["tool"], note["input"], prompt_id=turn, id=note["kick"])]
        case "reined":
            return [PermissionDecided(note["kick"])]
        case "landed":
            result = ToolOutput(note["kick"], note["tool"], words)
            return [ToolFinished(note["kick"], ok=note["ok"], tool=note["tool"]), ToolsFinished((result,))]
        case "stood":
            usage = {"input_tokens": note["oats"], "output_tokens": 1}
            message = MessageRecorded(str(turn), usage, words, final=True)
            return [message, TurnStopped(words, turn, conversation=note["trail"]), TurnRecorded()]
        case "halted":
            return [TurnInterrupted(turn)]
        case "fell":
            return [TurnFailed(Failure.INVALID, words, turn)]
        case "grazed":
            run = CommandRun(note["word"], confirmed=True, conversation=note["trail"])
            return [ConversationStarted("clear"), run]
        case "snorted":
            return [CommandUnknown(note["word"])]
    return []


def _met(note: Note) -> list[AgentEvent]:
    """What goes on now. A turn that ran when its server died was halted by that."""
    found: list[AgentEvent] = [ConversationStarted("resume" if note["last"] else "startup")]
    if note["end"] in ("halt", "cut"):
        found.append(TurnInterrupted(note["last"]))
    return found


def read_past(answer: Note) -> Past:
    """What the answer to a search says."""
    if answer["turn"] is None:
        return Past()
    end = answer["end"]
    return Past(True, end == "say", str(answer["words"]), answer["turn"], end == "halt")
