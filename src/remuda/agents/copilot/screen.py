"""What copilot's screen shows: composer, work, dialogs (1.0.102). Pure.

The composer is the lowest box between two rules. Every dialog takes its place. Esc Esc in an empty composer
opens a dialog that rewinds the conversation: Enter there would lose turns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from remuda.agents.prompting import Choice, Composer, ComposerKind

_RULE = "────────"
_MARK = "❯"
# `◎ Working · 6 B esc esc interrupt`, `esc again to interrupt`
_WORKING = re.compile(
    r"^ \S (?:Working|Thinking|Cancelling)\b|\besc (?:esc|again to) (?:interrupt|edit prompt)\b"
)
_LOADING = re.compile(r"^ \S Loading: ")
_FOOTER = re.compile(r"(?:↑/↓|↑↓).*\b(?:enter|Enter)\b")
_ROW = re.compile(r"^│ (❯| )\s*(\d)\. (\S.*?)\s*│$")
_TRUST_TITLE = "Confirm folder trust"


def _box(lines: Sequence[str]) -> tuple[int, int] | None:
    """Return the rows of the rules around the composer."""
    rules = [y for y, line in enumerate(lines) if line.startswith(_RULE)]
    for top, bottom in reversed(list(pairwise(rules))):
        if bottom - top >= 2:
            return (top, bottom) if lines[top + 1].startswith(_MARK) else None
    return None


def _status(lines: Sequence[str], bottom: int) -> str:
    return next((line for line in lines[bottom + 1 :] if line.strip()), "")


def read_composer(lines: Sequence[str]) -> Composer:
    """Return the composer; absent while plugins load: a prompt would then run without our hooks."""
    box = _box(lines)
    if box is None or _LOADING.match(_status(lines, box[1])):
        return Composer(ComposerKind.ABSENT)
    top, bottom = box
    first = lines[top + 1][len(_MARK) :]
    text = "\n".join([first.strip(), *(line[2:].rstrip() for line in lines[top + 2 : bottom])]).strip()
    stashed = "stashed" in _status(lines, bottom)
    return Composer(ComposerKind.DRAFT if text else ComposerKind.EMPTY, text, stashed)


def is_working(lines: Sequence[str]) -> bool | None:
    """Return whether the status line shows work; None if no composer is drawn."""
    box = _box(lines)
    if box is None:
        return None
    status = _status(lines, box[1])
    return None if _LOADING.match(status) else _WORKING.search(status) is not None


def open_dialog(lines: Sequence[str]) -> str | None:
    """Return a name for the dialog in place of the composer, or None."""
    if _box(lines) is not None:
        return None
    if read_trust_choice(lines) is not None:
        return "trust dialog"
    text = "\n".join(lines)
    if not any(_FOOTER.search(line) for line in lines):
        return None
    if "Rewind turn" in text or "Rewind" in text:
        return "rewind dialog"
    if "Do you want to" in text:
        return "permission dialog"
    return "question" if "needs information" in text else "dialog"


def read_trust_choice(lines: Sequence[str]) -> Choice | None:
    """Return the rows of the trust dialog. The wanted one, `Yes`, trusts for this session only."""
    if _box(lines) is not None or not any(_TRUST_TITLE in line for line in lines):
        return None
    rows = [found for line in lines if (found := _ROW.match(line.rstrip())) is not None]
    highlighted = [int(row[2]) for row in rows if row[1] == _MARK]
    wanted = [int(row[2]) for row in rows if row[3] == "Yes"]
    return Choice(highlighted[0], wanted[0]) if highlighted and wanted else None
