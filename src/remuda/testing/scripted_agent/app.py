"""The program: input to the right place, one piece of work at a time, and every way out."""

from __future__ import annotations

import os
import signal
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import VERSION, dialog, settings
from .agent_conversation import AgentConversation
from .agent_flags import AgentFlags, Knobs
from .agent_loop import Future, Loop, LoopTask, Timer
from .composer import SlashCommand, Submission, TextBox, meaning_of
from .dialog import Chosen
from .face import Face
from .hook_runner import Hooks, HookVerdict
from .painter import AgentTerminal, FullScreen, Inline
from .prompt_worker import PromptQueue, PromptWorker
from .settings import Settings, Sources
from .slash_command import Commands
from .stage import TurnAborted
from .terminal_keys import Decoder, Input, KeyPress, QueryAnswered
from .tool import Tools
from .transcript_file import Registry

_ESCAPE_WAIT = 0.05
_AGAIN_SECONDS = 0.8
_MODE_CYCLE = ("default", "acceptEdits", "plan", "auto")
_MODE_FOOTERS = {
    "default": "⏸ manual mode on",
    "plan": "⏸ plan mode on (shift+tab to cycle)",
    "acceptEdits": "⏵⏵ accept edits on (shift+tab to cycle)",
    "bypassPermissions": "⏵⏵ bypass permissions on (shift+tab to cycle)",
    "auto": "⏵⏵ auto mode on (shift+tab to cycle)",
    "dontAsk": "⏵⏵ don't ask on (shift+tab to cycle)",
}


