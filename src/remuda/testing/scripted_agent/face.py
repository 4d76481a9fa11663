"""Everything that is seen from outside while it lives: screen, title, and the status in the registry."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from .agent_loop import Future, Loop, Timer
from .composer import TextBox
from .dialog import Answer, Dialog
from .layout import Block, ConversationView
from .painter import AgentTerminal, Painter
from .terminal_keys import Input
from .transcript_file import Registry

_TITLE_INTERVAL = 0.96
_SPIN_INTERVAL = 0.24
_SPINNER = "·✢✳✶✻✽"
_VERBS = ("Brewing", "Churning", "Cogitating", "Mustering", "Perusing", "Pondering", "Spinning", "Working")
_HINT_SECONDS = 0.8


class Face:
    """Shows a view. Busy between :meth:`begin_work` and :meth:`end_work`, waiting while a dialog is open."""

    def __init__(
        self,
        loop: Loop,
        terminal: AgentTerminal,
        screen: Painter,
        composer: TextBox,
        footer: Callable[[], str],
    ) -> None:
        self.view = ConversationView()
        self.busy = False
        self.dialog: Dialog | None = None
        self.registry: Registry | None = None
        self.name = "Claude Code"
        self._loop = loop
        self._terminal = terminal
        self._screen = screen
        self._composer = composer
        self._footer = footer
        self._answer: Future[Answer] = Future()
        self._waiting_for = ""
        self._listens_from = 0.0
        self._note = ""
        self._retry_line: str | None = None
        self._verb = _VERBS[0]
        self._since = 0.0
        self._heard = 0
        self._painting = False
        self._notice = ""
        self._spin: Timer | None = None

    def use(self, screen: Painter) -> None:
        """Draw on another kind of screen from now on."""
        self._screen = screen

    def show(self, text: str, mark: str = "", style: str = "") -> Block:
        """Add to the conversation; what is given back may be changed, then :meth:`refresh`."""
        block = Block(text, mark, style, spaced=not mark.startswith(" "))
        self.view.blocks.append(block)
        self.refresh()
        return block

    def heard(self, characters: int) -> None:
        """Set how much of the answer has come; the spinner's line shows it as tokens."""
        self._heard += characters
        self.refresh()

    def refresh(self) -> None:
        """Something that is shown has changed. It is drawn before the loop waits again."""
        if not self._painting:
            self._painting = True
            self._loop.later(0, self._paint)

    def redraw(self) -> None:
        """Draw everything again: the size has changed."""
        self._screen.forget()
        self.refresh()

    def notice(self, text: str) -> None:
        """Show something in place of the footer for a moment."""
        self._notice = text
        self.refresh()
        self._loop.later(_HINT_SECONDS, lambda: self._end_notice(text))

    def begin_work(self) -> None:
        """Turn the spinner, move the title and set the status to busy."""
        self.busy = True
        self._since = time.monotonic()
        self._heard = 0
        self._verb = _VERBS[os.urandom(1)[0] % len(_VERBS)]
        self._set_status()
        self._turn_spinner()

    def end_work(self) -> None:
        """Idle again."""
        self.busy = False
        self._note = ""
        self._set_status()

    def activity(self, note: str = "") -> None:
        """What the spinner's line says besides the time."""
        self._note = note
        self.refresh()

    def retrying(self, line: str | None) -> None:
        """The spinner's line in full, while a failed request waits for its next attempt."""
        self._retry_line = line
        self.refresh()

    def ask(self, dialog: Dialog, waiting_for: str, deaf_for: float = 0.0) -> Future[Answer]:
        """Open a dialog; its answer. What is typed in its first moment is dropped: ``deaf_for`` seconds."""
        self.dialog = dialog
        self._listens_from = time.monotonic() + deaf_for
        self._waiting_for = waiting_for
        self._answer = Future()
        self._set_status()
        return self._answer

    def answer(self, given: Input) -> None:
        """Give an input to the open dialog."""
        if self.dialog is None or time.monotonic() < self._listens_from:
            return
        answer = self.dialog.take(given)
        self.refresh()
        if answer is not None:
            self.withdraw()
            self._answer.set(answer)

    def withdraw(self) -> None:
        """Close the dialog."""
        self.dialog = None
        self._set_status()

    def report(self, session_id: str) -> None:
        """Another conversation has begun."""
        if self.registry is not None and self.registry.status is not None:
            self.registry.update(str(self.registry.status), session_id=session_id)

    def _set_status(self) -> None:
        if self.registry is not None:
            if self.dialog is not None:
                self.registry.update("waiting", self._waiting_for)
            else:
                self.registry.update("busy" if self.busy else "idle")
            self._terminal.title(self._title())
        self.refresh()

    def _title(self) -> str:
        if not self.busy or self.dialog is not None:
            return f"✳ {self.name}"
        phase = int((time.monotonic() - self._since) / _TITLE_INTERVAL) % 2
        return f"{'◐◑'[phase]} {self.name}"

    def _turn_spinner(self) -> None:
        """Once per interval, only while there is something to turn: an idle program writes nothing."""
        if self._spin is not None:
            self._spin.cancel()
            self._spin = None
        if self.busy:
            self._terminal.title(self._title())
            self.refresh()
            self._spin = self._loop.later(_SPIN_INTERVAL, self._turn_spinner)

    def _activity_line(self) -> str:
        if not self.busy or self.dialog is not None:
            return ""
        if self._retry_line is not None:
            return self._retry_line
        elapsed = time.monotonic() - self._since
        glyph = _SPINNER[int(elapsed / _SPIN_INTERVAL) % len(_SPINNER)]
        parts = [self._note] if self._note else []
        if elapsed >= 1:
            parts += [f"{int(elapsed)}s", f"↓ {self._heard // 4} tokens"]
        return f"{glyph} {self._verb}…" + (f" ({' · '.join(parts)})" if parts else "")

    def _paint(self) -> None:
        self._painting = False
        view = self.view
        view.dialog = self.dialog.lines() if self.dialog is not None else None
        view.activity = self._activity_line()
        view.box, view.cursor = self._composer.text, self._composer.cursor
        view.hint = "› stashed" if self._composer.stashed is not None else ""
        view.footer = self._notice or self._footer()
        self._terminal.write(self._screen.paint(view, *self._terminal.size()))

    def _end_notice(self, text: str) -> None:
        if self._notice == text:
            self._notice = ""
            self.refresh()
