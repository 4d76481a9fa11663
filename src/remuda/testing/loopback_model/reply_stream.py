"""Turns a reply into the Messages API's bytes: a stream of events, one message, or an error. No I/O.

A player is a sequence of actions for the server: bytes to :class:`Send`, a :class:`Pause`, a gate to wait at
(:class:`~remuda.testing.script.Hold`), or :class:`Break`, after which nothing more may be sent.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from ..script import Cut, Fail, Hold, Reply, Step, Text, Thinking, ToolUse, filler, paced


@dataclass(frozen=True, slots=True)
class Send:
    data: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Break:
    """Close the connection in the middle of the answer."""


Action: TypeAlias = Send | Pause | Hold | Break


class EventStream:
    """The server-sent events of one reply.

    Texts that follow each other, be it past a gate, share one content block, as a model's words do.
    """

    def __init__(self, reply: Reply, model: str) -> None:
        self._reply = reply
        self._model = model
        self._index = -1
        self._open = ""

    def __iter__(self) -> Iterator[Action]:
        yield from self._begin()
        for step in self._reply.steps:
            yield from self._step(step)
            if isinstance(step, Fail):
                return
        yield from self._close()
        yield self._event(
            "message_delta",
            delta={"stop_reason": self._reply.stop_reason, "stop_sequence": None},
            usage={"output_tokens": self._reply.usage.output_tokens},
        )
        yield self._event("message_stop")

    def _begin(self) -> Iterator[Action]:
        usage = {**asdict(self._reply.usage), "output_tokens": 1}
        yield self._event("message_start", message=_message(self._model, [], None, usage))
        yield self._event("ping")

    def _step(self, step: Step) -> Iterator[Action]:
        match step:
            case Text():
                yield from self._words("text", step.text, step.seconds)
            case Thinking():
                yield from self._words("thinking", step.text, step.seconds)
            case ToolUse():
                yield from self._tool(step)
            case Cut():
                yield from self._words("text", filler(step.after_words), 0)
                yield Break()
            case Fail():
                yield Send(_sse("error", error_body(step)))
            case Hold():
                yield step

    def _words(self, kind: str, text: str, seconds: float) -> Iterator[Action]:
        if self._open != kind:
            empty = {"text": ""} if kind == "text" else {"thinking": "", "signature": ""}
            yield from self._start(kind, {"type": kind, **empty})
        for wait, piece in paced(text, seconds):
            if wait:
                yield Pause(wait)
            yield self._delta({"type": f"{kind}_delta", kind: piece})

    def _tool(self, step: ToolUse) -> Iterator[Action]:
        yield from self._start("tool_use", {**tool_block(step), "input": {}})
        written = json.dumps(dict(step.input))
        # In two parts, as the API never promises that a part is JSON by itself.
        for part in (written[: len(written) // 2], written[len(written) // 2 :]):
            yield self._delta({"type": "input_json_delta", "partial_json": part})
        yield from self._close()

    def _start(self, kind: str, block: Mapping[str, Any]) -> Iterator[Action]:
        yield from self._close()
        self._index += 1
        self._open = kind
        yield self._event("content_block_start", index=self._index, content_block=block)

    def _close(self) -> Iterator[Action]:
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": "bG9vcGJhY2s="})
        if self._open:
            self._open = ""
            yield self._event("content_block_stop", index=self._index)

    def _delta(self, delta: Mapping[str, Any]) -> Send:
        return self._event("content_block_delta", index=self._index, delta=delta)

    def _event(self, kind: str, **fields: Any) -> Send:
        return Send(_sse(kind, {"type": kind, **fields}))


def whole_message(reply: Reply, model: str) -> dict[str, Any]:
    """Return the reply as one message, as the API answers without ``stream``."""
    content = [_block(step) for step in reply.steps if isinstance(step, Text | Thinking | ToolUse)]
    return _message(model, content, reply.stop_reason, asdict(reply.usage))


def waits(reply: Reply) -> Iterator[Action]:
    """Yield what a plain answer has to wait for before it is sent, and whether it is sent at all."""
    for step in reply.steps:
        match step:
            case Text(seconds=seconds) | Thinking(seconds=seconds) if seconds:
                yield Pause(seconds)
            case Hold():
                yield step
            case Cut():
                yield Break()
            case _:
                pass


def error_body(fail: Fail) -> dict[str, Any]:
    """Return the API's JSON for an error."""
    error = {"type": fail.kind, "message": fail.message}
    return {"type": "error", "error": error, "request_id": f"req_{uuid.uuid4().hex[:24]}"}


def tool_block(step: ToolUse) -> dict[str, Any]:
    """Return a tool call as a content block, with an id of its own where the step has none."""
    call = step.id or f"toolu_{uuid.uuid4().hex[:24]}"
    return {"type": "tool_use", "id": call, "name": step.name, "input": dict(step.input)}


def _block(step: Text | Thinking | ToolUse) -> dict[str, Any]:
    match step:
        case Text():
            return {"type": "text", "text": step.text}
        case Thinking():
            return {"type": "thinking", "thinking": step.text, "signature": "bG9vcGJhY2s="}
        case ToolUse():
            return tool_block(step)


def _message(
    model: str, content: list[dict[str, Any]], stop_reason: str | None, usage: Mapping[str, int]
) -> dict[str, Any]:
    return {
        "id": f"msg_{uuid.uuid4().hex[:24]}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": dict(usage),
    }


def _sse(kind: str, data: Mapping[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()
