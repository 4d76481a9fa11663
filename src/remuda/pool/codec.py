"""Converts the pool's types to messages of its protocol, and back. Pure.

Messages from the other end are checked: a field that is missing or has another type raises
`RemoteProtocolError`; unknown fields are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from remuda.errors import PoolExhausted, RemoteProtocolError, RemudaError, SessionCrashed, from_code

from .protocol import Message
from .types import (
    Allow,
    Decision,
    Deny,
    Done,
    Failed,
    PermissionRequest,
    Raw,
    RunResult,
    StreamEvent,
    Token,
    ToolResult,
    ToolUse,
    Usage,
)

_REQUIRED = ("request_id", "text", "session_id", "backend")
_NUMBERS = ("duration", "queue_wait")


# ── results ──


def result_document(result: RunResult) -> dict[str, Any]:
    return asdict(result)


def read_result(document: Mapping[str, Any]) -> RunResult:
    if not all(isinstance(document.get(name), str) for name in _REQUIRED):
        raise RemoteProtocolError(f"the result lacks one of {', '.join(_REQUIRED)}")
    if not all(isinstance(document.get(name, 0.0), int | float) for name in _NUMBERS):
        raise RemoteProtocolError(f"the result needs numbers for {' and '.join(_NUMBERS)}")
    known = {field.name for field in fields(RunResult)}
    values = {name: value for name, value in document.items() if name in known}
    return RunResult(**{**values, "usage": read_usage(document.get("usage"))})


def read_usage(document: object) -> Usage | None:
    if document is None:
        return None
    if not isinstance(document, Mapping):
        raise RemoteProtocolError("the usage is not an object")
    known = {field.name for field in fields(Usage)}
    counts = {name: value for name, value in document.items() if name in known}
    if not all(type(value) is int for value in counts.values()):
        raise RemoteProtocolError("the usage has a value that is not an integer")
    return Usage(**counts)


# ── events ──


def event_message(event: Token | ToolUse | ToolResult | PermissionRequest) -> Message:
    return asdict(event)


def read_event(message: Message) -> StreamEvent | None:
    """Return the event, or None for other messages. The protocol has checked the fields."""
    match message["type"]:
        case "token":
            return Token(message["text"])
        case "tool_use":
            return ToolUse(message["id"], message["name"], message["input"])
        case "tool_result":
            name = message.get("name")
            return ToolResult(
                message["id"],
                message.get("content"),
                bool(message.get("is_error")),
                name if isinstance(name, str) else "",
            )
        case "permission":
            return read_permission(message)
    return None


def read_remote(message: Message) -> StreamEvent | Raw | None:
    """Return the event of any message that a server sends, the last one included; None for others."""
    match message["type"]:
        case "done":
            return Done(read_result(message["result"]))
        case "error":
            return Failed(read_error(message))
        case "raw":
            return Raw(message["message"])
    return read_event(message)


def read_permission(message: Message) -> PermissionRequest:
    return PermissionRequest(
        message["id"],
        message["tool"],
        message["input"],
        str(message.get("request_id") or ""),
        tuple(one for one in message.get("suggestions") or () if isinstance(one, Mapping)),
    )


# ── decisions ──


def decision_message(request_id: str, decision: Decision) -> Message:
    behavior = "allow" if isinstance(decision, Allow) else "deny"
    return {"type": "decision", "id": request_id, "behavior": behavior, **asdict(decision)}


def read_decision(message: Message) -> Decision:
    if message["behavior"] == "allow":
        return Allow(message.get("input"), bool(message.get("always")))
    if message["behavior"] == "deny":
        return Deny(str(message.get("message") or ""), bool(message.get("interrupt")))
    raise RemoteProtocolError(f"a decision must be allow or deny, not {message['behavior'][:40]!r}")


# ── errors ──


def error_message(error: RemudaError, *, begun: bool = True) -> Message:
    """`begun=False`: the request was not started. Older peers ignore that field."""
    message: Message = {"type": "error", "code": error.code, "message": error.message, "hint": error.hint}
    if not begun:
        message["begun"] = False
    if error.request_id is not None:
        message["request_id"] = error.request_id
    if isinstance(error, SessionCrashed):
        message["detail"] = error.detail
    if isinstance(error, PoolExhausted):
        message |= {"waited": error.waited, "size": error.size}
    return message


def read_error(message: Message) -> RemudaError:
    error = from_code(message["code"], message["message"], message.get("hint"))
    if isinstance(request_id := message.get("request_id"), str):
        error.request_id = request_id
    if isinstance(error, SessionCrashed):
        error.detail = message.get("detail") or ""
    if isinstance(error, PoolExhausted):
        error.waited, error.size = _number(message.get("waited")), int(_number(message.get("size")))
    return error


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0.0
