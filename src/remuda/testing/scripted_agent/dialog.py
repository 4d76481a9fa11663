"""The questions the program asks: rows to choose from, keys that choose. No I/O.

A paste is not an answer, but the Enter after it is: a prompt that is pasted and submitted while a dialog is
open takes the highlighted row, and the prompt is lost. The real program does the same: that is the point.
Only in a dialog's first tenth of a second all keys are dropped, the good ones too (see ``Face.ask``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from .terminal_keys import Input, KeyPress, Pasted, Typed

RULE = "─"
_DASHES = "╌"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A row was taken."""

    row: int


@dataclass(frozen=True, slots=True)
class Wrote:
    """Words were given in place of a row."""

    text: str


@dataclass(frozen=True, slots=True)
class DialogCancelled:
    """Esc."""


Answer: TypeAlias = Chosen | Wrote | DialogCancelled


class Dialog:
    """Something to read, rows to choose from, and what is chosen so far."""

    def __init__(
        self,
        reading: Sequence[str],
        rows: Sequence[str],
        hint: str,
        *,
        numbered: bool = True,
        writable: bool = False,
    ) -> None:
        self.reading = list(reading)
        self.rows = list(rows)
        self.hint = hint
        self.selected = 0
        self.written = ""
        self._numbered = numbered
        self._writable = writable

    def take(self, given: Input) -> Answer | None:
        """Act on an input; the answer when it is one."""
        match given:
            case KeyPress("esc"):
                return DialogCancelled()
            case KeyPress("enter"):
                return Wrote(self.written) if self.written else Chosen(self.selected)
            case KeyPress("up" | "down" as way):
                self.selected = (self.selected + (1 if way == "down" else -1)) % len(self.rows)
            case KeyPress("backspace"):
                self.written = self.written[:-1]
            case Typed(char) if self._numbered and not self.written and char.isdecimal():
                return Chosen(int(char) - 1) if 0 < int(char) <= len(self.rows) else None
            case Typed(text) | Pasted(text) if self._writable:
                self.written += text
        return None

    def lines(self) -> list[str]:
        """Return what is shown; a line that is a rule's character alone is drawn over the full width."""
        shown = [RULE, *self.reading]
        for index, row in enumerate(self.rows):
            mark = "❯" if index == self.selected and not self.written else " "
            number = f"{index + 1}. " if self._numbered else ""
            shown.append(f" {mark} {number}{row}")
        if self.written:
            shown.append(f" ❯ {self.written}")
        return [*shown, "", f" {self.hint}"]


def trust(cwd: str, wording: str) -> tuple[Dialog, int]:
    """Whether the folder is trusted, and the row that says so. By default the *other* row is highlighted."""
    hint = "Enter to confirm · Esc to cancel"
    if wording == "old":
        reading = [" Accessing workspace:", "", f" {cwd}", "", " Do you trust the files in this folder?", ""]
        return Dialog(reading, ["Yes, I trust this folder", "No, exit"], hint), 0
    if wording == "alternate":
        reading = [f" {cwd}", "", " Do you want to continue and proceed in this folder?", ""]
        return Dialog(reading, ["Yes, continue", "No, exit"], hint), 0
    if wording == "unresolvable":
        reading = [f" {cwd}", "", " How shall this folder be opened, with which permission?", ""]
        return Dialog(reading, ["As it was", "As it will be"], "", numbered=False), -1
    reading = [
        " Accessing workspace:",
        "",
        f" {cwd}",
        "",
        " Quick safety check: Is this a project you created or one you trust? If not, take a moment to",
        " review what's in this folder first.",
        "",
        " The scripted agent runs the commands that you write into its prompts here.",
        "",
    ]
    return Dialog(reading, ["No, exit", "Yes, I trust this folder"], hint, numbered=False), 1


def permission(tool: str, given: Mapping[str, Any], cwd: str) -> Dialog:
    """Whether a tool may run. The rows are those of :data:`ALLOW` and its like."""
    hint = "Esc to cancel · Tab to amend"
    auto = "Yes, and switch to auto mode · auto mode handles these prompts for you"
    if tool == "Bash":
        about = [
            " Bash command",
            f" {given.get('description', '')}",
            _DASHES,
            f" {given.get('command', '')}",
            _DASHES,
        ]
        always = f"Yes, and always allow access to {cwd} from this project"
    else:
        subject = given.get("file_path") or given.get("url") or ""
        about = [f" {tool}", _DASHES, f" {subject}", _DASHES]
        always = f"Yes, and don’t ask again for: {tool}"
    return Dialog([*about, " Do you want to proceed?"], ["Yes", always, auto, "No"], hint)


# The rows of a permission dialog.
ALLOW, ALLOW_ALWAYS, ALLOW_IN_AUTO, REFUSE = range(4)


def question(asked: Mapping[str, Any]) -> Dialog:
    """One question of AskUserQuestion: its options, one's own words, or talking about it."""
    labels = [str(option.get("label", "")) for option in asked.get("options") or ()]
    reading = [f" ☐ {asked.get('header', '')} ", "", f" {asked.get('question', '')}", ""]
    rows = [*labels, "Type something.", "Chat about this"]
    return Dialog(reading, rows, "Enter to select · ↑/↓ to navigate · Esc to cancel", writable=True)


def leave_plan(plan: str) -> Dialog:
    """Whether the plan is good and work begins."""
    heading = ["   Exit plan mode?", "", "    Claude wants to exit plan mode"]
    reading = [*heading, *(f"    {line}" for line in plan.split("\n"))]
    return Dialog([*reading, ""], ["Yes, and switch to default (ask each time) for this session", "No"], "")


def auto_mode() -> Dialog:
    """Auto mode without the server's check: blocks, and no hook reports it."""
    reading = [" Auto mode can't check actions in this session", ""]
    hint = "Enter to stay in auto mode · shift+Tab to switch to manual mode"
    return Dialog(reading, ["Stay in auto mode", "Switch to manual mode"], hint, numbered=False)
