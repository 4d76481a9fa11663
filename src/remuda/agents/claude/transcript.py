"""Claude Code's transcript: each record as a report of typed events. Pure.

This is the only reader of records for what an agent does (`print` translates records for its output).
No hook reports an interrupt, or a permission that was refused at the terminal: the transcript does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from remuda.agents.events import (
    AgentEvent,
    CommandRun,
    CommandUnknown,
    MessageRecorded,
    PromptRecorded,
    PromptRefused,
    Report,
    ToolFinished,
    ToolStarted,
    TurnContinued,
    TurnInterrupted,
    TurnRecorded,
)
from remuda.agents.prompting import Past, past_of_reports
from remuda.agents.state import Source
from remuda.duration import clamp_seconds
from remuda.untrusted import LONGEST_NAME, as_object, as_objects, epoch_at, name_at

from .asking import reason_of
from .failure import read_failure, reset_of
from .hooks import TASK_NOTICE
from .order import in_order

_FINAL = ("end_turn", "stop_sequence", "max_tokens", "refusal")
_INTERRUPTED = "[Request interrupted by user"
_FEEDBACK = "Stop hook feedback:"
# At its beginning only: a prompt may quote one.
_COMMAND_NAME = re.compile(
    r"\s*(?:<command-message>[^<]*</command-message>\s*)?<command-name>/?([^<]+)</command-name>"
    r"(?:.*?<command-args>(.*)</command-args>)?",
    re.DOTALL,
)
# What a command printed, as `/model`, and `/compact` of 2.1.315 and before; others have a `system` record.
_COMMAND_OUTPUT = re.compile(r"\s*<local-command-std(out|err)>(.*)</local-command-std\1>\s*", re.DOTALL)
_UNKNOWN_COMMAND = re.compile(r"Unknown command: /?(\S+)")
SIDECHAIN = "sidechain"

Record = Mapping[str, Any]


def read_record(record: Record, session_id: str | None = None) -> Report:
    """Report what a line of a transcript says. Of a subagent's line only the ends of its calls count.

    `session_id` is the conversation's, where the file is known to be of that one.
    """
    at, cwd = epoch_at(record, "timestamp"), name_at(record, "cwd")
    is_sidechain = bool(record.get("isSidechain"))
    events = [*_calls(record)]
    if is_sidechain:
        events = [one for one in events if isinstance(one, ToolFinished)]
    elif (event := _event(record, at or 0.0)) is not None:
        events.append(event)
    return Report(
        source=Source.TRANSCRIPT,
        name=str(record.get("type")),
        events=tuple(events),
        at=at,
        id=f"record:{record.get('uuid')}",
        session_id=session_id or name_at(record, "sessionId"),
        subagent=SIDECHAIN if is_sidechain else "",
        conversation={} if cwd is None else {"cwd": cwd},
    )


def _calls(record: Record) -> Iterator[AgentEvent]:
    for block in content_blocks(record):
        if block.get("type") == "tool_use":
            tool, given = str(block.get("name") or "")[:LONGEST_NAME], block.get("input")
            asks = reason_of(tool) != "permission" and isinstance(given, dict)
            yield ToolStarted(tool, given, name_at(block, "id") or "", asks)
        elif block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str):
            denied = bool(record.get("toolDenialKind"))
            yield ToolFinished(block["tool_use_id"], ok=not block.get("is_error"), denied=denied)


def _event(record: Record, at: float) -> AgentEvent | None:
    kind = record.get("type")
    if kind == "user" and any(text.startswith(_INTERRUPTED) for text in _texts(record)):
        return TurnInterrupted(name_at(record, "promptId"))
    if record.get("isMeta"):
        is_feedback = kind == "user" and _content(record).startswith(_FEEDBACK)
        return TurnContinued() if is_feedback else None
    if kind == "assistant":
        return _assistant(record, at)
    if kind == "system":
        return _system(record)
    # A summary with which the same turn continues is not a prompt.
    if kind != "user" or _is_tool_result(record) or record.get("isCompactSummary"):
        return None
    text = _content(record)
    if found := _COMMAND_NAME.match(text):
        return CommandRun(found[1], finished=False, arguments=(found[2] or "").strip())
    if found := _COMMAND_OUTPUT.fullmatch(text):
        return CommandRun("", output=found[2])
    notice = text.startswith(TASK_NOTICE)
    return PromptRecorded(text, name_at(record, "promptId"), name_at(record, "sessionId"), notice)


def reads_as_command(prompt: str) -> bool:
    """Return whether the record of a prompt looks as that of a command, or of what a command printed."""
    return bool(_COMMAND_NAME.match(prompt) or _COMMAND_OUTPUT.fullmatch(prompt))


def _assistant(record: Record, at: float) -> AgentEvent | None:
    message = record.get("message")
    if not isinstance(message, dict):
        return None
    if record.get("isApiErrorMessage"):
        name = record.get("error")
        if name is None and record.get("apiErrorStatus") == 429:
            name = "rate_limit"
        return read_failure(name, _content(record), at, left=_left(record))
    usage, message_id = message.get("usage"), message.get("id")
    if not message_id:
        return None
    return MessageRecorded(
        str(message_id), usage if isinstance(usage, dict) else {}, _content(record), _is_final(record)
    )


def _is_final(record: Record) -> bool:
    """Return whether a message ends a turn and is the model's own.

    If a resumed conversation lacks an answer, the CLI writes "No response requested." itself.
    """
    message = record.get("message")
    if not isinstance(message, dict) or record.get("isApiErrorMessage"):
        return False
    return message.get("model") != "<synthetic>" and message.get("stop_reason") in _FINAL


def _system(record: Record) -> AgentEvent | None:
    submitted = record.get("promptSubmitEnding")
    ending = submitted.get("ending") if isinstance(submitted, dict) else None
    if isinstance(ending, dict) and ending.get("kind") == "blocked_by_hook":
        return PromptRefused(str(ending.get("reason") or ""))
    subtype = record.get("subtype")
    if subtype == "informational" and (found := _UNKNOWN_COMMAND.match(str(record.get("content", "")))):
        return CommandUnknown(found[1])
    if subtype == "local_command":
        return CommandRun("")
    return TurnRecorded() if subtype == "turn_duration" else None


# ── a turn that was not followed ──


def read_past(records: Iterable[Record], prompt: str, since: float, same: Callable[[str, str], bool]) -> Past:
    """Return what happened to `prompt`, handed over at `since` or later. `same` compares two prompts."""
    return past_of_reports(map(read_record, in_order(records)), prompt, since, same)


# ── parts of a record ──


def _left(record: Record) -> float | None:
    """Return how long a limit lasts from the moment it was hit."""
    reset, met = reset_of(record), epoch_at(record, "timestamp")
    return clamp_seconds(reset - met) if reset is not None and met and reset > met else None


def _is_tool_result(record: Record) -> bool:
    return any(block.get("type") == "tool_result" for block in content_blocks(record))


def content_blocks(record: Record) -> list[dict[str, Any]]:
    """Return the content of a record's message, also of one that is only text."""
    content = as_object(record.get("message")).get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return as_objects(content)


def _texts(record: Record) -> list[str]:
    return [str(block["text"]) for block in content_blocks(record) if "text" in block]


def _content(record: Record) -> str:
    return "\n".join(_texts(record))
