"""Records of a transcript as the messages that `claude -p --output-format stream-json` prints. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.agents.claude.answers import DENIED

Json = Mapping[str, Any]


def init_message(record: Json, model: str | None, permission_mode: str | None) -> dict[str, Any]:
    """From the first record of the turn. Lists of tools, commands and agents are not in a transcript."""
    return {
        "type": "system",
        "subtype": "init",
        "cwd": record.get("cwd"),
        "session_id": record.get("sessionId"),
        "model": model,
        "permissionMode": permission_mode or record.get("permissionMode"),
        "claude_code_version": record.get("version"),
        "entrypoint": record.get("entrypoint"),
        "uuid": record.get("uuid"),
    }


def to_messages(record: Json) -> list[dict[str, Any]]:
    """What the CLI would have printed for this record; most often nothing, or one message."""
    if record.get("isMeta"):
        return []
    kind = record.get("type")
    if kind == "assistant":
        return [_assistant(record)]
    if kind == "user":
        return _user(record)
    return []


def _common(record: Json) -> dict[str, Any]:
    return {
        "parent_tool_use_id": record.get("parentToolUseID") if record.get("isSidechain") else None,
        "session_id": record.get("sessionId"),
        "uuid": record.get("uuid"),
        "timestamp": record.get("timestamp"),
    }


def _assistant(record: Json) -> dict[str, Any]:
    message = {"type": "assistant", "message": record.get("message"), **_common(record)}
    if record.get("isApiErrorMessage"):
        message["error"] = record.get("error")
    return message


def _user(record: Json) -> list[dict[str, Any]]:
    message = record.get("message")
    content = message.get("content") if isinstance(message, Mapping) else None
    results = [
        block
        for block in (content if isinstance(content, list) else [])
        if isinstance(block, Mapping) and block.get("type") == "tool_result"
    ]
    if not results:  # the prompt itself, which the CLI does not repeat
        return []
    told = {"type": "user", "message": message, **_common(record)}
    if "toolUseResult" in record:
        told["tool_use_result"] = record["toolUseResult"]
    denials = [_denial(record, block) for block in results if DENIED in str(block.get("content"))]
    return [*denials, told]


def _denial(record: Json, block: Json) -> dict[str, Any]:
    return {
        "type": "system",
        "subtype": "permission_denied",
        "tool_use_id": block.get("tool_use_id"),
        "message": DENIED,
        "session_id": record.get("sessionId"),
        "uuid": record.get("uuid"),
    }
