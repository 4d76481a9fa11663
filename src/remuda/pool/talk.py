"""Talking with a held Claude Code in its stream-json protocol.

What it says becomes state in the moment it comes, whether or not anybody follows: so it is known of a session
that nobody looks at that it was woken, and of a turn that was given up that it has ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import uuid4

from remuda.agents.claude import stream
from remuda.agents.claude.command import Command
from remuda.agents.claude.residue import Residue
from remuda.agents.claude.stream import LineReader, Message, events_of
from remuda.agents.claude.stream_events import (
    Asked,
    Begun,
    Ended,
    Event,
    Replied,
    Reset,
    Spoke,
    ToolCalled,
    Unanswerable,
)
from remuda.errors import RemoteProtocolError, SessionCrashed

from .held import HeldProcess

_OF_A_TURN = (Begun, Ended, Spoke, ToolCalled)
_NOT_OURS = "this client does not support that request"
_GIVEN_UP = "the request was aborted"


class Talk:
    """`on_stray`: it has begun a turn that nobody asked for. `on_end`: the process is gone."""

    def __init__(self, on_stray: Callable[[], None], on_end: Callable[[], None]) -> None:
        self.process = HeldProcess(self._hear, self._end)
        self.residue = Residue()
        self.conversation_id = ""
        self.turns = 0
        """Begun, also by commands of the CLI's own."""
        self.was_reset = False
        """Since the command in hand was sent."""
        self.command: Command | None = None
        self._on_stray, self._on_end = on_stray, on_end
        self._lines = LineReader()
        self._replies: dict[str, Replied | None] = {}
        self._followed: deque[tuple[Message, list[Event]]] | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def start(self, argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
        self.process.start(argv, cwd, env)

    # ── saying ──

    def send(self, line: bytes) -> None:
        self.process.write(line)

    def begin(self, command: Command, data: bytes, *, last: bool = False) -> None:
        """Say what begins a turn; the one before is over. Nothing more can be said behind the last."""
        self.command, self.was_reset = command, False
        self.process.write(data)
        if last:
            self.process.close_input()

    async def ask(self, line: Callable[[str], bytes]) -> Replied:
        """A control request, and its reply. Raises `SessionCrashed`; the caller bounds it."""
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

    # ── hearing ──

    async def until(self, true: Callable[[], bool]) -> None:
        """Raises `SessionCrashed` when it will not become true; the caller bounds it."""
        while not true():
            self._check_alive()
            await self._change()

    async def _change(self) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def check_running(self) -> None:
        if self.process.ended:
            raise SessionCrashed("the agent exited", detail=self.process.detail())

    def _check_alive(self) -> None:
        self.check_running()
        if self._lines.dropped:
            self.residue.add("a message that was too long")
            raise RemoteProtocolError(f"the agent sent a message of more than {stream.MAX_LINE_BYTES} bytes")

    @contextmanager
    def follow(self) -> Iterator[None]:
        """All that comes meanwhile is kept for `next`."""
        self._followed = deque()
        try:
            yield
        finally:
            self._followed = None

    async def next(self) -> tuple[Message, list[Event]] | None:
        """A message and what it means; None when the command in hand is over. Raises `SessionCrashed`."""
        assert self._followed is not None
        while not self._followed:
            if self.command is None or self.command.over:
                return None
            self._check_alive()
            await self._change()
        return self._followed.popleft()

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    def _hear(self, data: bytes) -> None:
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
        self.residue.take(event)
        if isinstance(event, _OF_A_TURN) and (self.command is None or self.command.over):
            self.residue.add("a turn that was not requested")
            self._on_stray()
        match event:
            case Replied(request_id):
                if request_id in self._replies:
                    self._replies[request_id] = event
            case Unanswerable(request_id):
                self.send(stream.refuse(request_id, _NOT_OURS))
            case Asked(request_id) if self._followed is None:
                self.send(stream.deny(request_id, _GIVEN_UP))
            case Reset():
                self.was_reset = True
            case Begun(conversation_id):
                self.conversation_id = conversation_id
                self.turns += 1
            case _:
                pass
        if self.command is not None:
            self.command.take(event)

    def _end(self) -> None:
        self._take(self._lines.close())
        if self.command is not None:
            self.command.process_ended = True
        self.wake()
        self._on_end()
