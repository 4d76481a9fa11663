"""One request to the made-up model: its tries, its words as they come, and the lines that they write."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from remuda.testing.script import (
    Cut,
    Fail,
    Reply,
    Step,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    filler,
    paced,
    reply_to,
)

from . import records
from .layout import Block
from .records import ModelMessage, Record, new_id
from .stage import Stage

_OVERLOAD_DELAYS = (0.59, 1.13)
_MAX_RETRIES = 10
_LONGEST_DELAY = 32.0
_ERROR_NAMES = {401: "authentication_failed", 403: "authentication_failed", 429: "rate_limit"}
_RETRIED = frozenset({401, 429, 500, 502, 503, 504})


class ApiFailed(Exception):  # named for what happened
    """The answer will not come. The text is what the user is shown."""

    def __init__(self, text: str, name: str, status: int | None, kind: str) -> None:
        super().__init__(text)
        self.text = text
        self.name = name
        self.status = status
        self.kind = kind


@dataclass(slots=True)
class Said:
    """An answer of the model: its text, its calls, and the transcript's line that has each call."""

    text: str = ""
    calls: list[tuple[ToolUse, str]] = field(default_factory=list)
    message_id: str | None = None


class ModelRequest:
    """Plays one reply. ``begun`` turns true with its first byte, ``partial`` is what came so far."""

    def __init__(self, stage: Stage, turn_id: str) -> None:
        self._stage = stage
        self._turn_id = turn_id
        self.begun = False
        self.partial = ""
        self._blocks: list[Record] = []
        counts = records.usage(Reply().usage, more=stage.knobs.unknown_usage_fields)
        self._message = ModelMessage(f"msg_{time.time_ns()}", stage.session.model, counts, new_id())

    async def run(self, said: str | ToolResult) -> Said:
        """Return the answer; ApiFailed when there is none."""
        session = self._stage.session
        reply = self._reply(said, session.said + 1)
        failure = reply.steps[0] if reply.steps else None
        if isinstance(failure, Fail):
            await self._fail(failure)
        for step in reply.steps:
            await self._play(step)
        # Only answers that came in full are counted, as the loopback model counts them.
        session.said += 1
        self._message.stop_reason = reply.stop_reason
        return self._record(reply)

    def interrupted_line(self) -> Record:
        """Return the line for what had come when the user pressed Esc."""
        block = {"type": "text", "text": self.partial}
        return self._message.line(0, block, aborted=True)

    @property
    def message_id(self) -> str:
        """The message's id."""
        return self._message.id

    def _reply(self, said: str | ToolResult, number: int) -> Reply:
        response = self._stage.knobs.response
        return reply_to(said, number) if response is None else Reply.of(response)

    async def _play(self, step: Step) -> None:
        match step:
            case Thinking(text, seconds):
                # Not yet begun: Esc while it thinks gives the prompt back.
                await self._stage.loop.sleep(seconds)
                self._blocks.append({"type": "thinking", "thinking": text, "signature": "made-up"})
            case Text(text, seconds):
                await self._speak(text, seconds)
            case ToolUse(name, given, call_id):
                self.begun = True
                call = {"type": "tool_use", "id": call_id or f"toolu_{time.time_ns()}", "name": name}
                self._blocks.append({**call, "input": dict(given)})
            case Cut(after_words):
                await self._break_off(filler(after_words))
            case Fail():
                raise failed(step)

    async def _speak(self, text: str, seconds: float) -> None:
        shown: Block | None = None
        display = Display(self._stage, self._turn_id)
        self.partial = ""
        for wait, piece in paced(text, seconds):
            if wait:
                await self._stage.loop.sleep(wait)
            self.begun = True
            self.partial += piece
            self._stage.face.heard(len(piece))
            display.feed(piece)
            # A line is shown when it is complete, as the real program does.
            finished = self.partial[: self.partial.rfind("\n") + 1].rstrip("\n")
            if finished and seconds:
                shown = shown or self._stage.face.show("", "● ")
                shown.text = finished
                self._stage.face.refresh()
        shown = shown or self._stage.face.show("", "● ")
        shown.text = text.rstrip()
        self._stage.face.refresh()
        display.finish()
        self._blocks.append({"type": "text", "text": text})

    async def _break_off(self, text: str) -> None:
        await self._retry("Connection dropped (ECONNRESET)", 0)
        await self._speak(text, 0)
        raise ApiFailed(
            "API Error: Connection to the API was lost (ECONNRESET). This is usually temporary — try again.",
            "server_error",
            None,
            "connection_failed",
        )

    def _record(self, reply: Reply) -> Said:
        stage, transcript = self._stage, self._stage.session.transcript
        said = Said(message_id=self._message.id)
        texts = [block["text"] for block in self._blocks if block["type"] == "text"]
        said.text = "\n".join(texts)
        lines = [self._message.line(index, block) for index, block in enumerate(self._blocks)]
        tools = [block["name"] for block in self._blocks if block["type"] == "tool_use"]
        if tools:
            transcript.helper("tools-used", {"tools": tools})
        elif stage.knobs.delay_jsonl:
            stage.loop.later(stage.knobs.delay_jsonl, lambda: transcript.add_all(lines))
            return said
        for line, block in zip(lines, self._blocks, strict=True):
            line_id = transcript.add(line)
            if block["type"] == "tool_use":
                said.calls.append((ToolUse(block["name"], block["input"], block["id"]), line_id))
        return said

    async def _fail(self, failure: Fail) -> None:
        """Try again as often and as long as the real program would, then give up."""
        if failure.status == 529:
            for delay in _OVERLOAD_DELAYS:
                await self._stage.loop.sleep(delay * self._stage.knobs.time_scale)
        elif failure.status in _RETRIED:
            asked = float(failure.headers.get("retry-after") or 0)
            await self._retry(f"{failure.status} {failure.message}", asked)
        raise failed(failure)

    async def _retry(self, what: str, asked: float) -> None:
        configured = self._stage.environ.get("CLAUDE_CODE_MAX_RETRIES", "")
        most = int(configured) if configured.isdigit() else _MAX_RETRIES
        try:
            for attempt in range(1, most + 1):
                delay = max(asked, min(_LONGEST_DELAY, 0.5 * 2 ** (attempt - 1)))
                await self._count_down(what, delay, f"attempt {attempt}/{most}")
        finally:
            self._stage.face.retrying(None)

    async def _count_down(self, what: str, delay: float, attempt: str) -> None:
        for left in range(max(1, round(delay)), 0, -1):
            self._stage.face.retrying(f"✻ {what} · Retrying in {left}s · {attempt}")
            await self._stage.loop.sleep(min(1.0, delay) * self._stage.knobs.time_scale)


