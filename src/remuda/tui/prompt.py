"""A line above the keys, in which the user types: a reply, an answer, a message, a filter."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text
from textual import events, on
from textual.message import Message
from textual.widgets import Input


class Prompt(Input):
    """Hidden until `open`. Enter hands over what was typed, Esc ends it without."""

    DEFAULT_CSS = """
    Prompt, Prompt:focus {
        height: 3; display: none; border: round ansi_cyan;
        background: ansi_default; color: ansi_default; background-tint: ansi_default 0%;
    }
    """

    class Closed(Message):
        """The line is gone, and what was typed is handed over."""

    def __init__(self) -> None:
        super().__init__(select_on_focus=False)  # else the next key replaces what came before the focus
        self._take: Callable[[str], object] | None = None
        self._is_live = False

    @property
    def is_open(self) -> bool:
        return self._take is not None

    def open(
        self, title: str, take: Callable[[str], object], value: str = "", *, is_live: bool = False
    ) -> None:
        """Ask for a line. With `is_live`, `take` gets each change of it, and an empty line at Esc."""
        self._take, self._is_live = take, is_live
        self.border_title, self.value = Text(title), value
        self.cursor_position = len(value)
        self.display = True
        self.screen.set_focus(self)  # at once, so that what is typed next goes there

    def on_key(self, event: events.Key) -> None:
        """End the line here: the key after Esc may have been sent here already, and is for the app."""
        if not self.is_open:
            event.prevent_default()
        elif event.key in ("enter", "escape"):
            event.stop()
            self.key(event)

    def key(self, event: events.Key) -> None:
        """Take Enter, Esc, or a key that came to the app before the line had the focus."""
        if event.key in ("enter", "escape"):
            event.prevent_default()  # `Input` would submit as well, after the next question has opened
            self._end(self.value if event.key == "enter" else None)
        elif event.character is not None and event.is_printable:
            self.insert_text_at_cursor(event.character)

    @on(Input.Changed)
    def _changed(self) -> None:
        if self._take is not None and self._is_live:
            self._take(self.value)

    def _end(self, text: str | None) -> None:
        """Close the line, and hand over what was typed; None for nothing."""
        take, self._take = self._take, None
        self.screen.set_focus(None)
        self.display = False
        self.post_message(self.Closed())
        if take is not None and (self._is_live or (text and text.strip())):
            take(text or "")
