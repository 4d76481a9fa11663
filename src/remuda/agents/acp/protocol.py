"""JSON-RPC 2.0 as one object on each line, in both directions, and what ACP says with it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from remuda.frozen import frozen
from remuda.untrusted import as_object, as_objects, name_at, parse_json

VERSION = 1
MAX_LINE_BYTES = 64 << 20
METHOD_NOT_FOUND = -32601
AUTHENTICATION_REQUIRED = -32000
_SHOWN = 2000
Params = Mapping[str, Any]


@frozen
class Response:
    """The answer to a call of ours. `error` is empty if it succeeded."""

    id: int
    result: Params
    error: str = ""
    code: int = 0
    """Of the error, by JSON-RPC and ACP."""


@frozen
class Call:
    """A call of the agent, which waits for our answer."""

    id: object
    method: str
    params: Params


@frozen
class Notification:
    """A notification of the agent."""

    method: str
    params: Params


Incoming = Response | Call | Notification


class RpcReader:
    """Fed bytes, yields messages. A line that is not a message is counted and skipped."""

    def __init__(self, most_bytes: int = MAX_LINE_BYTES) -> None:
        self._parts: list[bytes] = []
        self._part_bytes = 0
        self._most_bytes = most_bytes
        self.skipped = 0
        self.last_skipped = b""
        """The beginning of the last line that was skipped."""
        self.too_long = False
        """Whether a line was longer than `most_bytes`: what it said is lost."""

    def feed(self, data: bytes) -> Iterator[Incoming]:
        first, *more = data.split(b"\n")
        self._add(first)
        for part in more:
            line = b"".join(self._parts)
            self._parts, self._part_bytes = [], 0
            self._add(part)
            message = _read(line)
            if message is not None:
                yield message
            elif line.strip():
                self.skipped += 1
                self.last_skipped = line[:_SHOWN]

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self._part_bytes += len(part)
        if self._part_bytes > self._most_bytes:
            self._parts, self._part_bytes, self.too_long = [], 0, True


def _read(line: bytes) -> Incoming | None:
    try:
        document = parse_json(line)
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    method, number = document.get("method"), document.get("id")
    if isinstance(method, str):
        params = as_object(document.get("params"))
        return Notification(method, params) if number is None else Call(number, method, params)
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    if (error := document.get("error")) is not None:
        code = as_object(error).get("code")
        return Response(number, {}, _error(error), code if isinstance(code, int) else 0)
    return Response(number, as_object(document.get("result")))


def _error(error: object) -> str:
    fields = as_object(error)
    words = str(fields.get("message") or error)
    details = as_object(fields.get("data")).get("details") or as_object(fields.get("data")).get("message")
    return (f"{words}: {details}" if details else words)[:_SHOWN]


# ── what is sent ──


def call(number: int, method: str, params: Params) -> bytes:
    return _line({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


def notify(method: str, params: Params) -> bytes:
    return _line({"jsonrpc": "2.0", "method": method, "params": params})


def answer(number: object, result: Params) -> bytes:
    return _line({"jsonrpc": "2.0", "id": number, "result": result})


def refuse(number: object, method: str) -> bytes:
    """Return the answer to a call that a client without files and terminals does not serve."""
    error = {"code": METHOD_NOT_FOUND, "message": f"this client does not serve {method}"}
    return _line({"jsonrpc": "2.0", "id": number, "error": error})


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"


def initialize(version: str) -> dict[str, Any]:
    """Return the parameters of the first call: this client lends the agent neither files nor terminals."""
    return {
        "protocolVersion": VERSION,
        "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
        "clientInfo": {"name": "remuda", "version": version},
    }


def prompt(session_id: str, text: str) -> dict[str, Any]:
    return {"sessionId": session_id, "prompt": [{"type": "text", "text": text}]}


# ── what is reported ──


@frozen
class TextPiece:
    text: str


@frozen
class ToolBegan:
    id: str
    name: str
    """The kind of the tool, else its title: ACP has no names of tools."""
    input: Params
    title: str = ""


@frozen
class ToolEnded:
    id: str
    content: object
    ok: bool


@frozen
class PermissionAsked:
    """The agent waits until one of `options` is chosen: the id of an option by its kind."""

    call: object
    tool_id: str
    tool: str
    input: Params
    options: Mapping[str, str]


Update = TextPiece | ToolBegan | ToolEnded


def read_update(params: Params) -> Update | None:
    """Return what a `session/update` says; None for what no one here uses."""
    update = as_object(params.get("update"))
    kind, status = update.get("sessionUpdate"), update.get("status")
    if kind == "agent_message_chunk":
        text = as_object(update.get("content")).get("text")
        return TextPiece(text) if isinstance(text, str) else None
    if kind == "tool_call":
        return read_tool(update)
    if kind == "tool_call_update" and status in ("completed", "failed"):
        return ToolEnded(_tool_id(update), tool_content(update), ok=status == "completed")
    return None


def read_tool(fields: Params) -> ToolBegan:
    """Return a tool as a call, an update or a permission request describes it: each may leave things out."""
    title = name_at(fields, "title") or ""
    return ToolBegan(_tool_id(fields), _tool(fields), as_object(fields.get("rawInput")), title)


def read_usage(result: Params) -> dict[str, int] | None:
    """Return the tokens of a turn by the answer to its prompt; None if it does not say."""
    counts = as_object(result.get("usage"))
    names = ("inputTokens", "cachedReadTokens", "cachedWriteTokens", "outputTokens")
    if not any(name in counts for name in names):
        return None
    whole, read, written, said = (_count(counts.get(name)) for name in names)
    return {
        "input_tokens": max(0, whole - read - written),
        "output_tokens": said,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
    }


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def read_permission(asked: Call) -> PermissionAsked:
    tool = as_object(asked.params.get("toolCall"))
    options = {
        str(option.get("kind")): str(option.get("optionId"))
        for option in reversed(as_objects(asked.params.get("options")))
    }
    return PermissionAsked(asked.id, _tool_id(tool), _tool(tool), as_object(tool.get("rawInput")), options)


def decide(asked: PermissionAsked, *, allow: bool) -> bytes:
    """Return the decision for this one time; that no one decides, if the agent offers no such option."""
    chosen = asked.options.get("allow_once" if allow else "reject_once")
    outcome = {"outcome": "cancelled"} if chosen is None else {"outcome": "selected", "optionId": chosen}
    return answer(asked.call, {"outcome": outcome})


def _tool_id(fields: Params) -> str:
    return name_at(fields, "toolCallId") or ""


def _tool(fields: Params) -> str:
    return name_at(fields, "kind") or name_at(fields, "title") or ""


def tool_content(update: Params) -> object:
    texts = [
        str(as_object(part.get("content")).get("text"))
        for part in as_objects(update.get("content"))
        if as_object(part.get("content")).get("type") == "text"
    ]
    return "\n".join(texts) if texts else as_object(update.get("rawOutput"))
