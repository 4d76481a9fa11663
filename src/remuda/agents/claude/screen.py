"""What Claude Code's screen tells that nothing else does: which dialog is open. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
