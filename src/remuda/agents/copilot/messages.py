"""Copilot's records as the messages of `remuda print`. Pure but for `CopilotTurn`, which reads a transcript.

`copilot --output-format json` prints the records of its transcript, and pieces of text. It prints no tokens
that were used (1.0.102); the transcript has them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from remuda.agents.headless import Message, TurnEnd
from remuda.agents.json_lines import JsonLineReader
from remuda.jsonl_tail import JsonlTail
from remuda.untrusted import as_object, as_objects, name_at

from .records import read_usage

Record = Mapping[str, Any]
USAGE_UNKNOWN = "usage unknown: copilot prints none"


class TurnMessages:
    """Takes the records of one turn and returns print's messages."""

    def __init__(self, session_id: str | None = None) -> None:
        self.session_id = session_id
        self.version: str | None = None
        self.model: str | None = None
        self.text = ""
        self.error = ""
        self.said_all = False
        self.requests = 0
        self._usage: dict[str, int] = {}

    @property
    def usage(self) -> dict[str, int] | None:
        return dict(self._usage) or None

    def take(self, record: Record) -> Iterator[Message]:
        if record.get("agentId"):
            return
        kind, data = record.get("type"), as_object(record.get("data"))
        if kind == "session.start":
            self.version, self.session_id = name_at(data, "copilotVersion"), name_at(data, "sessionId")
        elif kind == "user.message":
            self.said_all = False
        elif kind == "assistant.message":
            yield self._assistant(data)
        elif kind == "tool.execution_complete":
            yield self._tool_result(data)
        elif kind == "session.usage_record":
            for name, count in read_usage(as_object(data.get("usage"))).items():
                self._usage[name] = self._usage.get(name, 0) + count
        elif kind == "session.error":
            self.error = self.text = str(data.get("message", ""))
        elif kind == "abort":
            self.error = "interrupted"

    def _assistant(self, data: Record) -> Message:
        self.requests += 1
        self.model = name_at(data, "model") or self.model
        text, calls = str(data.get("content") or ""), as_objects(data.get("toolRequests"))
        self.said_all, self.error = not calls, ""
        self.text = text
        content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        content += [
            {
                "type": "tool_use",
                "id": call.get("toolCallId"),
                "name": call.get("name"),
                "input": call.get("arguments"),
            }
            for call in calls
        ]
        return {
            "type": "assistant",
            "message": {
                "id": data.get("messageId"),
                "type": "message",
                "role": "assistant",
                "model": self.model,
                "content": content,
            },
            "session_id": self.session_id,
        }

    def _tool_result(self, data: Record) -> Message:
        ok = data.get("success") is True
        said = (
            as_object(data.get("result")).get("content")
            if ok
            else as_object(data.get("error")).get("message")
        )
        block = {
            "type": "tool_result",
            "tool_use_id": data.get("toolCallId"),
            "content": said,
            "is_error": not ok,
        }
        return {
            "type": "user",
            "message": {"role": "user", "content": [block]},
            "session_id": self.session_id,
        }

    def result(self, ended: TurnEnd, duration_ms: int, backend: str) -> Message:
        message: Message = {
            "type": "result",
            "subtype": ended.subtype,
            "is_error": ended.is_error,
            "duration_ms": duration_ms,
            "num_turns": self.requests,
            "session_id": self.session_id,
            "usage": self.usage if ended.usage_known else None,
            "backend": backend,
            "terminal_reason": ended.reason,
        }
        if ended.errors:
            message["errors"] = list(ended.errors)
        else:
            message["result"] = self.text if ended.text is None else ended.text
        if message["usage"] is None:
            message["degraded"] = [USAGE_UNKNOWN]
        return message


class CopilotTurn:
    """One turn, followed in the transcript. Implements `PrintedTurn`, and is its own `TurnFacts`."""

    woken = goes_on = False

    def __init__(self, emit: Callable[[Message], None] | None = None) -> None:
        self._emit = emit
        self._messages = TurnMessages()
        self._tail: JsonlTail | None = None

    @property
    def facts(self) -> CopilotTurn:
        return self

    def follow(self, path: Path, prompt_id: str | None) -> None:
        self._tail = JsonlTail(path)
        self._messages.session_id = path.parent.name

    def read(self) -> bool:
        found = False
        for record in self._tail.read() if self._tail is not None else ():
            found = True
            for message in self._messages.take(record):
                if self._emit is not None:
                    self._emit(message)
        return found

    def shown(self, text: str) -> None:
        """Do nothing: copilot reports no piece of a text on its terminal."""

    @property
    def version(self) -> str | None:
        return self._messages.version

    @property
    def model(self) -> str | None:
        return self._messages.model

    @property
    def text(self) -> str:
        return self._messages.text

    @property
    def is_api_error(self) -> bool:
        return bool(self._messages.error)

    @property
    def said_all(self) -> bool:
        return self._messages.said_all

    def has(self, answer: str) -> bool:
        return self.said_all and self.text == answer and self._messages.usage is not None

    def result(self, ended: TurnEnd, duration_ms: int, backend: str) -> Message:
        return self._messages.result(ended, duration_ms, backend)


class PrintReader:
    """Reads what `copilot --output-format json` prints."""

    def __init__(self, *, partial: bool = False) -> None:
        self._lines = JsonLineReader(sys.maxsize)
        self._turn = TurnMessages()
        self._partial = partial

    def feed(self, data: bytes) -> Iterator[Message]:
        for record in self._lines.feed(data):
            yield from self._take(record)

    def close(self) -> Iterator[Message]:
        for record in self._lines.close():
            yield from self._take(record)

    def why(self) -> str:
        return "the agent has printed an answer" if self._turn.said_all else "the agent is working"

    def _take(self, record: Record) -> Iterator[Message]:
        if record.get("type") == "result":
            yield self._result(record)
        elif record.get("type") == "assistant.message_delta" and self._partial:
            text = str(as_object(record.get("data")).get("deltaContent") or "")
            yield text_message(text, self._turn.session_id)
        else:
            yield from self._turn.take(record)

    def _result(self, record: Record) -> Message:
        turn = self._turn
        turn.session_id = name_at(record, "sessionId")
        failed = record.get("exitCode") != 0 or bool(turn.error)
        used = as_object(record.get("usage"))
        reason = "api_error" if failed else "completed"
        return turn.result(
            TurnEnd(reason, is_error=failed, usage_known=False),
            int(used.get("sessionDurationMs") or 0),
            "stream",
        )


def text_message(text: str, session_id: str | None) -> Message:
    """Return the message for a piece of the answer."""
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return {"type": "stream_event", "event": delta, "session_id": session_id}
