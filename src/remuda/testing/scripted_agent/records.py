"""The lines of a transcript, in the shapes of the real program. Pure.

:func:`head` and :class:`Tail` are what nearly all lines share; the functions give what is a line's own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from remuda.testing.script import Usage

from . import ENTRYPOINT, VERSION

Record: TypeAlias = dict[str, Any]

REJECTED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file"
    " edit, the new_string was NOT written to the file). STOP what you are doing and wait for the user to"
    " tell you how to proceed."
)
INTERRUPTED = "[Request interrupted by user]"
INTERRUPTED_IN_TOOL = "[Request interrupted by user for tool use]"


# What a block's line says besides the block.
_TIMINGS: dict[str, Record] = {
    "tool_use": {"toolInputStreamMs": 1},
    "thinking": {"thinkingDisplay": "updates", "thinkingDurationMs": 1},
}


def new_id() -> str:
    """Return a random UUID. The standard module would cost a tenth of the start-up."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def now() -> str:
    """Return the time as transcripts write it."""
    seconds = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds * 1000) % 1000:03}Z"


@dataclass(frozen=True, slots=True)
class Tail:
    """What ends nearly every line."""

    cwd: str
    session_id: str
    first_session_id: str

    def fields(self, *, both_ids: bool) -> Record:
        """``session_id`` is the process's first conversation and survives ``/clear``; some lines lack it."""
        first = {"session_id": self.first_session_id} if both_ids else {}
        return {
            **first,
            "userType": "external",
            "entrypoint": ENTRYPOINT,
            "cwd": self.cwd,
            "sessionId": self.session_id,
            "version": VERSION,
            "gitBranch": "HEAD",
        }


def user(content: object) -> Record:
    """Return the message of a user line."""
    return {"type": "user", "message": {"role": "user", "content": content}}


def prompt(text: str, prompt_id: str, mode: str, source: str, position: int) -> Record:
    """Return a prompt of the human, ``typed`` or ``queued``."""
    return {
        "promptId": prompt_id,
        **user(text),
        "permissionMode": mode,
        "origin": {"kind": "human"},
        "promptSource": source,
        "turnOrigin": "human",
        "turnPosition": {"promptIndex": position, "turnIndex": position},
    }


def feedback(text: str, prompt_id: str) -> Record:
    """Return what a blocking Stop hook says to the model."""
    return {"promptId": prompt_id, **user(f"Stop hook feedback:\n{text}"), "isMeta": True}


def interruption(text: str, prompt_id: str, message_id: str | None) -> Record:
    """Return the only line that reports an interrupt."""
    message = {"interruptedMessageId": message_id} if message_id else {}
    return {"promptId": prompt_id, **user([{"type": "text", "text": text}]), **message}


def tool_result(
    call_id: str,
    content: str,
    result: object,
    prompt_id: str,
    source: str,
    error: bool | None,
    **more: object,
) -> Record:
    """Return a tool's result for the model (``content``) and for programs (``result``)."""
    block: Record = {"tool_use_id": call_id, "type": "tool_result", "content": content}
    if error is not None:
        block["is_error"] = error
    return {
        "promptId": prompt_id,
        **user([block]),
        "toolUseResult": result,
        "sourceToolAssistantUUID": source,
        **more,
    }


def usage(counts: Usage, *, more: bool = False) -> Record:
    """Token counts as transcripts hold them."""
    surprise = {"mystery_tokens": 1, "mystery_details": {"depth": 2}} if more else {}
    return {
        **asdict(counts),
        "output_tokens_details": {"thinking_tokens": 0},
        "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
        "service_tier": "standard",
        "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
        "inference_geo": "",
        "iterations": [],
        "speed": "standard",
        "fallback_credit": None,
        **surprise,
    }


