"""What Claude Code's screen asks or reports, as far as a call of `print` must know (2.1.325). Pure."""

from __future__ import annotations

import re

from remuda.agents.claude.screen import has_composer, open_dialog, read_trust_choice
from remuda.agents.headless import Lines

_RETRY = re.compile(r"Retrying in .*?attempt (\d+)/(\d+)")
_MARKED = re.compile(r"^\s*[│|]?\s*❯\s+\S")
_DIALOG_LINES = 8
_DIALOG_CHARACTERS = 500
_PICKER = "Resume session"
_RULE = "────────"
_FRAME = " │|╭╮╰╯─▔╌━═"


class ClaudeDialogs:
    """Implements `agents.headless.Dialogs`."""

    def open_dialog(self, lines: Lines) -> str | None:
        return open_dialog(lines)

    def asks_for_trust(self, lines: Lines) -> bool:
        return read_trust_choice(lines) is not None

    def is_question(self, lines: Lines) -> bool:
        """Whether a row is marked outside a composer: a question, even in words we do not know."""
        return any(_MARKED.match(line) for line in lines) and not has_composer(lines)

    def refusal(self, lines: Lines) -> str | None:
        """Find the CLI's list of conversations: it did not find the one to resume."""
        is_titled = any(line.strip(_FRAME) == _PICKER for line in lines)
        if is_titled and any("⌕" in line for line in lines):
            return "--resume: no conversation in this folder has that id or title"
        return None

    def retrying(self, lines: Lines) -> str | None:
        for line in reversed(lines):
            if match := _RETRY.search(line):
                attempt = f"attempt {match[1]} of {match[2]}"
                return f"the agent is retrying the API, {attempt}: {line.strip(_FRAME)[:200]}"
        return None

    def shown(self, lines: Lines) -> str:
        """Return the end of the screen as one line; of a question, what is below the rule above it."""
        marked = [y for y, line in enumerate(lines) if _MARKED.match(line)]
        rules = [y for y, line in enumerate(lines) if line.startswith(_RULE) and marked and y < marked[-1]]
        plain = [line.strip(_FRAME) for line in lines[rules[-1] if rules else 0 :]]
        return " / ".join([line for line in plain if line][-_DIALOG_LINES:])[:_DIALOG_CHARACTERS]
