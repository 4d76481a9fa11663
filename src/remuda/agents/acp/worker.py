"""A worker of a pool on an agent that speaks ACP: one process, and a conversation for each request.

The conversation of a request is never used again. Nothing of it can be in the next one but what the process
itself keeps: a permission for good is therefore never given, and a process that runs on makes the worker
unusable.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Literal

from remuda.agents.warm import (
    Allow,
    Answered,
    Decision,
    ExitListeners,
    PermissionRequest,
    Request,
    SessionEvent,
    Token,
    ToolResult,
    ToolUse,
    Usage,
    WorkerProfile,
)
from remuda.errors import (
    Aborted,
    AgentError,
    CommandNotFound,
    InvalidOptions,
    SessionCrashed,
    SessionDirty,
    SpawnFailed,
    SpawnTimeout,
    WaitTimeout,
)
from remuda.supervised.child_process import outliving
from remuda.tasks import TaskSet
from remuda.untrusted import as_object

from . import protocol
from .asking import EDITED
from .client import AcpClient, RpcRefused
from .protocol import Call, Notification, PermissionAsked, TextPiece, ToolBegan, ToolEnded

_HELPER_TIMEOUT = 0.5
"""Seconds that a helper of the turn, a hook for example, has to end by itself."""
_FAILED = "the permission request could not be decided"
_STRAY = "a turn that was not requested"
ALWAYS = "a pool gives no permission for good to an agent that speaks ACP; allow it once"
_VERSION = "1"


class AcpTurn:
    """One prompt and what is reported of it, until its call is answered."""

    def __init__(self) -> None:
        self.incoming: deque[Call | Notification] = deque()
        self.changed = asyncio.Event()
        self.result: Mapping[str, Any] | None = None
        self.error: Exception | None = None
        self.failure: Exception | None = None
        """What the caller's decision raised."""
        self.text = ""
        self.last_piece = ""
        self.denied: list[dict[str, Any]] = []
        self.stopped_by_decision = False
        self.tools: dict[str, ToolBegan] = {}
        self.followed = True
        """Whether the caller still reads it. If not, its permission requests are denied."""

    @property
    def over(self) -> bool:
        return self.result is not None or self.error is not None

    def usage(self) -> Usage | None:
        used = protocol.read_usage(self.result or {})
        if used is None:
            return None
        return Usage(
            used["input_tokens"],
            used["output_tokens"],
            used["cache_creation_input_tokens"],
            used["cache_read_input_tokens"],
        )


class AcpWorker:
    """An agent gives `command`, and may check an answer in `find_failure`."""

    backend: ClassVar[Literal["stream", "print"]] = "stream"

    def __init__(self, session_id: str, profile: WorkerProfile) -> None:
        self.id = session_id
        self.profile = profile
        self.client = AcpClient(self._take, self._exited)
        self.conversation_id = ""
        self._turn: AcpTurn | None = None
        self._calling: asyncio.Task[None] | None = None
        self._deciding = TaskSet()
        self._fresh = False
        self._can_close_conversation = False
        self._own: frozenset[int] = frozenset()
        self._dirty: list[str] = []
        self._exits = ExitListeners()

    # ── what an agent gives ──

    def command(self) -> Sequence[str]:
        """Return the command that speaks ACP. Raises `InvalidOptions`."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return self.profile.env

    async def find_failure(self, conversation_id: str, turn: AcpTurn) -> str | None:
        """Return the error that the agent reported as if it were an answer; None if it is one."""
        return None

    def check_prompt(self, prompt: str) -> None:
        """Raise `InputError` for a prompt that cannot be sent."""

    # ── starting ──

    async def open(self, timeout: float) -> None:
        _check_program(self.profile.binary)
        self.client.start(self.command(), self.profile.cwd, self.environment())
        step = "it has not answered 'initialize'"
        try:
            async with asyncio.timeout(timeout):
                told = await self.client.call("initialize", protocol.initialize(_VERSION))
                if told.get("protocolVersion") != protocol.VERSION:
                    raise SpawnFailed(f"the agent speaks version {told.get('protocolVersion')!r} of ACP")
                able = as_object(as_object(told.get("agentCapabilities")).get("sessionCapabilities"))
                self._can_close_conversation = "close" in able
                step = "it has not started a conversation"
                await self._start_conversation()
        except TimeoutError:
            complaint = self.client.process.complaint()
            words = f"; stderr: {complaint}" if complaint else ""
            raise SpawnTimeout(f"the agent was not ready within {timeout:g} s: {step}{words}") from None
        except RpcRefused as error:
            raise SpawnFailed(f"the agent is not ready: {step}: {error}") from None
        except SessionCrashed as crash:
            raise SpawnFailed(f"the agent exited before it was ready: {crash.detail}") from None
        self._own = frozenset(self.client.process.descendants())

    async def _start_conversation(self) -> None:
        told = await self.client.call("session/new", {"cwd": self.profile.cwd, "mcpServers": []})
        conversation = told.get("sessionId")
        if not isinstance(conversation, str) or conversation == self.conversation_id:
            raise SessionDirty("the agent did not confirm a new conversation")
        self.conversation_id = conversation
        self._fresh = True

    # ── a request ──

    async def run(self, request: Request) -> AsyncIterator[SessionEvent]:
        self.check_prompt(request.prompt)
        self.client.check_running()
        if not self._fresh:
            raise SessionDirty("the conversation was not cleared")
        self._fresh = False
        turn = self._turn = AcpTurn()
        self._calling = asyncio.get_running_loop().create_task(self._prompt(turn, request.prompt))
        try:
            while True:
                while turn.incoming:
                    for event in self._translated(turn, request, turn.incoming.popleft()):
                        yield event
                if turn.failure is not None:
                    raise turn.failure
                if turn.over and not turn.incoming:
                    break
                turn.changed.clear()
                await turn.changed.wait()
            yield await self._answer(turn)
        finally:
            turn.followed = False
            self._deciding.cancel()

    async def _prompt(self, turn: AcpTurn, text: str) -> None:
        """Call the agent. Not cancelled with its caller: the agent goes on, and its end must be known."""
        try:
            turn.result = await self.client.call(
                "session/prompt", protocol.prompt(self.conversation_id, text)
            )
        except RpcRefused as error:
            turn.error = AgentError(str(error))
        except Exception as error:  # noqa: BLE001  # raised in the caller's request
            turn.error = error
        turn.changed.set()

    def _translated(
        self, turn: AcpTurn, request: Request, message: Call | Notification
    ) -> list[SessionEvent]:
        if isinstance(message, Call):
            asked = protocol.read_permission(message)
            permission = PermissionRequest(asked.tool_id, asked.tool, asked.input, request.id)
            if not self.profile.asks:
                self._deny(turn, asked)
                return []
            self._deciding.start(self._decide(turn, request, asked, permission))
            return [permission]
        match protocol.read_update(message.params):
            case TextPiece(text):
                turn.text += text
                turn.last_piece = text
                return [Token(text)]
            case ToolBegan() as began:
                turn.text = ""  # what follows the last tool is the answer
                turn.tools[began.id] = began
                return [ToolUse(began.id, began.name, began.input)]
            case ToolEnded() as ended:
                return [self._tool_ended(turn, ended)]
        return []

    def _tool_ended(self, turn: AcpTurn, ended: ToolEnded) -> ToolResult:
        turn.text = ""
        began = turn.tools.get(ended.id)
        if began is not None and not ended.ok and self.is_denial(ended.content):
            turn.denied.append(
                {"tool_name": began.name, "tool_use_id": ended.id, "tool_input": dict(began.input)}
            )
        return ToolResult(
            ended.id, ended.content, is_error=not ended.ok, name=began.name if began is not None else ""
        )

    def is_denial(self, content: object) -> bool:
        """Return whether a tool's error says that its permission was denied."""
        return False

    # ── permission requests ──

    async def _decide(
        self, turn: AcpTurn, request: Request, asked: PermissionAsked, permission: PermissionRequest
    ) -> None:
        try:
            decision = await request.decide(permission)
            _check_decision(decision)
        except Exception as error:  # noqa: BLE001  # it is the caller's code, and raised in its call
            turn.failure = error
            decision = None
        if isinstance(decision, Allow):
            self.client.send(protocol.decide(asked, allow=True))
        else:
            self._deny(turn, asked)
        turn.changed.set()

    def _deny(self, turn: AcpTurn, asked: PermissionAsked) -> None:
        turn.stopped_by_decision = True
        turn.denied.append(
            {"tool_name": asked.tool, "tool_use_id": asked.tool_id, "tool_input": dict(asked.input)}
        )
        self.client.send(protocol.decide(asked, allow=False))

    # ── the answer ──

    async def _answer(self, turn: AcpTurn) -> Answered:
        if turn.error is not None:
            raise turn.error
        assert turn.result is not None
        why = turn.result.get("stopReason")
        failure = await self.find_failure(self.conversation_id, turn)
        if turn.stopped_by_decision and (failure is not None or why == "cancelled"):
            raise Aborted("a denied permission ended the turn")
        if failure is not None:
            raise AgentError(failure)
        if why not in ("end_turn", "max_tokens", "max_turn_requests"):
            raise AgentError(f"the agent stopped: {why}")
        return Answered(
            text=turn.text,
            conversation_id=self.conversation_id,
            usage=turn.usage(),
            permission_denials=tuple(turn.denied),
        )

    async def interrupt(self, timeout: float) -> bool:
        turn = self._turn
        if self.client.process.ended or turn is None or self._calling is None:
            return False
        if not turn.over:
            self.client.send(protocol.notify("session/cancel", {"sessionId": self.conversation_id}))
        await asyncio.wait([self._calling], timeout=timeout)
        return turn.result is not None

    async def usage(self, timeout: float) -> Usage | None:
        return self._turn.usage() if self._turn is not None else None

    # ── between two requests ──

    async def renew(self, timeout: float) -> None:
        self._fresh = False
        try:
            async with asyncio.timeout(timeout):
                await self._check_clean()
                if self._can_close_conversation:
                    await self.client.call("session/close", {"sessionId": self.conversation_id})
                await self._start_conversation()
                await self._check_clean()
        except TimeoutError:
            raise WaitTimeout(f"the conversation was not renewed within {timeout:g} s") from None
        except RpcRefused as error:
            raise SessionDirty(f"the agent did not start a new conversation: {error}") from None

    async def _check_clean(self) -> None:
        self.client.check_running()
        if self._turn is not None and not self._turn.over:
            raise SessionDirty("the agent did not confirm that the turn stopped")
        if self._dirty:
            raise SessionDirty("carry-over: " + ", ".join(self._dirty))
        started = set(self.client.process.descendants()) - self._own
        if started and (left := await outliving(started, _HELPER_TIMEOUT)):
            raise SessionDirty(f"carry-over: {len(left)} running processes, such as pid {left[0]}")

    # ── what comes ──

    def _take(self, message: Call | Notification) -> None:
        ours = message.params.get("sessionId") == self.conversation_id
        turn = self._turn
        if isinstance(message, Call) and message.method != "session/request_permission":
            self.client.send(protocol.refuse(message.id, message.method))
        elif ours and turn is not None and not turn.over and turn.followed:
            turn.incoming.append(message)
            turn.changed.set()
        elif isinstance(message, Call):
            self.client.send(protocol.decide(protocol.read_permission(message), allow=False))
        elif ours and (turn is None or turn.over) and protocol.read_update(message.params) is not None:
            self._strayed()

    def _strayed(self) -> None:
        """Note a turn that began by itself. An idle worker counts as ended at once: no request may get it."""
        if _STRAY not in self._dirty:
            self._dirty.append(_STRAY)
        if self._fresh:
            self._fresh = False
            self.client.process.end()
            self._exits.report(_STRAY)

    # ── the end ──

    def on_exit(self, listener: Callable[[str], None]) -> None:
        self._exits.add(listener)

    def _exited(self) -> None:
        self._fresh = False
        self._exits.report(self.client.process.detail())

    async def close(self, timeout: float) -> None:
        self._exits.silence()
        await self.client.process.close(timeout)
        if self._calling is not None:
            await asyncio.gather(self._calling, return_exceptions=True)


def _check_program(path: str) -> None:
    if not (os.path.isfile(path) and os.access(path, os.X_OK)):
        raise CommandNotFound(f"cannot find the program {path}")


def _check_decision(decision: Decision) -> None:
    if isinstance(decision, Allow) and decision.input is not None:
        raise InvalidOptions(EDITED)
    if isinstance(decision, Allow) and decision.always:
        raise InvalidOptions(ALWAYS)


class AcpPrintWorker:
    """Runs a new process for each request: nothing is warm, and nothing can carry over."""

    backend: ClassVar[Literal["print"]] = "print"

    def __init__(self, session_id: str, profile: WorkerProfile, make: Callable[[], AcpWorker]) -> None:
        self.id = session_id
        self.profile = profile
        self._make = make
        self._worker: AcpWorker | None = None
        self._open_timeout = 0.0

    async def open(self, timeout: float) -> None:
        """Start nothing, but raise what every request would."""
        self._open_timeout = timeout
        self._make().command()
        _check_program(self.profile.binary)

    async def run(self, request: Request) -> AsyncIterator[SessionEvent]:
        worker = self._worker = self._make()
        try:
            await worker.open(self._open_timeout)
        except SpawnFailed as error:
            raise SessionCrashed(error.message, detail=error.message) from error
        async with aclosing(worker.run(request)) as events:  # type: ignore[type-var]
            async for event in events:
                yield event

    async def interrupt(self, timeout: float) -> bool:
        """End the process: nothing less proves that it stopped, and nothing more is lost."""
        await self.close(timeout)
        return self._worker is None or self._worker.client.process.ended

    async def usage(self, timeout: float) -> Usage | None:
        return None if self._worker is None else await self._worker.usage(timeout)

    async def renew(self, timeout: float) -> None:
        await self.close(timeout)

    async def close(self, timeout: float) -> None:
        if self._worker is not None:
            await self._worker.close(timeout)

    def on_exit(self, listener: Callable[[str], None]) -> None:
        """Do nothing: no process runs between two requests."""
