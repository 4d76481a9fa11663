"""A client of one Claude Code process in its stream-json protocol.

Every event changes the state when it comes, whether or not a request follows it. So it is known of an idle
worker that it was woken, and of a turn that was given up that it has ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import uuid4

from remuda.agents.json_lines import MAX_LINE_BYTES, JsonLineReader
from remuda.errors import RemoteProtocolError, SessionCrashed
from remuda.supervised.child_process import SupervisedProcess
from remuda.tasks import Wakeup

from . import stream_protocol
from .prompt_progress import CarryOver, PromptProgress
from .stream_events import (
    ControlReply,
    ConversationReset,
    Event,
    MessagePart,
    PermissionAsked,
    StreamTurnBegun,
    ToolCalled,
    TurnResult,
    UnsupportedRequest,
)
from .stream_protocol import Message, events_of

_OF_A_TURN = (StreamTurnBegun, TurnResult, MessagePart, ToolCalled)
_UNSUPPORTED = "this client does not support that request"
_GIVEN_UP = "the request was aborted"


class StreamClient:
    """`on_stray`: the agent has begun a turn that was not requested. `on_end`: the process has ended."""

    def __init__(self, on_stray: Callable[[], None], on_end: Callable[[], None]) -> None:
        self.process = SupervisedProcess(self._take_output, self._end)
        self.carry_over = CarryOver()
        self.conversation_id = ""
        self.turns = 0
        """How many turns have begun, those of the CLI's own commands too."""
        self.was_reset = False
        """Whether the conversation was cleared since the last prompt was sent."""
        self.progress: PromptProgress | None = None
        """Of the last prompt."""
        self._on_stray, self._on_end = on_stray, on_end
        self._lines = JsonLineReader()
        self._replies: dict[str, ControlReply | None] = {}
        self._followed: deque[tuple[Message, list[Event]]] | None = None
        self._wakeup = Wakeup()

    def start(self, argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
        self.process.start(argv, cwd, env, asyncio.get_running_loop())

    # ── sending ──

    def send(self, line: bytes) -> None:
        self.process.write(line)

    def begin(self, progress: PromptProgress, data: bytes, *, last: bool = False) -> None:
        """Send what begins a turn; the one before is over. Nothing can be sent after the last."""
        self.progress, self.was_reset = progress, False
        self.process.write(data)
        if last:
            self.process.close_input()

    async def ask(self, line: Callable[[str], bytes]) -> ControlReply:
        """Send a control request and return its reply. Raises `SessionCrashed`. The caller sets a timeout."""
        request_id = str(uuid4())
        self._replies[request_id] = None
        try:
            self.send(line(request_id))
            await self.until(lambda: self._replies[request_id] is not None)
            reply = self._replies[request_id]
            assert reply is not None
            return reply
        finally:
            del self._replies[request_id]

    # ── receiving ──

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition. Raises `SessionCrashed` if it cannot come true. The caller sets a timeout."""
        while not condition():
            self._check_alive()
            await self._wakeup.wait()

    def check_running(self) -> None:
        if self.process.ended:
            raise SessionCrashed("the agent exited", detail=self.process.detail())

    def _check_alive(self) -> None:
        self.check_running()
        if self._lines.dropped:
            self.carry_over.add("a message that was too long")
            raise RemoteProtocolError(f"the agent sent a message of more than {MAX_LINE_BYTES} bytes")

    @contextmanager
    def follow(self) -> Iterator[None]:
        """Keep everything that comes within the block for `next`."""
        self._followed = deque()
        try:
            yield
        finally:
            self._followed = None

    async def next(self) -> tuple[Message, list[Event]] | None:
        """Return a message and its events; None when the prompt's turn is over. Raises `SessionCrashed`."""
        assert self._followed is not None
        while not self._followed:
            if self.progress is None or self.progress.over:
                return None
            self._check_alive()
            await self._wakeup.wait()
        return self._followed.popleft()

    def wake(self) -> None:
        """Let `until` and `next` check again."""
        self._wakeup.notify()

    def _take_output(self, data: bytes) -> None:
        self._take(self._lines.feed(data))

    def _take(self, messages: Iterator[Message]) -> None:
        for message in messages:
            events = events_of(message)
            for event in events:
                self._note(event)
            if self._followed is not None:
                self._followed.append((message, events))
        self.wake()

    def _note(self, event: Event) -> None:
        self.carry_over.take(event)
        if isinstance(event, _OF_A_TURN) and (self.progress is None or self.progress.over):
            self.carry_over.add("a turn that was not requested")
            self._on_stray()
        match event:
            case ControlReply(request_id):
                if request_id in self._replies:
                    self._replies[request_id] = event
            case UnsupportedRequest(request_id):
                self.send(stream_protocol.refuse(request_id, _UNSUPPORTED))
            case PermissionAsked(request_id) if self._followed is None:
                self.send(stream_protocol.deny(request_id, _GIVEN_UP))
            case ConversationReset():
                self.was_reset = True
            case StreamTurnBegun(conversation_id):
                self.conversation_id = conversation_id
                self.turns += 1
            case _:
                pass
        if self.progress is not None:
            self.progress.take(event)

    def _end(self) -> None:
        self._take(self._lines.close())
        if self.progress is not None:
            self.progress.process_ended = True
        self.wake()
        self._on_end()
