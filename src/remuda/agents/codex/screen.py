"""What only codex's screen shows: its composer and its dialogs. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from remuda.agents.prompting import Choice, Composer, ComposerKind

_MARK = "›"
_ROW = re.compile(r"^\s*(›)?\s*(\d+)\. (\S.*)$")
_FOOTER = re.compile(
    r"^\s*(?:press )?enter (?:to )?(?:confirm|select|continue|submit|proceed)\b", re.IGNORECASE
)
_TRUST = "Trust this folder?"
_TRUST_ROW = "Trust and continue"
_NUDGE = "Approaching rate limits"
_NAMES = {
    _TRUST: "trust dialog",
    "Hooks need review": "hooks review",
    "Would you like to": "permission",
}
_SGR = re.compile(rb"\x1b\[([\d;:]*)m")
_ESCAPE = re.compile(rb"\x1b(?:\[[\d;:?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\))")


def _has_footer(lines: Sequence[str]) -> bool:
    shown = [line for line in lines if line.strip()]
    return any(_FOOTER.match(line) for line in shown[-2:])


def open_dialog(lines: Sequence[str]) -> str | None:
    """Return a name for the dialog that waits for a user; None if none is open.

    The offer of a cheaper model after a usage limit stops no one: prompts are called, not typed.
    """
    if not _has_footer(lines):
        return None
    text = "\n".join(lines)
    if _NUDGE in text:
        return None
    return next((name for words, name in _NAMES.items() if words in text), "dialog")


def read_trust_choice(lines: Sequence[str]) -> Choice | None:
    """Return the rows of the dialog that asks whether the folder is trusted."""
    if not _has_footer(lines) or not any(_TRUST in line for line in lines):
        return None
    rows = [found for line in lines if (found := _ROW.match(line))]
    marked = [n for n, row in enumerate(rows) if row[1]]
    wanted = [n for n, row in enumerate(rows) if row[3].startswith(_TRUST_ROW)]
    return Choice(marked[0], wanted[0]) if len(marked) == 1 and len(wanted) == 1 else None


def read_composer(lines: Sequence[str], styled: Callable[[int], bytes]) -> Composer:
    """Return the lowest row with the mark. A suggestion in an empty composer is faint, typed text is not."""
    if _has_footer(lines):
        is_nudge = any(_NUDGE in line for line in lines)
        return Composer(ComposerKind.EMPTY if is_nudge else ComposerKind.ABSENT)
    rows = [y for y, line in enumerate(lines) if line.startswith(_MARK)]
    if not rows:
        return Composer(ComposerKind.ABSENT)
    text = lines[rows[-1]][1:].strip()
    if not text or _is_faint(styled(rows[-1])):
        return Composer(ComposerKind.EMPTY)
    return Composer(ComposerKind.DRAFT, text)


def _is_faint(row: bytes) -> bool:
    """Whether the text after the mark is faint, except for the cell with the cursor."""
    faint, cells = False, []
    position = 0
    while position < len(row):
        if found := _SGR.match(row, position):
            for code in re.split(b"[;:]", found[1]) or [b""]:
                faint = True if code == b"2" else False if code in (b"", b"0", b"22") else faint
            position = found.end()
        elif found := _ESCAPE.match(row, position):
            position = found.end()
        else:
            cells.append((row[position : position + 1], faint))
            position += 1
    after = [is_faint for byte, is_faint in cells[len(_MARK.encode()) :] if byte.strip()]
    return bool(after) and all(after[1:])
