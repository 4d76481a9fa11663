"""The output of Claude Code's `-p` with stream-json, and what the agent is doing. Pure."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from remuda.agents.json_lines import JsonLineReader, Message

TYPE_CHECKING = False  # as type checkers read it; importing `typing` takes 2 ms
if TYPE_CHECKING:
    from typing import Any


class PrintReader:
    """The messages of one call, and what the agent is doing. Implements `agents.headless.MessageReader`."""

    def __init__(self) -> None:
        self._lines = JsonLineReader(sys.maxsize)
        self._has_output = False
        self._retry: Mapping[str, Any] | None = None
        self._tools: dict[str, str] = {}

    def feed(self, data: bytes) -> Iterator[Message]:
        return self._noted(self._lines.feed(data))

    def close(self) -> Iterator[Message]:
        return self._noted(self._lines.close())

    def _noted(self, messages: Iterator[Message]) -> Iterator[Message]:
        for message in messages:
            self._note(message)
            yield message

    def _note(self, message: Message) -> None:
        self._has_output = True
        if message.get("subtype") == "api_retry":
            self._retry = message
        elif message.get("type") in ("assistant", "user"):
            self._retry = None
            for block in _blocks(message):
                if block.get("type") == "tool_use":
                    self._tools[str(block.get("id"))] = str(block.get("name"))
                elif block.get("type") == "tool_result":
                    self._tools.pop(str(block.get("tool_use_id")), None)

    def why(self) -> str:
        if not self._has_output:
            return "the agent has printed nothing"
        if self._retry is not None:
            attempt, most = self._retry.get("attempt"), self._retry.get("max_retries")
            return f"the agent is retrying the API, attempt {attempt} of {most}"
        if self._tools:
            return f"a tool is running: {', '.join(self._tools.values())}"
        return "the agent is working"


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    inner = message.get("message")
    content = inner.get("content") if isinstance(inner, Mapping) else None
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []
