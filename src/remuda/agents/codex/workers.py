"""The pool's workers: one app-server for many requests, or one `codex exec` for each."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Literal

from remuda.agents.events import (
    AgentEvent,
    Failure,
    MessageRecorded,
    PermissionDecided,
    PermissionRequested,
    TextShown,
    ToolFinished,
    ToolsFinished,
    ToolStarted,
    TurnFailed,
    TurnInterrupted,
    TurnStopped,
)
from remuda.agents.headless import Message
from remuda.agents.json_lines import JsonLineReader
from remuda.agents.permission import PermissionDecision
from remuda.agents.prompting import ChannelLost
from remuda.agents.warm import (
    Allow,
    Answered,
    Decision,
    ExitListeners,
    PermissionRequest,
    Raw,
    Request,
    SessionEvent,
    Spent,
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
from remuda.supervised.child_process import SupervisedProcess, outliving
from remuda.tasks import TaskSet
from remuda.untrusted import as_object, as_objects

from .asking import refusals
from .deciding import decide
from .exec_messages import (
    ExecReader,
    init_message,
    result_message,
    text_message,
    tool_result_message,
    tool_use_message,
)
from .headless import CodexStream
from .notices import ThreadReader, thread_of
from .rpc import CallError, RpcPeer
from .warm import CodexWarm, thread_options

_HELPER_TIMEOUT = 0.5
_EXIT_TIMEOUT = 2.0
# At a SIGTERM it takes 2.4 s to end (0.166.0). It has nothing to save.
_GRACE = 0.3
# Two servers that start at once in a new home get in each other's way (0.166.0): one ends with this.
_BUSY_HOME = "failed to initialize sqlite state runtime"
_START_AGAIN = 0.2
_FAILED = "the permission request could not be decided"


class AppServerWorker:
    """Every request runs in a thread of its own. The thread is unloaded before the next request."""

    backend: ClassVar[Literal["stream"]] = "stream"

    def __init__(self, session_id: str, profile: WorkerProfile) -> None:
        self.id = session_id
        self.profile = profile
        self._process = SupervisedProcess(self._take_output, self._ended)
        self._peer = RpcPeer(self._send)
        self._lines = JsonLineReader(sys.maxsize)
        self._model: object = None
        self._opened = False
        self._reader = ThreadReader()
        self._events: asyncio.Queue[AgentEvent | Spent | None] = asyncio.Queue()
        self._fresh = False
        self._dirt = ""
        self._own: frozenset[int] = frozenset()
        self._usage: Usage | None = None
        self._exits = ExitListeners()
        self._settled = asyncio.Event()
        self._refusing = TaskSet()

    # ── the server ──

    async def open(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                while not await self._start():  # noqa: ASYNC110  # another process is in its way
                    await asyncio.sleep(_START_AGAIN)
        except TimeoutError:
            raise SpawnTimeout(f"codex was not ready within {timeout:g} s: {self._complaint()}") from None
        except CallError as error:
            raise SpawnFailed(f"codex refused to start a conversation: {error}") from None
        self._own = frozenset(self._process.descendants())
        self._fresh = self._opened = True

    async def _start(self) -> bool:
        """Start the server. Return False if it has to be started again."""
        self._process = SupervisedProcess(self._take_output, self._ended)
        self._peer, self._lines = RpcPeer(self._send), JsonLineReader(sys.maxsize)
        argv = [*self.profile.program, "app-server", "--stdio", *CodexWarm().arguments(self.profile)]
        loop = asyncio.get_running_loop()
        self._process.start(argv, self.profile.cwd, dict(self.profile.env), loop, grace=_GRACE)
        try:
            await self._peer.begin()
            await self._begin_thread()
        except ChannelLost:
            why = self._process.detail()
            if _BUSY_HOME in why:
                return False
            raise SpawnFailed(f"codex ended before it was ready: {why}") from None
        return True

    async def _begin_thread(self) -> None:
        answer = await self._peer.call("thread/start", **thread_options(self.profile, self.profile.cwd))
        self._reader = ThreadReader()
        self._reader.join(as_object(answer.get("thread")), "startup")
        self._model = answer.get("model")

    def _complaint(self) -> str:
        return self._process.complaint() or "it printed no error"

    async def _send(self, text: str) -> None:
        if self._process.ended:
            raise ChannelLost("codex has ended")
        self._process.write(text.encode() + b"\n")

    def _take_output(self, data: bytes) -> None:
        for message in self._lines.feed(data):
            if not self._peer.take(message):
                self._take(message)

    def _take(self, message: Mapping[str, Any]) -> None:
        report = self._reader.read(message)
        if "id" in message and message["id"] not in [one[0] for one in self._reader.open.values()]:
            self._refusing.start(self._refuse(message))
        for event in report.events if report is not None else ():
            self._events.put_nowait(event)
        if message.get("method") == "thread/tokenUsage/updated" and (used := self._reader.used):
            self._events.put_nowait(Spent(Usage(**used)))
        if message.get("method") == "turn/completed" and thread_of(message) == self._reader.thread:
            self._settled.set()

    async def _refuse(self, message: Mapping[str, Any]) -> None:
        try:
            await self._peer.refuse(message["id"], "no one is here to decide this")
        except ChannelLost:
            pass

    def _ended(self) -> None:
        self._fresh = False
        self._peer.lose("codex has ended")
        self._events.put_nowait(None)
        self._settled.set()
        if self._opened:
            self._exits.report(self._process.detail())

    # ── a request ──

    async def run(self, request: Request) -> AsyncIterator[SessionEvent]:
        CodexWarm().check_prompt(request.prompt)
        self._check_running()
        if not self._fresh:
            raise SessionDirty("the conversation was not cleared")
        self._fresh, self._usage = False, None
        self._events = asyncio.Queue()
        self._settled.clear()
        turn = _Turn(self, request)
        try:
            try:
                await self._peer.call(
                    "turn/start",
                    threadId=self._reader.thread,
                    input=[{"type": "text", "text": request.prompt}],
                    clientUserMessageId=request.id,
                )
            except CallError as error:
                self._settled.set()
                raise AgentError(str(error)) from None
            except ChannelLost:
                self._check_running()
                raise
            while True:
                event = await self._events.get()
                if event is None:
                    self._check_running()
                    continue
                for one in turn.translated(event):
                    for message in turn.messages(one) if request.raw else ():
                        yield Raw(message)
                    yield one
                    if isinstance(one, Answered):
                        return
        finally:
            turn.close()

    @property
    def thread(self) -> str | None:
        return self._reader.thread

    def answered(self, text: str, usage: Usage | None, denials: list[dict[str, Any]]) -> Answered:
        self._usage = usage
        return Answered(
            text,
            conversation_id=self._reader.thread,
            usage=usage,
            model=str(self._model) if self._model else None,
            permission_denials=tuple(denials),
        )

    async def decide(self, call: str, decision: PermissionDecision) -> None:
        if decision.always:
            self._dirt = "a permission for the rest of the conversation"
        try:
            await decide(self._peer, self._reader, call, decision)
        except ChannelLost:
            pass  # its turn ends with the process

    def _check_running(self) -> None:
        if self._process.ended:
            raise SessionCrashed("codex exited", detail=self._process.detail())

    async def interrupt(self, timeout: float) -> bool:
        if self._process.ended:
            return False
        try:
            async with asyncio.timeout(timeout):
                while not self._settled.is_set():
                    await self._interrupt_once()
        except (TimeoutError, CallError, ChannelLost):
            return self._settled.is_set() and not self._process.ended
        return not self._process.ended

    async def _interrupt_once(self) -> None:
        """Ask once, and wait a moment: a turn that has just been called may not have begun."""
        if self._reader.running is not None:
            call = self._peer.call(
                "turn/interrupt", threadId=self._reader.thread, turnId=self._reader.running
            )
            asking = asyncio.ensure_future(call)
            settled = asyncio.ensure_future(self._settled.wait())
            await asyncio.wait({asking, settled}, return_when=asyncio.FIRST_COMPLETED)
            for task in (asking, settled):
                task.cancel()
            await asyncio.gather(asking, settled, return_exceptions=True)
        try:
            async with asyncio.timeout(0.05):
                await self._settled.wait()
        except TimeoutError:
            pass

    async def usage(self, timeout: float) -> Usage | None:
        return self._usage

    # ── between two requests ──

    async def renew(self, timeout: float) -> None:
        self._fresh = False
        self._check_running()
        if not self._settled.is_set():
            raise SessionDirty("codex did not confirm that the turn stopped")
        try:
            async with asyncio.timeout(timeout):
                before = self._reader.thread
                await self._peer.call("thread/unsubscribe", threadId=before)
                started = set(self._process.descendants()) - self._own
                if started and (left := await outliving(started, _HELPER_TIMEOUT)):
                    raise SessionDirty(f"carry-over: {len(left)} running processes, such as pid {left[0]}")
                await self._begin_thread()
                if self._reader.thread == before:
                    raise SessionDirty("codex did not begin a new conversation")
        except TimeoutError:
            raise WaitTimeout(f"the conversation was not renewed within {timeout:g} s") from None
        except CallError as error:
            raise SessionDirty(f"codex did not begin a new conversation: {error}") from None
        except ChannelLost:
            self._check_running()
            raise
        if self._dirt:
            raise SessionDirty(f"carry-over: {self._dirt}")
        self._fresh = True

    # ── the end ──

    def on_exit(self, listener: Callable[[str], None]) -> None:
        self._exits.add(listener)

    async def close(self, timeout: float) -> None:
        self._exits.silence()
        await self._process.close(timeout)


class _Turn:
    """Makes the pool's events of one turn."""

    def __init__(self, worker: AppServerWorker, request: Request) -> None:
        self._worker = worker
        self._request = request
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._usage: Usage | None = None
        self._failure: Exception | None = None
        self._denials: list[dict[str, Any]] = []
        self._stopped_by_decision = self._introduced = self._failed = False
        self._begun = time.monotonic()

    def translated(self, event: AgentEvent | Spent) -> list[SessionEvent]:  # noqa: C901  # one case for each event
        if self._failure is not None:
            raise self._failure
        match event:
            case TextShown(text=text):
                return [Token(text)]
            case ToolStarted():
                given = event.input if isinstance(event.input, Mapping) else {}
                return [ToolUse(event.id, event.tool, given)]
            case ToolFinished():
                self._failed = not event.ok
            case ToolsFinished(results=results):
                return [ToolResult(one.id, one.content, self._failed, one.tool) for one in results]
            case PermissionRequested():
                given = event.input if isinstance(event.input, Mapping) else {}
                asked = PermissionRequest(event.id, event.tool, given, self._request.id)
                self._tasks[event.id] = asyncio.get_running_loop().create_task(self._decide(asked, event))
                return [asked]
            case PermissionDecided(id=call) if call in self._tasks:
                self._tasks.pop(call)
            case Spent() if self._request.counted:
                return [event]
            case MessageRecorded(usage=usage):
                self._usage = Usage(**usage)
            case TurnStopped(text=text):
                return [self._worker.answered(text, self._usage, self._denials)]
            case TurnFailed():
                limited = "rate limit: " if event.kind is Failure.RATE_LIMITED else ""
                raise AgentError(f"{limited}{event.text}")
            case TurnInterrupted():
                if self._stopped_by_decision:
                    raise Aborted("a denied permission ended the turn")
                raise AgentError("the turn was interrupted")
        return []

    def messages(self, event: SessionEvent) -> list[Message]:
        """Return an event as the messages that `print` prints."""
        thread = self._worker.thread
        first = [] if self._introduced else [init_message(thread)]
        self._introduced = True
        match event:
            case ToolUse():
                return [*first, tool_use_message(event.id, event.name, event.input, thread)]
            case ToolResult():
                failed = event.is_error
                return [
                    *first,
                    tool_result_message(event.id, event.content, failed=failed, session_id=thread),
                ]
            case Answered():
                seconds = time.monotonic() - self._begun
                usage = {} if event.usage is None else asdict(event.usage)
                result = result_message(
                    event.text, is_error=False, session_id=thread, usage=usage, seconds=seconds
                )
                return [*first, text_message(event.text, thread), result]
        return first

    async def _decide(self, asked: PermissionRequest, event: PermissionRequested) -> None:
        try:
            decision = self._translated_decision(await self._request.decide(asked), event)
        except Exception as error:  # noqa: BLE001  # it is the caller's code, and raised in its call
            self._failure = error
            decision = PermissionDecision(allow=False, message=_FAILED)
        if not decision.allow:
            self._denials.append(
                {"tool_name": asked.tool, "tool_use_id": asked.id, "tool_input": asked.input}
            )
        self._stopped_by_decision |= decision.interrupt
        await self._worker.decide(event.id, decision)

    def _translated_decision(self, decision: Decision, event: PermissionRequested) -> PermissionDecision:
        from remuda.agents.permission import PermissionRequest as Asked
        from remuda.agents.permission import check_refusals

        if not isinstance(decision, Allow):
            return PermissionDecision(False, message=decision.message, interrupt=decision.interrupt)
        made = PermissionDecision(True, decision.input, always=decision.always)
        given = event.input if isinstance(event.input, Mapping) else {}
        asked = Asked(event.tool, given, tool_use_id=event.id, reason=event.reason)
        check_refusals(refusals, asked, made)
        return made

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()


