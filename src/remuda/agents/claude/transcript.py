"""Claude Code's transcript: each record as a report of typed events, in the order in which they follow. Pure.

This is the only reader of records for what an agent does (`print` translates whole records for its output).
No hook reports an interrupt, or a permission that was refused at the terminal: the transcript does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
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
from remuda.agents.speech import Past
from remuda.agents.state import Source
from remuda.duration import clamp_seconds

from .asking import reason_of
from .failure import read_failure
from .hooks import TASK_NOTICE
from .limit import reset_of
from .order import in_order

_FINAL = ("end_turn", "stop_sequence", "max_tokens", "refusal")
_INTERRUPTED = "[Request interrupted by user"
_FEEDBACK = "Stop hook feedback:"
# At its beginning only: a prompt may quote one.
_COMMAND_NAME = re.compile(
    r"\s*(?:<command-message>[^<]*</command-message>\s*)?<command-name>/?([^<]+)</command-name>"
)
# What a command printed, as `/compact` of 2.1.315 and before; later versions have a `system` record for it.
_COMMAND_OUTPUT = re.compile(r"\s*<local-command-std(out|err)>.*</local-command-std\1>\s*", re.DOTALL)
_UNKNOWN_COMMAND = re.compile(r"Unknown command: /?(\S+)")
# A record may be dated a moment before we wrote that the prompt was handed over.
_CLOCK_SLACK = 2.0
SIDECHAIN = "sidechain"

Record = Mapping[str, Any]


def read_record(record: Record, session_id: str | None = None) -> Report:
    """Report what a line of a transcript says. Of a subagent's line only the ends of its calls count.

    `session_id` is the conversation's, where the file is known to be of that one.
    """
    at, cwd = _epoch(record), _text(record, "cwd")
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
        session_id=session_id or _text(record, "sessionId"),
        subagent=SIDECHAIN if is_sidechain else "",
        conversation={} if cwd is None else {"cwd": cwd},
    )


def _calls(record: Record) -> Iterator[AgentEvent]:
    for block in _blocks(record):
        if block.get("type") == "tool_use":
            tool, given = str(block.get("name") or ""), block.get("input")
            asks = reason_of(tool) != "permission" and isinstance(given, dict)
            yield ToolStarted(tool, given, _text(block, "id") or "", asks)
        elif block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str):
            denied = bool(record.get("toolDenialKind"))
            yield ToolFinished(block["tool_use_id"], ok=not block.get("is_error"), denied=denied)


def _event(record: Record, at: float) -> AgentEvent | None:
    kind = record.get("type")
    if kind == "user" and any(text.startswith(_INTERRUPTED) for text in _texts(record)):
        return TurnInterrupted(_text(record, "promptId"))
    if record.get("isMeta"):
        is_feedback = kind == "user" and _content(record).startswith(_FEEDBACK)
        return TurnContinued() if is_feedback else None
    if kind == "assistant":
        return _assistant(record, at)
    if kind == "system":
        return _system(record)
    # What it sums itself up with, to go on with the same turn, is no one's prompt.
    if kind != "user" or _is_tool_result(record) or record.get("isCompactSummary"):
        return None
    text = _content(record)
    if found := _COMMAND_NAME.match(text):
        return CommandRun(found[1], finished=False)
    if _COMMAND_OUTPUT.fullmatch(text):
        return CommandRun("")
    notice = text.startswith(TASK_NOTICE)
    return PromptRecorded(text, _text(record, "promptId"), _text(record, "sessionId"), notice)


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
    """Whether it ends a turn, and is the model's own: of an answer that a resumed conversation lacks, the CLI
    writes "No response requested." itself."""
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


# ── a turn that no one watched ──


def read_past(records: Iterable[Record], prompt: str, since: float, same: Any) -> Past:
    """What became of `prompt`, handed over at `since` or later. `same` compares a record's prompt with it."""
    past = Past()
    for record in in_order(records):
        report = read_record(record)
        if report.subagent:
            continue
        for event in report.events:
            if not past.submitted:
                is_new = (report.at or 0.0) >= since - _CLOCK_SLACK
                if isinstance(event, PromptRecorded) and same(event.prompt, prompt) and is_new:
                    past = Past(submitted=True, prompt_id=event.prompt_id)
            elif isinstance(event, PromptRecorded) and not event.notice:
                return past  # what is said from here on answers the next prompt
            elif isinstance(event, MessageRecorded) and event.final:
                past = Past(True, True, event.text, past.prompt_id, past.interrupted)
            elif isinstance(event, TurnInterrupted) and not past.answered:
                past = Past(True, False, past.text, past.prompt_id, True)
    return past


# ── parts of a record ──


def _left(record: Record) -> float | None:
    """How long a limit lasts from the moment in which it was met."""
    reset, met = reset_of(record), _epoch(record)
    return clamp_seconds(reset - met) if reset is not None and met and reset > met else None


def _is_tool_result(record: Record) -> bool:
    return any(block.get("type") == "tool_result" for block in _blocks(record))


def _blocks(record: Record) -> list[dict[str, Any]]:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _texts(record: Record) -> list[str]:
    return [str(block["text"]) for block in _blocks(record) if "text" in block]


def _content(record: Record) -> str:
    return "\n".join(_texts(record))


def _epoch(record: Record) -> float | None:
    try:
        at = datetime.fromisoformat(str(record.get("timestamp"))).timestamp()
    except (ValueError, OverflowError):
        return None
    return at if at >= 0 else None


def _text(document: Record, key: str) -> str | None:
    value = document.get(key)
    return value if isinstance(value, str) else None