def failed(failure: Fail) -> ApiFailed:
    status = failure.status
    name = _ERROR_NAMES.get(status, "server_error" if status >= 500 else "unknown")
    return ApiFailed(_error_text(status, failure.message), name, status, failure.kind)


def _error_text(status: int, message: str) -> str:
    """Return how the real program words an error, but for its gateway's address."""
    gateway = "If it persists, check your inference gateway (made up)."
    match status:
        case 401 | 403:
            return f"Please run /login · API Error: {status} {message}"
        case 429:
            return f"API Error: Request rejected (429) · {message}"
        case 529:
            return (
                "API Error: Repeated 529 Overloaded errors. The API is at capacity — this is usually"
                f" temporary. Try again in a moment. {gateway}"
            )
        case _ if status >= 500:
            usual = "This is a server-side issue, usually temporary — try again in a moment."
            return f"API Error: {status} {message}. {usual} {gateway}"
        case _:
            return f"API Error: {status} {message}"


class Display:
    """Reports the text to hooks as it grows: an event for every run of finished lines, and one at the end."""

    def __init__(self, stage: Stage, turn_id: str) -> None:
        self._stage = stage
        self._fields = {"turn_id": turn_id, "message_id": new_id()}
        self._pending = ""
        self._index = 0

    def feed(self, piece: str) -> None:
        """More of the text has come."""
        self._pending += piece
        finished, newline, rest = self._pending.rpartition("\n")
        if newline:
            self._emit(finished + newline, final=False)
            self._pending = rest

    def finish(self) -> None:
        """The text is complete."""
        self._emit(self._pending, final=True)

    def _emit(self, delta: str, *, final: bool) -> None:
        self._stage.announce(
            "MessageDisplay", {**self._fields, "index": self._index, "final": final, "delta": delta}
        )
        self._index += 1