@dataclass(slots=True)
class ModelMessage:
    """One message of the model. A transcript has a line for each of its blocks."""

    id: str
    model: str
    usage: Record
    request: str
    stop_reason: str | None = None

    def line(self, index: int, block: Record, *, aborted: bool = False) -> Record:
        """Return the line of one block."""
        message: Record = {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [block],
            "stop_reason": None if aborted else self.stop_reason,
            "stop_sequence": None,
            "usage": dict(list(self.usage.items())[:4]) if aborted else self.usage,
        }
        if not aborted:
            message["stop_details"] = None
        timing = _TIMINGS.get(block["type"], {})
        return {
            "message": message,
            **timing,
            "apiBlockIndex": index,
            "requestRef": self.request,
            "requestedModel": self.model,
            "promptCacheRequested": "5m",
            "type": "assistant",
            **({"isAbortedMidStream": True} if aborted else {}),
            "effort": "medium",
            "perTurnEffort": "medium",
            "madeBy": "model",
        }


def api_error(text: str, error: str, status: int | None, kind: str) -> Record:
    """Return the assistant line that stands for an answer that failed."""
    counts = usage(Usage(0, 0, 0, 0)) | {
        "output_tokens_details": None,
        "service_tier": None,
        "inference_geo": None,
        "iterations": None,
        "speed": None,
    }
    message = {
        "diagnostics": None,
        "id": new_id(),
        "container": None,
        "model": "<synthetic>",
        "role": "assistant",
        "stop_details": None,
        "stop_reason": "stop_sequence",
        "stop_sequence": "",
        "type": "message",
        "usage": counts,
        "content": [{"type": "text", "text": text}],
        "context_management": None,
    }
    return {
        "type": "assistant",
        "message": message,
        **({"apiError": kind} if status is None else {"requestId": f"req_{new_id()}"}),
        "error": error,
        "isApiErrorMessage": True,
        **({} if status is None else {"apiErrorStatus": status, "apiErrorType": kind}),
        "perTurnEffort": "medium",
        "failedResponseHadNoToolCall": True,
        "madeBy": "model",
    }


def stop_hook_summary(
    hooks: Sequence[tuple[str, float]], errors: Sequence[str], contexts: Sequence[str] = ()
) -> Record:
    """Return the line about the Stop hooks: their commands and times, and what they blocked with."""
    return {
        "type": "system",
        "subtype": "stop_hook_summary",
        "hookCount": len(hooks),
        "hookInfos": [{"command": name, "durationMs": round(took * 1000)} for name, took in hooks],
        "hookErrors": list(errors),
        "hookAdditionalContext": list(contexts),
        "preventedContinuation": False,
        "stopReason": "",
        "hasOutput": bool(errors),
        "level": "suggestion",
        "toolUseID": new_id(),
    }


def turn_duration(seconds: float, messages: int) -> Record:
    """Return the line that ends a turn."""
    return {
        "type": "system",
        "subtype": "turn_duration",
        "durationMs": round(seconds * 1000),
        "messageCount": messages,
        "isMeta": False,
    }


def informational(text: str) -> Record:
    """Something the program said to the user, not the model."""
    return {
        "type": "system",
        "subtype": "informational",
        "content": text,
        "isMeta": False,
        "level": "warning",
    }


def attachment(kind: str, fields: Mapping[str, object]) -> Record:
    """Return a line about the conversation that is not part of it."""
    return {"attachment": {"type": kind, **fields}, "type": "attachment"}


def local_command(name: str, arguments: str, output: str) -> list[Record]:
    """Return what a slash command leaves, as context for the model."""
    caveat = (
        "<local-command-caveat>The command below was run by the user, not sent to you.</local-command-caveat>"
    )
    call = (
        f"<command-name>/{name}</command-name>\n            <command-message>{name}</command-message>\n"
        f"            <command-args>{arguments}</command-args>"
    )
    return [
        {**user(caveat), "isMeta": True},
        user(call),
        {
            "type": "system",
            "subtype": "local_command",
            "content": f"<local-command-stdout>{output}</local-command-stdout>",
            "level": "info",
            "isMeta": False,
            "commandRun": {"command": name, "args": arguments},
        },
    ]
