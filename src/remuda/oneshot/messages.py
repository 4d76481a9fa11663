"""Records of a transcript as the messages that `claude -p --output-format stream-json` prints. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from os import urandom
from typing import Any

from remuda.agents.unattended import DENIED

Json = Mapping[str, Any]


def init_message(record: Json, model: str | None) -> dict[str, Any]:
    """From the first record of the turn. Lists of tools, commands and agents are not in a transcript."""
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
    """A random one. The module of that name takes longer to load than all that is done here."""
    digits = bytearray(urandom(16))
    digits[6] = digits[6] & 0x0F | 0x40
    digits[8] = digits[8] & 0x3F | 0x80
    text = digits.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def delta_message(text: str, session_id: str | None) -> dict[str, Any]:
    """A piece of the answer. Its place in the API's message is not known here: only text comes this way."""
    delta = {"type": "text_delta", "text": text}
    return {
        "type": "stream_event",
        "event": {"type": "content_block_delta", "index": 0, "delta": delta},
        "session_id": session_id,
        "parent_tool_use_id": None,
        "uuid": new_uuid(),
    }


def texts_of(message: Json) -> list[str]:
    """The text blocks of a message that is to be printed, if it is the agent's."""
    content = message.get("message", {}).get("content") if message.get("type") == "assistant" else None
    blocks = [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []
    return [str(block.get("text")) for block in blocks if block.get("type") == "text"]


def to_messages(record: Json, tools: Mapping[str, Json]) -> list[dict[str, Any]]:
    """What the CLI would have printed for this record; most often nothing, or one message.

    `tools` are the tool calls so far, by their ids.
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
    results = [
        block
        for block in (content if isinstance(content, list) else [])
        if isinstance(block, Mapping) and block.get("type") == "tool_result"
    ]
    if not results and not record.get("isMeta"):  # the prompt itself, which the CLI does not repeat
        return []
    if not results:
        return [{"type": "user", "message": _in_blocks(message), **_common(record), "isSynthetic": True}]
    told = {"type": "user", "message": message, **_common(record)}
    if "toolUseResult" in record:
        told["tool_use_result"] = record["toolUseResult"]
    if meta := _meta(record, results):
        told["tool_result_meta"] = meta
    denials = [_denial(record, block, tools) for block in results if DENIED in str(block.get("content"))]
    return [*denials, told]


def _in_blocks(message: object) -> object:
    if not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
        return message
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


def _meta(record: Json, results: list[Json]) -> list[dict[str, Any]]:
    """Why the tool ran, or why not."""
    decision = record.get("permissionDecision")
    kind = _renamed(record, {"toolDenialKind": "non_execution_kind"})
    if isinstance(decision, Mapping):
        kind["permission_decision"] = _renamed(decision, _OF_DECISION)
    return [{"id": block.get("tool_use_id"), **kind} for block in results] if kind else []


def _denial(record: Json, block: Json, tools: Mapping[str, Json]) -> dict[str, Any]:
    number = block.get("tool_use_id")
    return {
        "type": "system",
        "subtype": "permission_denied",
        "tool_name": tools.get(str(number), {}).get("name"),
        "tool_use_id": number,
        "message": DENIED,
        "session_id": record.get("sessionId"),
        "uuid": new_uuid(),
    }
