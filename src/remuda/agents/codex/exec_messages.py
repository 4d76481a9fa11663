"""What `codex exec --json` prints, as the messages of `remuda print`. Pure but for the clock."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from remuda.agents.headless import Message
from remuda.agents.json_lines import JsonLineReader
from remuda.untrusted import as_object, as_objects, finite

from .notices import PATCH, SHELL, shell_command


def text_message(text: str, session_id: str | None) -> Message:
    return _message("assistant", {"type": "text", "text": text}, session_id)


def tool_use_message(call: str, tool: str, given: Mapping[str, Any], session_id: str | None) -> Message:
    block = {"type": "tool_use", "id": call, "name": tool, "input": dict(given)}
    return _message("assistant", block, session_id)


def tool_result_message(call: str, result: object, *, failed: bool, session_id: str | None) -> Message:
    block = {"type": "tool_result", "tool_use_id": call, "content": result, "is_error": failed}
    return _message("user", block, session_id)


def init_message(session_id: str | None) -> Message:
    return {"type": "system", "subtype": "init", "session_id": session_id}


def _message(role: str, block: Mapping[str, Any], session_id: str | None) -> Message:
    return {"type": role, "message": {"role": role, "content": [dict(block)]}, "session_id": session_id}


def result_message(
    text: str, *, is_error: bool, session_id: str | None, usage: Mapping[str, Any], seconds: float
) -> Message:
    return {
        "type": "result",
        "subtype": "error_during_execution" if is_error else "success",
        "is_error": is_error,
        "result": text,
        "session_id": session_id,
        "duration_ms": round(seconds * 1000),
        "usage": dict(usage),
    }


def exec_usage(counts: Mapping[str, Any]) -> dict[str, int]:
    count = {key: int(finite(value)) for key, value in counts.items()}
    cached, written = count.get("cached_input_tokens", 0), count.get("cache_write_input_tokens", 0)
    return {
        "input_tokens": max(0, count.get("input_tokens", 0) - cached - written),
        "output_tokens": count.get("output_tokens", 0),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
    }


def tool_of_exec(item: Mapping[str, Any]) -> tuple[str, dict[str, Any], object] | None:
    """Return tool, input and result of an item; None for an item that is not a tool."""
    match item.get("type"):
        case "command_execution":
            return SHELL, {"command": shell_command(item.get("command"))}, item.get("aggregated_output")
        case "file_change":
            return PATCH, {"changes": as_objects(item.get("changes"))}, item.get("status")
        case "mcp_tool_call":
            name = f"mcp__{item.get('server')}__{item.get('tool')}"
            return name, as_object(item.get("arguments")), item.get("result") or item.get("error")
        case "web_search":
            return "web_search", {"query": item.get("query")}, ""
    return None


class ExecReader:
    """Implements `agents.headless.MessageReader`."""

    def __init__(self) -> None:
        self._lines = JsonLineReader(sys.maxsize)
        self._session_id: str | None = None
        self._text = ""
        self._error = ""
        self._tools: dict[str, str] = {}
        self._begun = time.monotonic()
        self._has_output = False

    def feed(self, data: bytes) -> Iterator[Message]:
        for event in self._lines.feed(data):
            yield from self._read(event)

    def close(self) -> Iterator[Message]:
        for event in self._lines.close():
            yield from self._read(event)

    def _read(self, event: Mapping[str, Any]) -> Iterator[Message]:
        self._has_output = True
        item = as_object(event.get("item"))
        match event.get("type"):
            case "thread.started":
                self._session_id = str(event.get("thread_id"))
                yield init_message(self._session_id)
            case "item.started" | "item.completed":
                yield from self._item(item, done=event["type"] == "item.completed")
            case "error":
                self._error = str(event.get("message", ""))
            case "turn.completed":
                usage = exec_usage(as_object(event.get("usage")))
                yield self._result(self._text, usage, is_error=False)
            case "turn.failed":
                message = str(as_object(event.get("error")).get("message") or self._error)
                yield self._result(message, {}, is_error=True)

    def _item(self, item: Mapping[str, Any], *, done: bool) -> Iterator[Message]:
        if item.get("type") == "agent_message" and done:
            self._text = str(item.get("text", ""))
            yield text_message(self._text, self._session_id)
        found, call = tool_of_exec(item), str(item.get("id"))
        if found is None:
            return
        tool, given, result = found
        if call not in self._tools:
            self._tools[call] = tool
            yield tool_use_message(call, tool, given, self._session_id)
        if done:
            self._tools.pop(call)
            failed = item.get("status") != "completed"
            yield tool_result_message(call, result, failed=failed, session_id=self._session_id)

    def _result(self, text: str, usage: Mapping[str, Any], *, is_error: bool) -> Message:
        seconds = time.monotonic() - self._begun
        return result_message(
            text, is_error=is_error, session_id=self._session_id, usage=usage, seconds=seconds
        )

    def why(self) -> str:
        if not self._has_output:
            return "the agent has printed nothing"
        if self._tools:
            return f"a tool is running: {', '.join(self._tools.values())}"
        return f"the agent is working{f': {self._error}' if self._error else ''}"
