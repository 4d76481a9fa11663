"""The text box: keys in, submissions out. No I/O.

What a submission means is decided by its first characters, pasted ones too (:func:`meaning_of`). The real
program does the same, and therefore a prompt from elsewhere must be looked at before it is pasted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from .terminal_keys import Input, KeyPress, Pasted, Typed

_COMMAND = re.compile(r"\s*/([A-Za-z][\w:-]*)(?=\s|\Z)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SubmittedPrompt:
    """Text for the model."""

    text: str


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """``!command``: runs at once, without permission and without UserPromptSubmit."""

    command: str


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """``/name arguments``, known or not."""

    name: str
    arguments: str


Submission: TypeAlias = SubmittedPrompt | ShellCommand | SlashCommand


def meaning_of(text: str, *, shell: bool = True) -> Submission:
    """Return what submitting ``text`` does. ``!`` must be the first character; ``/word`` may follow blanks.

    ``shell=False`` is for a prompt given as an argument, where ``!`` is plain text.
    """
    if shell and text.startswith("!") and text[1:].strip():
        return ShellCommand(text[1:].strip())
    if command := _COMMAND.match(text):
        return SlashCommand(command[1], command[2].strip())
    return SubmittedPrompt(text)


class TextBox:
    """A text box with a cursor, a stash and a history."""

    def __init__(self) -> None:
        self.text = ""
        self.cursor = 0
        self.stashed: str | None = None
        self._history: list[str] = []
        self._recalled = 0

    def take(self, given: Input) -> str | None:
        """Act on an input; the text when it was submitted."""
        match given:
            case Typed(char):
                self._insert(char)
            case Pasted(text):
                self._insert(text)
            case KeyPress("enter"):
                return self._submit()
            case KeyPress(name):
                self._edit(name)
        return None

    def replace(self, text: str) -> None:
        """Put other text into the box, the cursor after it."""
        self.text, self.cursor = text, len(text)

    def put_back(self, text: str) -> None:
        """A prompt returns to the box, before whatever was typed since."""
        self.replace(text + self.text)

    def _insert(self, text: str) -> None:
        self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
        self.cursor += len(text)

    def _submit(self) -> str | None:
        if self.text[: self.cursor].endswith("\\"):
            self.text = self.text[: self.cursor - 1] + "\n" + self.text[self.cursor :]
            return None
        text = self.text.rstrip()
        if not text:
            return None
        self._history.append(text)
        self._recalled = len(self._history)
        self.replace(self.stashed or "")
        self.stashed = None
        return text

    def _edit(self, name: str) -> None:
        line_start = self.text.rfind("\n", 0, self.cursor) + 1
        line_end = self.text.find("\n", self.cursor) % (len(self.text) + 1)
        match name:
            case "newline":
                self._insert("\n")
            case "backspace" if self.cursor:
                self._cut(self.cursor - 1, self.cursor)
            case "delete":
                self._cut(self.cursor, self.cursor + 1)
            case "ctrl-u":
                self._cut(line_start, self.cursor)
            case "ctrl-k":
                self._cut(self.cursor, line_end)
            case "ctrl-s":
                self._stash()
            case "up" | "down":
                self._recall(-1 if name == "up" else 1)
            case _:
                self._move(name, line_start, line_end)

    def _move(self, name: str, line_start: int, line_end: int) -> None:
        match name:
            case "left" | "ctrl-b":
                self.cursor = max(0, self.cursor - 1)
            case "right" | "ctrl-f":
                self.cursor = min(len(self.text), self.cursor + 1)
            case "home" | "ctrl-a":
                self.cursor = line_start
            case "end" | "ctrl-e":
                self.cursor = line_end

    def _cut(self, start: int, end: int) -> None:
        self.text = self.text[:start] + self.text[end:]
        self.cursor = start

    def _stash(self) -> None:
        """Ctrl+S: the draft goes aside and comes back with the next submission, or with another Ctrl+S."""
        if self.text:
            self.stashed = self.text
            self.replace("")
        elif self.stashed is not None:
            self.replace(self.stashed)
            self.stashed = None

    def _recall(self, step: int) -> None:
        wanted = self._recalled + step
        if 0 <= wanted < len(self._history):
            self._recalled = wanted
            self.replace(self._history[wanted])
        elif wanted == len(self._history) and step > 0:
            self._recalled = wanted
            self.replace("")
