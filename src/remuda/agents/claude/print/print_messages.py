"""A turn of Claude Code as the messages and the result that `claude -p` prints (2.1.325).

`TranscriptMessages` reads the turn from its transcript. Everything else here is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import urandom
from pathlib import Path
from typing import Any

from remuda.agents.headless import Message, TurnEnd
from remuda.agents.unattended import DENIED

from .print_transcript import Json, TurnSummary, TurnTail, content_blocks


class TranscriptMessages:
    """One turn as print's messages. Implements `agents.headless.PrintedTurn`.

    `emit` gets every message when its record is read; None if only the result is wanted. The first message
    needs the model, so text that appears before it is known waits.
    """

    def __init__(self, emit: Callable[[Message], None] | None, *, partial: bool = False) -> None:
        self.facts = TurnSummary()
        self._emit = emit
        self._tail: TurnTail | None = None
        self._first: Json | None = None
        self._begun = False
        self._partial = PartialText() if partial else None
        self._waiting_text: list[str] = []

    def follow(self, path: Path, prompt_id: str | None) -> None:
        self._tail = TurnTail(path, prompt_id)

    def read(self) -> bool:
        has_new = False
        for record in self._tail.read() if self._tail is not None else ():
            self.take(record)
            has_new = True
        return has_new

    def take(self, record: Json) -> None:
        """Take the next record of the turn."""
        self.facts.take(record)
        if self._emit is None:
            return
        self._first = self._first or record
        messages = to_messages(record, self.facts.tool_uses)
        if self.facts.model or messages:
            self._begin()
        for message in messages:
            for text in texts_of(message):
                self._emit_text(self._partial.message(text) if self._partial is not None else "")
            self._emit(message)

    def shown(self, text: str) -> None:
        if self._partial is not None:
            self._emit_text(self._partial.shown(text))

    def _emit_text(self, text: str) -> None:
        if text and not self._begun:
            self._waiting_text.append(text)
        elif text and self._emit is not None:
            self._emit(text_message(text, self.facts.session_id))

    def _begin(self) -> None:
        if self._begun or self._first is None or self._emit is None:
            return
        self._begun = True
        self._emit(init_message(self._first, self.facts.model))
        for text in self._waiting_text:
            self._emit_text(text)

    def result(self, ended: TurnEnd, duration_ms: int, backend: str) -> Message:
        self._begin()
        return make_result(self.facts, ended, duration_ms, backend)


class PartialText:
    """Text as it appears, before its message is in the transcript. Pure.

    The terminal reports complete lines, and may be late. The message in the transcript has all of the text.
    Both methods return the text that is still to be printed, so that nothing is printed twice.
    """

    def __init__(self) -> None:
        self._shown = ""
        self._late = ""

    def shown(self, text: str) -> str:
        if self._late.startswith(text):
            self._late = self._late[len(text) :]
            return ""
        self._late = ""
        self._shown += text
        return text

    def message(self, text: str) -> str:
        """Take a text block of a message that the transcript has."""
        begin = text.find(self._shown)
        rest = text[begin + len(self._shown) :] if begin >= 0 else ""
        self._shown, self._late = "", rest
        return rest


def turn_messages(
    path: Path, prompt_id: str | None, answer: str, *, failed: bool, model: str | None, seconds: float
) -> list[Message]:
    """Read a finished turn from its transcript."""
    summary = TurnSummary(model=model)
    messages: list[Message] = []
    first: Json | None = None
    for record in TurnTail(path, prompt_id).read():
        first = first or record
        summary.take(record)
        model = model or summary.model  # a keeper that was asked early does not know it yet
        messages += to_messages(record, summary.tool_uses)
    if first is not None:
        messages.insert(0, init_message(first, model))
    ended = TurnEnd("api_error", is_error=True, text=answer) if failed else TurnEnd(text=answer)
    return [*messages, make_result(summary, ended, round(seconds * 1000), "terminal")]


# ── records to messages ──


def init_message(record: Json, model: str | None) -> dict[str, Any]:
    """Return the first message. A transcript has no lists of tools, commands and agents."""
    return {
        "type": "system",
        "subtype": "init",
        "cwd": record.get("cwd"),
        "original_cwd": record.get("cwd"),
        "session_id": record.get("sessionId"),
        "model": model,
        "permissionMode": record.get("permissionMode"),
        "claude_code_version": record.get("version"),
        "entrypoint": record.get("entrypoint"),
        "uuid": record.get("uuid"),
    }


def new_uuid() -> str:
    """Return a random UUID. Loading the module `uuid` takes longer than everything that is done here."""
    digits = bytearray(urandom(16))
    digits[6] = digits[6] & 0x0F | 0x40
    digits[8] = digits[8] & 0x3F | 0x80
    text = digits.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def text_message(text: str, session_id: str | None) -> dict[str, Any]:
    """Return the message for a piece of the answer. Its index in the API's message is not known here."""
    delta = {"type": "text_delta", "text": text}
    return {
        "type": "stream_event",
        "event": {"type": "content_block_delta", "index": 0, "delta": delta},
        "session_id": session_id,
        "parent_tool_use_id": None,
        "uuid": new_uuid(),
    }


def texts_of(message: Json) -> list[str]:
    """Return the text blocks of a message by the agent."""
    content = message.get("message", {}).get("content") if message.get("type") == "assistant" else None
    return [str(block.get("text")) for block in content_blocks(content, "text")]


def to_messages(record: Json, tools: Mapping[str, Json]) -> list[dict[str, Any]]:
    """Return what the CLI would have printed for this record: usually nothing or one message.

    `tools` are the tool calls so far, by id.
    """
    kind = record.get("type")
    if kind == "assistant":
        return [_assistant(record)]
    if kind == "user":
        return _user(record, tools)
    return []


def _common(record: Json) -> dict[str, Any]:
    return {
        "parent_tool_use_id": record.get("parentToolUseID") if record.get("isSidechain") else None,
        "session_id": record.get("sessionId"),
        "uuid": record.get("uuid"),
        "timestamp": record.get("timestamp"),
    }


def _renamed(record: Json, names: Mapping[str, str]) -> dict[str, Any]:
    return {name: record[key] for key, name in names.items() if key in record}


_OF_ASSISTANT = {"thinkingDurationMs": "thinking_duration_ms", "thinkingDisplay": "thinking_display"}
_OF_ERROR = {
    "error": "error",
    "requestId": "request_id",
    "isApiErrorMessage": "is_api_error_message",
    "apiErrorStatus": "api_error_status",
    "apiErrorType": "api_error_type",
    "apiError": "api_error",
}
_OF_DECISION = {"decision": "decision", "source": "source", "reasonType": "reason_type"}


def _assistant(record: Json) -> dict[str, Any]:
    names = _OF_ERROR if record.get("isApiErrorMessage") else _OF_ASSISTANT
    message = {"type": "assistant", "message": record.get("message"), **_common(record)}
    return {**message, **_renamed(record, names)}


def _user(record: Json, tools: Mapping[str, Json]) -> list[dict[str, Any]]:
    message = record.get("message")
    content = message.get("content") if isinstance(message, Mapping) else None
    results = content_blocks(content, "tool_result")
    if not results and not record.get("isMeta"):  # the prompt itself, which the CLI does not repeat
        return []
    if not results:
        return [{"type": "user", "message": _in_blocks(message), **_common(record), "isSynthetic": True}]
    printed = {"type": "user", "message": message, **_common(record)}
    if "toolUseResult" in record:
        printed["tool_use_result"] = record["toolUseResult"]
    if meta := _meta(record, results):
        printed["tool_result_meta"] = meta
    denials = [_denial(record, block, tools) for block in results if DENIED in str(block.get("content"))]
    return [*denials, printed]


def _in_blocks(message: object) -> object:
    if not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
        return message
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


