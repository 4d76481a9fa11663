"""The output of Claude Code's `-p` with stream-json: bytes to messages. Pure."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

from remuda.untrusted import BadJson, parse_json

Message = dict[str, Any]

MAX_LINE_BYTES: Final = 64 << 20
"""A longer line is dropped. A message holds one tool result, a picture for example."""


class LineReader:
    """Takes bytes in any pieces. Lines that are not messages are left out; `dropped` counts too long ones."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self.dropped = 0

    def feed(self, data: bytes) -> Iterator[Message]:
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            yield from self._line()
        self._add(rest)

    def close(self) -> Iterator[Message]:
        """Take the end of the output: the last line may be complete without a newline."""
        if self._size:
            yield from self._line()

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._max:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def _line(self) -> Iterator[Message]:
        size, line = self._size, b"".join(self._pieces)
        self._size = 0
        self._pieces.clear()
        if size > self._max:
            self.dropped += 1
            return
        message = _parsed(line)
        if message is not None:
            yield message


def _parsed(line: bytes) -> Message | None:
    try:
        message = parse_json(line)
    except BadJson:
        return None
    return message if isinstance(message, dict) else None


class PrintReader:
    """The messages of one call, and what the agent is doing. Implements `agents.headless.MessageReader`."""

    def __init__(self) -> None:
        self._lines = LineReader(sys.maxsize)
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