class ExecWorker:
    """Runs a new `codex exec` for every request: nothing is warm, and nothing can carry over."""

    backend: ClassVar[Literal["print"]] = "print"

    def __init__(self, session_id: str, profile: WorkerProfile) -> None:
        self.id = session_id
        self.profile = profile
        self._process: SupervisedProcess | None = None
        self._usage: Usage | None = None

    async def open(self, timeout: float) -> None:
        """Start nothing, but raise what every request would."""
        CodexWarm().arguments(self.profile)
        for name in ("system_prompt", "append_system_prompt", "permission_mode"):
            if getattr(self.profile, name):
                raise InvalidOptions(f"codex exec has no {name}", hint="use backend='stream'")
        if not os.access(self.profile.binary, os.X_OK):
            raise CommandNotFound(f"cannot find the program {self.profile.binary}")

    async def run(self, request: Request) -> AsyncIterator[SessionEvent]:
        CodexWarm().check_prompt(request.prompt)
        reader, came = ExecReader(), asyncio.Event()
        messages: list[dict[str, Any]] = []

        def take(data: bytes) -> None:
            messages.extend(reader.feed(data))
            came.set()

        process = self._process = SupervisedProcess(take, came.set, waits_for_exit=True)
        options = [*self.profile.extra_args]
        options += ["-m", self.profile.model] if self.profile.model else []
        options += [word for folder in self.profile.add_dirs for word in ("--add-dir", folder)]
        words = CodexStream().arguments([*options, "--ephemeral"], inherit_hooks=True, partial=False)
        argv = [*self.profile.program, *words]
        process.start(argv, self.profile.cwd, dict(self.profile.env), asyncio.get_running_loop())
        process.write(request.prompt.encode())
        process.close_input()
        while not process.ended or messages:
            waiting, messages[:] = list(messages), []
            for message in waiting:
                if request.raw:
                    yield Raw(message)
                for event in self._events(message):
                    yield event
                    if isinstance(event, Answered):
                        return
            if not waiting and not process.ended:
                came.clear()
                await came.wait()
        why = process.complaint().rpartition("\n")[2] or process.detail()
        raise SessionCrashed(f"codex exited without an answer: {why}", detail=why)

    def _events(self, message: Mapping[str, Any]) -> list[SessionEvent]:
        if message.get("type") == "result":
            text = str(message.get("result", ""))
            if message.get("is_error"):
                raise AgentError(text)
            self._usage = Usage(**as_object(message.get("usage")))
            return [Answered(text, conversation_id=message.get("session_id"), usage=self._usage)]
        found: list[SessionEvent] = []
        for block in as_objects(as_object(message.get("message")).get("content")):
            match block.get("type"):
                case "text":
                    found.append(Token(str(block["text"])))
                case "tool_use":
                    found.append(ToolUse(str(block["id"]), str(block["name"]), as_object(block["input"])))
                case "tool_result":
                    failed = block.get("is_error") is True
                    found.append(ToolResult(str(block["tool_use_id"]), block.get("content"), failed))
        return found

    async def interrupt(self, timeout: float) -> bool:
        """End the process: nothing less proves that it stopped, and nothing more is lost."""
        await self.close(timeout)
        return self._process is None or self._process.ended

    async def usage(self, timeout: float) -> Usage | None:
        return self._usage

    async def renew(self, timeout: float) -> None:
        if self._process is not None and not await self._process.wait_ended(min(timeout, _EXIT_TIMEOUT)):
            await self.close(timeout)

    async def close(self, timeout: float) -> None:
        if self._process is not None:
            await self._process.close(timeout)

    def on_exit(self, listener: Callable[[str], None]) -> None:
        """Do nothing: no process runs between two requests."""
