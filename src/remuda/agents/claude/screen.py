"""What Claude Code's screen tells that nothing else does: open dialogs, and tokens as they come. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

_CHOICE = re.compile(r"^\s*❯\s+(?:\d+\.\s+\S|Yes\b|No\b)")
_FOOTERS = ("Esc to cancel", "Enter to confirm", "Enter to select", "Enter to stay", "Esc to exit")


def open_dialog(lines: Sequence[str]) -> str | None:
    """A name for the dialog on the screen, or None.

    A dialog is a highlighted choice with a footer that says how to leave it; the composer has neither.
    """
    text = "\n".join(lines)
    if not any(_CHOICE.match(line) for line in lines):
        return None
    if "trust" in text and "No, exit" in text:
        return "trust dialog"
    return "dialog" if any(footer.lower() in text.lower() for footer in _FOOTERS) else None


_TOKENS = re.compile(r"^\S \S.*… \(.*↓ ([\d.]+)(k?) tokens")


def spinner_tokens(lines: Sequence[str]) -> int | None:
    """How many tokens of the answer have come, as the line with the spinner counts them."""
    for line in reversed(lines):
        if found := _TOKENS.match(line):
            return int(float(found[1]) * (1000 if found[2] else 1))
    return None


_RULE = "────────"


def has_composer(lines: Sequence[str]) -> bool:
    """Is the box for prompts drawn? Its first line stands below a rule and begins with the mark."""
    return any(above.startswith(_RULE) and line.startswith("❯") for above, line in pairwise(lines))
