"""Turns a reply into the Responses API's bytes, which codex speaks: a stream of events, or an error."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from ..script import Cut, Fail, Hold, Reply, Step, Text, Thinking, ToolUse, Usage, filler, paced
from .reply_stream import Action, Break, Pause, Send

# The brain of `testing/script` calls the shell by Claude's names; codex 0.166.0 has another tool for it.
_SHELL, _SHELL_TOOL = "Bash", "exec_command"


class ResponsesStream:
    """The server-sent events of one reply. Texts that follow each other share one item."""

    def __init__(self, reply: Reply, model: str) -> None:
        self._reply = reply
        self._response = {"id": f"resp_{uuid.uuid4().hex[:24]}", "object": "response", "model": model}
        self._index = -1
        self._open: dict[str, Any] | None = None
        self._text = ""

    def __iter__(self) -> Iterator[Action]:
        yield _event("response.created", response=self._response)
        for step in self._reply.steps:
            yield from self._step(step)
            if isinstance(step, Fail):
                return
        yield from self._close()
        done = {**self._response, "status": "completed", "output": [], "usage": _usage(self._reply.usage)}
        yield _event("response.completed", response=done)

    def _step(self, step: Step) -> Iterator[Action]:
        match step:
            case Text():
                yield from self._words("message", step.text, step.seconds)
            case Thinking():
                yield from self._words("reasoning", step.text, step.seconds)
            case ToolUse():
                yield from self._tool(step)
            case Cut():
                yield from self._words("message", filler(step.after_words), 0)
                yield Break()
            case Fail():
                error = responses_error(step)["error"]
                yield _event("response.failed", response={**self._response, "error": error})
            case Hold():
                yield step

    def _words(self, kind: str, text: str, seconds: float) -> Iterator[Action]:
        if self._open is None or self._open["type"] != kind:
            yield from self._close()
            role = {"role": "assistant", "content": []} if kind == "message" else {"summary": []}
            yield from self._start({"type": kind, "id": f"{kind[:3]}_{uuid.uuid4().hex[:24]}", **role})
        is_text = kind == "message"
        name = "response.output_text.delta" if is_text else "response.reasoning_summary_text.delta"
        within = {"content_index": 0} if is_text else {"summary_index": 0}
        for wait, piece in paced(text, seconds):
            if wait:
                yield Pause(wait)
            self._text += piece
            assert self._open is not None
            where = {"item_id": self._open["id"], "output_index": self._index, **within}
            yield _event(name, delta=piece, **where)

    def _tool(self, step: ToolUse) -> Iterator[Action]:
        yield from self._close()
        name, given = step.name, dict(step.input)
        if name == _SHELL:
            name, given = _SHELL_TOOL, {"cmd": given.get("command", "")}
        call = step.id or f"call_{uuid.uuid4().hex[:24]}"
        yield from self._start(
            {
                "type": "function_call",
                "id": f"fc_{uuid.uuid4().hex[:24]}",
                "name": name,
                "arguments": json.dumps(given),
                "call_id": call,
            }
        )
        yield from self._close()

    def _start(self, item: dict[str, Any]) -> Iterator[Action]:
        self._index += 1
        self._open, self._text = item, ""
        yield _event("response.output_item.added", output_index=self._index, item=item)

    def _close(self) -> Iterator[Action]:
        item, self._open = self._open, None
        if item is None:
            return
        if item["type"] == "message":
            item = {**item, "content": [{"type": "output_text", "text": self._text, "annotations": []}]}
        elif item["type"] == "reasoning":
            item = {**item, "summary": [{"type": "summary_text", "text": self._text}]}
        yield _event("response.output_item.done", output_index=self._index, item=item)


def responses_error(fail: Fail) -> dict[str, Any]:
    """Return the API's JSON for an error. The wait of a usage limit is in the body, not in a header."""
    error: dict[str, Any] = {"type": fail.kind, "code": fail.kind, "message": fail.message}
    if (wait := fail.headers.get("retry-after")) is not None:
        error["resets_at"] = int(time.time() + float(wait))
    return {"error": error}


def _usage(usage: Usage) -> dict[str, Any]:
    """Return the counts as this API has them: the input includes what was cached."""
    given = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": usage.cache_read_input_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": given + usage.output_tokens,
    }


def _event(kind: str, **fields: Any) -> Send:
    data: Mapping[str, Any] = {"type": kind, **fields}
    return Send(f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode())