class App:
    """One run. :meth:`run` gives the exit code."""

    def __init__(self, options: AgentFlags, knobs: Knobs, environ: Mapping[str, str]) -> None:
        self.loop = Loop()
        self.knobs = knobs
        self.environ = environ
        self._options = options
        self._config = settings.config_dir(environ)
        cwd = os.path.realpath(os.getcwd())
        self._sources = Sources(options, environ, Path(cwd))
        mode = (
            "bypassPermissions"
            if options.skips_permissions
            else options.mode or self.settings().mode or "auto"
        )
        self.session = AgentConversation(options, knobs, self._config, cwd, mode)
        self.tools = Tools(cwd, environ)
        self._hooks = Hooks(self.loop, lambda: self.settings().hooks, environ, cwd)
        self._composer = TextBox()
        self._decoder = Decoder()
        self._terminal = AgentTerminal(
            silent=knobs.silent, titled=not environ.get("CLAUDE_CODE_DISABLE_TERMINAL_TITLE")
        )
        self.face = Face(self.loop, self._terminal, Inline(), self._composer, self._footer)
        commands = Commands(self, lambda reason: self.leave(0, reason))
        self._worker = PromptWorker(self, commands)
        self._queue = PromptQueue(self)
        self._work: LoopTask[None] | None = None
        self._trusting: LoopTask[None] | None = None
        self._escape: Timer | None = None
        self._idle_notice: Timer | None = None
        self._pressed: str | None = None
        self._leaving = False
        self._code = 0

    def run(self) -> int:
        """Run until the program ends. Return its exit code. The terminal is always restored."""
        self._terminal.open()
        try:
            self._on_signals()
            self.loop.on_readable(0, self._read)
            self._trusting = self.loop.spawn(self._open())
            self._trusting.when_done(self._raise_error_of_start)
            self.loop.run()
        finally:
            self.tools.kill()
            self._hooks.cancel_all()
            self._terminal.close(self._farewell())
            if self.face.registry is not None:
                self.face.registry.remove()
        return self._code

    def settings(self) -> Settings:
        """Return the settings as they are now."""
        return self._sources.load()

    async def fire(self, event: str, fields: Mapping[str, Any], subject: str = "") -> HookVerdict:
        """Run the event's hooks and wait for them."""
        return await self._hooks.fire(self._payload(event, fields), self.session.hook_environ(event), subject)

    def announce(self, event: str, fields: Mapping[str, Any], subject: str = "") -> None:
        """Run the event's hooks without waiting for them."""
        self._hooks.fire_and_forget(self._payload(event, fields), self.session.hook_environ(event), subject)

    def absorb_queue(self) -> None:
        """Prompts that were typed while a tool ran become part of the running turn."""
        self._queue.absorb()

    def give_back(self, prompts: Sequence[str]) -> None:
        """Interrupted prompts, which are the newest on the screen, return to the text box."""
        self._composer.put_back("\n".join(prompts))
        del self.face.view.blocks[-len(prompts) :]
        self.face.refresh()

    def die(self, code: int) -> None:
        """End at once, as a crash would: nothing is tidied but the terminal."""
        self._terminal.close()
        os._exit(code)

    def leave(self, code: int, reason: str) -> None:
        """End in order: tools and hooks first, then SessionEnd."""
        if self._leaving:
            return
        self._leaving = True
        self._code = code
        self.loop.spawn(self._leave(reason))

    async def _open(self) -> None:
        if self._must_ask_for_trust() and not await self._ask_for_trust():
            return
        self._begin()
        start = self.fire("SessionStart", self.session.start_fields(), self.session.source)
        self._worker.started = self.loop.spawn(start)
        self._announce_instructions()
        if self.knobs.stop_before_inject:
            early = {"stop_hook_active": False, "last_assistant_message": "", "background_tasks": []}
            self.announce("Stop", {**early, "session_crons": []})
        if self._options.prompt:
            self._submit(meaning_of(self._options.prompt, shell=False))

    def _announce_instructions(self) -> None:
        path = Path(self.session.cwd, "CLAUDE.md")
        if path.exists():
            loaded = {"file_path": str(path), "memory_type": "Project", "load_reason": "session_start"}
            self.announce("InstructionsLoaded", loaded, "session_start")

    def _must_ask_for_trust(self) -> bool:
        if self.knobs.trust_dialog is not None:
            return self.knobs.trust_dialog
        known = settings.trusted(settings.global_config(self.environ), Path(self.session.cwd))
        return not (known if known is not None else not self.knobs.trust_from_claude_json)

    async def _ask_for_trust(self) -> bool:
        asked, yes = dialog.trust(self.session.cwd, self.knobs.trust_wording)
        asking = self.face.ask(asked, "dialog open", self.knobs.dialog_guard)
        self._query_terminal()
        answer = await asking
        if answer == Chosen(yes):
            settings.trust(settings.global_config(self.environ), Path(self.session.cwd))
            return True
        self._code = 1 if isinstance(answer, Chosen) else 0
        self.loop.stop()
        return False

    def _begin(self) -> None:
        session = self.session
        self.face.registry = Registry(self._config, session.id, session.cwd, self._options.name)
        self.face.name = self._options.name or "Claude Code"
        alternate = self._uses_alternate_screen()
        self._terminal.begin(f"✳ {self.face.name}", alternate=alternate)
        self.face.use(FullScreen() if alternate else Inline())
        self.face.view.header = [
            f" ◆ Scripted agent, playing Claude Code v{VERSION}",
            f"   {session.model} · made-up answers, no network",
            f"   {session.cwd}",
            "",
        ]
        self._show_history()
        self.face.end_work()
        self._query_terminal()

    def _query_terminal(self) -> None:
        """After the first frame, which is drawn before the loop waits."""
        self.loop.later(0, lambda: self._terminal.query(unknown=self.knobs.unknown_probe))

    def _uses_alternate_screen(self) -> bool:
        if self.environ.get("CLAUDE_CODE_DISABLE_ALTERNATE_SCREEN") == "1":
            return False
        return self.environ.get("CLAUDE_CODE_NO_FLICKER") == "1" or self.settings().fullscreen

    def _show_history(self) -> None:
        for record in self.session.old_records:
            message = record.get("message")
            content = message.get("content") if isinstance(message, dict) else None
            if "promptSource" in record and isinstance(content, str):
                self.face.show(content, "❯ ")
            for block in content if isinstance(content, list) else ():
                if record.get("type") == "assistant" and block.get("type") == "text":
                    self.face.show(str(block["text"]), "● ")

    def _footer(self) -> str:
        mode = _MODE_FOOTERS.get(self.session.mode, self.session.mode)
        if self.face.busy:
            return f"{mode} · esc to interrupt"
        return f"{mode} · ? for shortcuts" if self.session.mode == "default" else mode

    def _payload(self, event: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        payload = self.session.payload(event, fields)
        if event == "Stop":
            payload = {key: value for key, value in payload.items() if key not in self.knobs.omit}
        return payload

    # Input.

    def _read(self) -> None:
        data = self._terminal.read()
        if not data:
            self.loop.off_readable(0)
            self.leave(0, "other")
            return
        if self._escape is not None:
            self._escape.cancel()
        for given in self._decoder.feed(data):
            self._take(given)
        if self._decoder.holds_escape:
            self._escape = self.loop.later(_ESCAPE_WAIT, self._flush_escape)

    def _flush_escape(self) -> None:
        for given in self._decoder.flush():
            self._take(given)

    def _take(self, given: Input) -> None:
        if isinstance(given, QueryAnswered):
            self._go_on_asking(given.query)
            return
        if self._idle_notice is not None:
            self._idle_notice.cancel()
        pressed, self._pressed = self._pressed, None
        match given:
            case KeyPress("ctrl-c" | "ctrl-d" as key):
                self._press_to_leave(key, again=pressed == key)
            case _ if self.face.dialog is not None:
                self.face.answer(given)
            case KeyPress("esc") if self.face.busy:
                self._interrupt()
            case KeyPress("esc") if self._composer.text:
                self._press_to_clear(again=pressed == "esc")
            case KeyPress("backtab"):
                self._next_mode()
            case _:
                text = self._composer.take(given)
                self.face.refresh()
                if text is not None:
                    self._submit(meaning_of(text))

    def _go_on_asking(self, query: str) -> None:
        """What the real program asks once the terminal has answered at all."""
        if query == "kitty":
            self._terminal.write("\x1b[>5u")
        elif query == "attributes":
            self._terminal.write("\x1b[?2026$p")

    def _press_to_leave(self, key: str, *, again: bool) -> None:
        """Ctrl-C: interrupts, else clears, else leaves when pressed twice; Ctrl-D only leaves."""
        trusting = self._trusting is not None and not self._trusting.done
        if again:
            self._stop_now() if trusting else self.leave(0, "prompt_input_exit")
            return
        if key == "ctrl-c" and self.face.busy:
            self._interrupt()
        elif key == "ctrl-c" and self._composer.text:
            self._composer.replace("")
        self._pressed = key
        self.face.notice(f"Press {key.title()} again to exit")
        self.loop.later(_AGAIN_SECONDS, lambda: setattr(self, "_pressed", None))

    def _press_to_clear(self, *, again: bool) -> None:
        """Esc twice takes away the text in the composer."""
        if again:
            self._composer.replace("")
            self.face.refresh()
            return
        self._pressed = "esc"
        self.face.notice("Esc again to clear")
        self.loop.later(_AGAIN_SECONDS, lambda: setattr(self, "_pressed", None))

    def _next_mode(self) -> None:
        mode = self.session.mode
        following = _MODE_CYCLE.index(mode) + 1 if mode in _MODE_CYCLE else 0
        self.session.mode = _MODE_CYCLE[following % len(_MODE_CYCLE)]
        self.face.refresh()

    # Work.

    def _submit(self, meaning: Submission) -> None:
        if self._leaving:
            return
        busy = self._work is not None and not self._work.done
        if not busy and isinstance(meaning, SlashCommand) and meaning.name in ("exit", "quit"):
            # No work: neither title nor status may say so in the last moment.
            self.session.new_prompt()
            self.leave(0, "prompt_input_exit")
        elif busy:
            self._queue.put(meaning)
        else:
            self._begin_work(self._worker.do(meaning))

    def _interrupt(self) -> None:
        if self.face.dialog is not None:
            self.face.withdraw()
        if self._work is not None:
            self._work.throw(TurnAborted())

    def _begin_work(self, work: Coroutine[Future[Any], None, None]) -> None:
        self._work = self.loop.spawn(self._working(work))
        self._work.when_done(self._end_work)

    async def _working(self, work: Coroutine[Future[Any], None, None]) -> None:
        self.face.begin_work()
        await work

    def _end_work(self) -> None:
        """Idle, unless prompts wait: they are taken as one turn."""
        work, self._work = self._work, None
        self.face.end_work()
        if work is not None:
            work.result()
        if self._leaving:
            return
        waiting = self._queue.take()
        if isinstance(waiting, list):
            self._begin_work(self._worker.converse(waiting, queued=True))
        elif waiting is not None:
            self._submit(waiting)
        else:
            delay = settings.idle_threshold(settings.global_config(self.environ))
            self._idle_notice = self.loop.later(delay * self.knobs.time_scale, self._notify_idle)

    def _notify_idle(self) -> None:
        fields = {"message": "Claude is waiting for your input", "notification_type": "idle_prompt"}
        self.announce("Notification", fields, "idle_prompt")

    # Ways out.

    def _on_signals(self) -> None:
        ways = {signal.SIGTERM: 143, signal.SIGINT: 0}
        for number, code in ways.items():
            signal.signal(number, lambda *_, code=code: self.loop.post(lambda: self.leave(code, "other")))
        signal.signal(signal.SIGHUP, lambda *_: self.loop.post(self._hang_up))
        signal.signal(signal.SIGWINCH, lambda *_: self.loop.post(self.face.redraw))
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def _hang_up(self) -> None:
        """SIGHUP also comes when the terminal is closed, and then it is not a failure."""
        self.leave(0 if self._terminal.is_gone() else 129, "other")

    async def _leave(self, reason: str) -> None:
        if self._work is not None:
            self._work.abandon()
            self.tools.kill()
            self._hooks.cancel_all()
        if self.face.registry is not None:
            self.face.registry.remove()
            self.face.registry = None
            await self.fire("SessionEnd", {"reason": reason}, reason)
        self.loop.stop()

    def _stop_now(self) -> None:
        self._code = 0
        self.loop.stop()

    def _raise_error_of_start(self) -> None:
        if self._trusting is not None:
            self._trusting.result()

    def _farewell(self) -> str:
        if not self.session.transcript.path.exists() or not self._leaving:
            return ""
        command = f"python -m remuda.testing.scripted_agent --resume {self.session.id}"
        return f"\r\nResume this session with:\r\n{command}\r\n"