def _meta(record: Json, results: list[Json]) -> list[dict[str, Any]]:
    """Return why each tool ran, or why not."""
    decision = record.get("permissionDecision")
    kind = _renamed(record, {"toolDenialKind": "non_execution_kind"})
    if isinstance(decision, Mapping):
        kind["permission_decision"] = _renamed(decision, _OF_DECISION)
    return [{"id": block.get("tool_use_id"), **kind} for block in results] if kind else []


def _denial(record: Json, block: Json, tools: Mapping[str, Json]) -> dict[str, Any]:
    tool_use_id = block.get("tool_use_id")
    return {
        "type": "system",
        "subtype": "permission_denied",
        "tool_name": tools.get(str(tool_use_id), {}).get("name"),
        "tool_use_id": tool_use_id,
        "message": DENIED,
        "session_id": record.get("sessionId"),
        "uuid": new_uuid(),
    }


# ── the result ──

# What `claude -p` has before the first answer, and keeps when none came (2.1.325).
_NO_USAGE: dict[str, Any] = {
    "input_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
    "output_tokens": 0,
    "output_tokens_details": {"thinking_tokens": 0},
    "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
    "service_tier": "standard",
    "cache_creation": {"ephemeral_1h_input_tokens": 0, "ephemeral_5m_input_tokens": 0},
    "inference_geo": "",
    "iterations": [],
    "speed": "standard",
    "fallback_credit": None,
}
_ALWAYS_PRESENT = ("input_tokens", "output_tokens")
USAGE_UNKNOWN = "usage unknown: the transcript does not have the agent's last message"
_MODEL_FIELDS: dict[str, tuple[str, ...]] = {
    "inputTokens": ("input_tokens",),
    "outputTokens": ("output_tokens",),
    "cacheReadInputTokens": ("cache_read_input_tokens",),
    "cacheCreationInputTokens": ("cache_creation_input_tokens",),
    "webSearchRequests": ("server_tool_use", "web_search_requests"),
    "thinkingTokens": ("output_tokens_details", "thinking_tokens"),
    "cacheCreationEphemeral5mInputTokens": ("cache_creation", "ephemeral_5m_input_tokens"),
    "cacheCreationEphemeral1hInputTokens": ("cache_creation", "ephemeral_1h_input_tokens"),
}


def make_result(summary: TurnSummary, ended: TurnEnd, duration_ms: int, backend: str) -> dict[str, Any]:
    result: dict[str, Any] = {
        "type": "result",
        "subtype": ended.subtype,
        "is_error": ended.is_error,
        "duration_ms": duration_ms,
        "num_turns": summary.turns,
        "stop_reason": summary.stop_reason,
        "session_id": summary.session_id,
        "total_cost_usd": None,  # the CLI writes it down only when it ends
        "usage": {**_NO_USAGE, **summary.usage()},
        "modelUsage": {name: _model_usage(one) for name, one in summary.usage_by_model().items() if name},
        "permission_denials": summary.permission_denials(),
        "terminal_reason": ended.reason,
        "uuid": new_uuid(),
    }
    if not ended.usage_known:
        result |= {"usage": None, "modelUsage": None, "degraded": [USAGE_UNKNOWN]}
    if ended.errors:
        result["errors"] = list(ended.errors)
    else:
        result["result"] = summary.text if ended.text is None else ended.text
        result["api_error_status"] = summary.api_error_status if summary.is_api_error else None
        if summary.is_api_error and summary.api_error_type:
            result["api_error_type"] = summary.api_error_type
    return {
        **result,
        "backend": backend,
        "entrypoint": summary.entrypoint,
        "claude_version": summary.version,
        "cost_usd": 0,  # as claude-print has it: no cost is known here
    }


def _model_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _number(usage, path) for name, path in _MODEL_FIELDS.items()}


def _number(usage: Mapping[str, Any], path: tuple[str, ...]) -> int | float | None:
    """Return a number; 0 if it is left out. None for another shape, and for tokens that were not counted."""
    found: Any = usage
    for key in path:
        if not isinstance(found, Mapping):
            return None
        found = found.get(key, None if key in _ALWAYS_PRESENT else 0 if key == path[-1] else {})
    return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None
