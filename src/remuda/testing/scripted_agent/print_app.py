"""Print mode: ``-p``, with a prompt as an argument or on standard input, or a stream of messages there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda.testing.script import ToolUse, reply_to

from . import VERSION, settings
from .agent_conversation import AgentConversation
from .agent_flags import AgentFlags, Knobs
from .agent_loop import Future, Loop, LoopTask
from .print_turn import PrintTurn
from .print_voice import PrintTurnState, Voice
from .records import Record, new_id
from .settings import Settings, Sources
from .stage import TurnAborted
from .tool import Tools
from .transcript_file import Registry

_STATE_EVENTS = "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"
_READ_BYTES = 1 << 16


@dataclass(slots=True)
class PrintPrompt:
    text: str
    command: str | None = None
    origin: Record | None = None


class PrintApp:
    """One run. :meth:`run` gives the exit code."""

    def __init__(self, options: AgentFlags, knobs: Knobs, environ: Mapping[str, str]) -> None:
        self.loop = Loop()
        self.knobs, self.environ, self._options = knobs, environ, options
        config, cwd = settings.config_dir(environ), os.path.realpath(os.getcwd())
        self._sources = Sources(options, environ, Path(cwd))
        mode = "bypassPermissions" if options.skips_permissions else options.mode or self.settings().mode
        self.session = AgentConversation(options, knobs, config, cwd, mode or "default")
        self.tools = Tools(cwd, environ)
        self.voice = Voice(options, self.session, tells_state=environ.get(_STATE_EVENTS) == "1")
        self._registry = Registry(config, self.session.id, cwd, options.name)
        self._queue: deque[PrintPrompt] = deque()
        self._work: LoopTask[None] | None = None
        self._doing: PrintPrompt | None = None
        self._questions: dict[str, Future[Mapping[str, Any]]] = {}
        self._tasks: dict[str, Record] = {}
        self._shells: list[subprocess.Popen[bytes]] = []
        self._rest = b""
        self._open = options.input_format == "stream-json"
        self._code = 0

    def run(self) -> int:
        self._on_signals()
        try:
            if self._open:
                self.loop.later(self.knobs.delay_start, lambda: self.loop.on_readable(0, self._read))
            else:
                self._queue.append(PrintPrompt(self._options.prompt or sys.stdin.read()))
                self._next()
            self.loop.run()
        finally:
            self.tools.kill()
            for shell in self._shells:
                _kill_group(shell)
            self._registry.remove()
        return self._code

    # ── what a turn needs ──

    def settings(self) -> Settings:
        return self._sources.load()

    def ask(self, request: Record) -> Future[Mapping[str, Any]] | None:
        if not self._options.asks_stdio:
            return None
        request_id = new_id()
        answer = self._questions[request_id] = Future()
        self.voice.ask(request_id, request)
        return answer

    def background(self, kind: str, call: ToolUse) -> str:
        task = {"task_id": f"b{new_id()[:8]}", "task_type": kind, "description": "x"}
        self._tasks[task["task_id"]] = task
        self.voice.tasks([*self._tasks.values()])
        done = self._agent(call) if kind == "local_agent" else self._shell(call)
        done.when_done(lambda: self._ended(task["task_id"]))
        return f"Command running in background with ID: {task['task_id']}."

    def _shell(self, call: ToolUse) -> Future[int]:
        shell = subprocess.Popen(
            ["/bin/bash", "-c", str(call.input.get("command", ""))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._shells.append(shell)
        return self.loop.in_thread(shell.wait)

    def _agent(self, call: ToolUse) -> Future[None]:
        steps = reply_to(str(call.input.get("prompt", "")), 1).steps
        return self.loop.sleep(sum(getattr(step, "seconds", 0.0) for step in steps) + 0.01)

    def _ended(self, task_id: str) -> None:
        del self._tasks[task_id]
        self.voice.say({"type": "system", "subtype": "task_notification", "task_id": task_id})
        self.voice.tasks([*self._tasks.values()])
        origin = {"kind": "task-notification", "producer": "session-task"}
        self._queue.append(PrintPrompt(f"<task-notification> {task_id} has ended", None, origin))
        self._next()

    def die(self, said: str) -> None:
        if not self.knobs.die_on or self.knobs.die_on not in said:
            return
        if self.knobs.die_torn:
            self.voice.write(b'{"type": "result", "result": "hal')
        os.write(2, self.knobs.die_saying.encode())
        os._exit(self.knobs.die_code)

    # ── input ──

    def _read(self) -> None:
        data = os.read(0, _READ_BYTES)
        if not data:
            self.loop.off_readable(0)
            self._open = False
            self._leave_if_done()
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in filter(bytes.strip, lines):
            try:
                message = json.loads(line)
            except ValueError:
                os.write(2, f"Error parsing streaming input line ({len(line)} chars): SyntaxError\n".encode())
                return self._leave(1)
            self._take(message)
        return None

    def _take(self, message: Mapping[str, Any]) -> None:
        match message:
            case {"type": "user", "message": {"content": str(text)}}:
                prompt = PrintPrompt(text, message.get("uuid"))
                self.voice.moved(prompt.command, "queued")
                self._queue.append(prompt)
                # A moment later, as for the real program: an interrupt after it finds it queued.
                self.loop.later(0, self._next)
            case {"type": "control_request", "request_id": request_id, "request": dict(request)}:
                self._control(request_id, request)
            case {"type": "control_response", "response": {"request_id": str(request_id)} as response}:
                self._answered(request_id, response)
            case _:
                pass

    def _control(self, request_id: object, request: Mapping[str, Any]) -> None:
        match request.get("subtype"):
            case "initialize":
                facts = {"pid": os.getpid(), "claude_code_version": VERSION}
                self.voice.reply(request_id, {**facts, "current_permission_mode": self.session.mode})
            case "interrupt":
                self._interrupt(request_id, cancels=request.get("cancel_queued") is True)
            case other:
                self.voice.refuse(request_id, f"Unsupported control request subtype: {other}")

    def _interrupt(self, request_id: object, *, cancels: bool) -> None:
        if self.knobs.ignore_interrupt:
            self.voice.reply(request_id, {"still_queued": []})
            return
        dropped = list(self._queue) if cancels else []
        for prompt in dropped:
            self._queue.remove(prompt)
            self.voice.moved(prompt.command, "cancelled")
        for question in list(self._questions):
            self.voice.withdraw(question)
            del self._questions[question]
        self.voice.reply(
            request_id, {"still_queued": [], "cancelled": [prompt.command for prompt in dropped]}
        )
        if self._work is not None:
            self._work.throw(TurnAborted())

    def _answered(self, request_id: str, response: Mapping[str, Any]) -> None:
        question = self._questions.pop(request_id, None)
        if question is None:
            return
        if response.get("subtype") == "success":
            question.set(response.get("response") or {})
        else:
            question.set({"behavior": "deny", "message": f"Error: {response.get('error')}"})

    # ── work ──

    def _next(self) -> None:
        if self._work is not None or not self._queue:
            return
        self._doing = self._queue.popleft()
        self.voice.moved(self._doing.command, "started")
        self._work = self.loop.spawn(self._do(self._doing))
        self._work.when_done(self._done)

    async def _do(self, prompt: PrintPrompt) -> None:
        turn = PrintTurnState(prompt.command, prompt.origin)
        word = prompt.text.strip() if prompt.text.startswith("/") else ""
        if word == "/clear":
            await self._clear(turn)
        elif word and "/" not in word[1:]:
            self.voice.begun()
            turn.turns, turn.text = 0, f"{word} isn't available in this environment."
            self.voice.result(turn)
        else:
            completed = await PrintTurn(self, prompt.text, turn).run()
            return self.voice.moved(prompt.command, "completed" if completed else "cancelled")
        return self.voice.moved(prompt.command, "completed")

    async def _clear(self, turn: PrintTurnState) -> None:
        self.voice.state("running")
        await self.loop.sleep(self.knobs.delay_clear)
        if not self.knobs.keep_conversation:
            self.voice.reset(turn.command)
            self.session.restart()
        self.voice.tasks([*self._tasks.values()])
        self.voice.begun()
        turn.turns = 0
        self.voice.result(turn, terminal_reason=None)

    def _done(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work.result()
        if self.knobs.is_stray and self._doing is not None and self._doing.text == "/clear":
            self._queue.append(PrintPrompt("a prompt of its own"))
        if not self._queue:
            self.voice.state("idle")
        self._next()
        self._leave_if_done()

    # ── ways out ──

    def _on_signals(self) -> None:
        ended = (
            signal.SIG_IGN if self.knobs.ignore_term else lambda *_: self.loop.post(lambda: self._leave(143))
        )
        signal.signal(signal.SIGTERM, ended)
        signal.signal(signal.SIGINT, lambda *_: self.loop.post(lambda: self._leave(0)))

    def _leave_if_done(self) -> None:
        if not self._open and self._work is None and not self._queue and not self._tasks:
            self._leave(self._code)

    def _leave(self, code: int) -> None:
        self._code = code
        self.loop.stop()


def _kill_group(shell: subprocess.Popen[bytes]) -> None:
    if shell.poll() is None:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
