"""What only Claude Code's screen shows: open dialogs, the composer, and tokens as they come. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from remuda.agents.prompting import Choice, Composer, ComposerKind

_CHOICE = re.compile(r"^\s*❯\s+(?:\d+\.\s+\S|Yes\b|No\b)")
_FOOTERS = ("Esc to cancel", "Enter to confirm", "Enter to select", "Enter to stay", "Esc to exit")


def open_dialog(lines: Sequence[str]) -> str | None:
    """Return a name for the dialog on the screen, or None.

    A dialog is a highlighted choice with a footer that says how to leave it; the composer has neither.
    """
    text = "\n".join(lines)
    if read_trust_choice(lines) is not None:
        return "trust dialog"
    if not any(_CHOICE.match(line) for line in lines):
        return None
    if "trust" in text and "No, exit" in text:
        return "trust dialog"
    return "dialog" if any(footer.lower() in text.lower() for footer in _FOOTERS) else None


_TOKENS = re.compile(r"^\S \S.*… \(.*↓ (\d{1,9}(?:\.\d+)?)(k?) tokens")


def spinner_tokens(lines: Sequence[str]) -> int | None:
    """Return how many tokens of the answer have come, by the line with the spinner."""
    for line in reversed(lines):
        if found := _TOKENS.match(line):
            return int(float(found[1]) * (1000 if found[2] else 1))
    return None


_RULE = "────────"


def has_composer(lines: Sequence[str]) -> bool:
    """Return whether the composer is drawn: a line after a rule that begins with the mark."""
    return any(above.startswith(_RULE) and line.startswith("❯") for above, line in pairwise(lines))


_SUSPENDED = "ClaudeCodehasbeensuspended.Run`fg`"
_SUSPENDED_ROWS = 12


def is_suspended(lines: Sequence[str]) -> bool:
    """Return whether it says that it is suspended and waits for `fg`, as after Ctrl-Z (2.1.325).

    On a narrow terminal the words are wrapped, and keys that are typed then are echoed below them.
    """
    shown = "".join([line for line in lines if line.strip()][-_SUSPENDED_ROWS:])
    return _SUSPENDED in "".join(shown.split()) and not has_composer(lines)


# ── the composer ──

_MARK = "❯"
_SELECTS = "-- VISUAL"
_SGR = re.compile(rb"\x1b\[([\d;:]*)m")
_ESCAPE = re.compile(rb"\x1b(?:\[[\d;:?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\))")


def read_composer(lines: Sequence[str], styled: Callable[[int], bytes]) -> Composer:
    """Return the lowest box between two rules, if its first line begins with the mark.

    A suggestion in an empty box is drawn faint (its first character as the cursor); typed text never is.
    Prompts cannot be typed in shell mode, which has another mark, in the agents view, and while a user of
    vi's keys selects text: Enter then sends nothing.
    """
    rules = [y for y, line in enumerate(lines) if line.startswith(_RULE)]
    for top, bottom in reversed(list(pairwise(rules))):
        if bottom - top < 2 or not lines[top + 1][:1].strip():
            continue  # rows below the box are indented
        if not lines[top + 1].startswith(_MARK) or _is_of_agents_view(lines, top, bottom, styled):
            break
        if any(line.lstrip().startswith(_SELECTS) for line in lines[bottom + 1 :]):
            break
        text = "\n".join(lines[top + 1 : bottom])[len(_MARK) :].replace("\xa0", " ").strip()
        typed = bool(text) and not _suggested(text, [styled(y) for y in range(top + 1, bottom)])
        stashed = any("› stashed" in line for line in lines[max(0, top - 2) : top])
        return Composer(ComposerKind.DRAFT if typed else ComposerKind.EMPTY, text if typed else "", stashed)
    return Composer(ComposerKind.ABSENT)


# The agents view (left arrow in an empty composer) has a box just like it: what is typed there is the task of
# a new session, and Ctrl+S orders the list. Seen on 2.1.325, at all sizes: one of these is always there.
_COUNTS = re.compile(r"\W*\d+ awaiting input · \d+ working\b")
_KEYS = ("enter to ", "ctrl+x to ", "ctrl+f to ")


def _is_of_agents_view(lines: Sequence[str], top: int, bottom: int, styled: Callable[[int], bytes]) -> bool:
    if any(_COUNTS.match(line) for line in lines[: min(top, 8)]):
        return True
    below = next((line.strip() for line in lines[bottom + 1 :] if line.strip()), "")
    if below.startswith(_KEYS):
        return True
    # Its rules are faint and a blank follows its mark; the composer's have a colour, and it is a hard blank.
    return lines[top + 1].startswith(f"{_MARK} ") and not _unfaint(styled(top)).strip()


def _suggested(text: str, rows: list[bytes]) -> bool:
    """Return whether everything after the mark and the cursor is faint, and more than one character."""
    plain = "".join(_unfaint(row) for row in rows).replace("\xa0", " ")
    return len(text) > 1 and len(plain.strip().removeprefix(_MARK).strip()) <= 1


def _unfaint(row: bytes) -> str:
    """Return the text of a row that is not faint."""
    shown, faint, position = b"", False, 0
    for found in _ESCAPE.finditer(row):
        shown += b"" if faint else row[position : found.start()]
        position = found.end()
        if sgr := _SGR.fullmatch(found[0]):
            faint = _faint_after(sgr[1].split(b";"), faint)
    shown += b"" if faint else row[position:]
    return shown.decode("utf-8", "replace")


def _faint_after(parameters: list[bytes], faint: bool) -> bool:
    skip = 0
    for position, word in enumerate(parameters):
        if skip:
            skip -= 1
        elif word in (b"38", b"48", b"58"):  # a colour: its numbers are not attributes
            skip = 4 if parameters[position + 1 : position + 2] == [b"2"] else 2
        elif word == b"2":
            faint = True
        elif word in (b"", b"0", b"22"):
            faint = False
    return faint


# ── the permission mode ──

_MODES = {
    "manual mode on": "default",
    "plan mode on": "plan",
    "accept edits on": "acceptEdits",
    "auto mode on": "auto",
    "don't ask on": "dontAsk",
    "bypass permissions on": "bypassPermissions",
}
_DEFAULT_FOOTER = "? for shortcuts"


def read_mode(lines: Sequence[str]) -> str | None:
    """Return the permission mode in the footer below the composer; None if it is not shown.

    Versions before 2.1.200 show no words for the default mode.
    """
    rules = [y for y, line in enumerate(lines) if line.startswith(_RULE)]
    footer = " ".join(lines[rules[-1] + 1 :]).replace("’", "'") if rules else ""
    found = {mode for words, mode in _MODES.items() if words in footer}
    if not found and _DEFAULT_FOOTER in footer:
        return "default"
    return found.pop() if len(found) == 1 else None


# ── the trust dialog ──

_ROW = re.compile(r"^[\s│|]*([❯>])?\s*(?:\[?\d+[.)\]]\s*)?((yes|no)\b[^│|]*?)[\s│|]*$", re.IGNORECASE)
_SUBJECT = re.compile(r"\b(?:folder|workspace|director(?:y|ies)|project|repositor(?:y|ies)|files)\b")
_AGREES = re.compile(r"\b(?:trust|continue|proceed|allow)\b")
_LEAVES = re.compile(r"\b(?:exit|quit|leave|do not trust|don['’]t trust)\b")
_ASKS_FOR_TRUST = re.compile(r"\btrust(?:ed)?\b[^.?]*\?")
_WORDS = ("trust", "allow", "continue", "folder", "permission", "proceed")
# Questions that also end the program with a no, or are about more than the folder.
_ANOTHER = re.compile(r"bypass|dangerous|api key|mcp server|bash command|tab to amend|\bimports?\b")


def read_trust_choice(lines: Sequence[str]) -> Choice | None:
    """Return which row is highlighted and which says yes; None if it is not this dialog.

    Rows are recognised by their words, never by their place. The words change between versions: they must be
    about a folder, with a yes that trusts it or continues, and a no that exits. The dialog comes before any
    composer: with one on the screen, such rows are other text.
    """
    rows = [(y, found) for y, line in enumerate(lines) if (found := _ROW.match(line))]
    marked = [number for number, (_, row) in enumerate(rows) if row[1]]
    answers = [row[3].lower() for _, row in rows]
    if len(marked) != 1 or sorted(answers) != ["no", "yes"] or rows[1][0] - rows[0][0] > 2:
        return None
    wanted = answers.index("yes")
    above = " ".join(line.strip(" │|") for line in lines[: rows[0][0]]).lower()
    yes, no = rows[wanted][1][2].lower(), rows[1 - wanted][1][2].lower()
    if has_composer(lines) or not _is_about_trust(above, yes, no) or _ANOTHER.search(_prose(lines)):
        return None
    return Choice(marked[0], wanted)


def _prose(lines: Sequence[str]) -> str:
    """Return the text without the folder itself, which may have any name."""
    return "\n".join(line for line in lines if not line.strip(" │|").startswith(("/", "~"))).lower()


def _is_about_trust(above: str, yes: str, no: str) -> bool:
    if not _SUBJECT.search(above) or not _LEAVES.search(no):
        return False
    if yes.rstrip(".! ") == "yes":
        return _ASKS_FOR_TRUST.search(above) is not None
    if not _AGREES.search(yes):
        return False
    return "trust" in above or sum(word in f"{above} {yes}" for word in _WORDS) >= 2


# ── what a call of print must know ──

_RETRY = re.compile(r"Retrying in .*?attempt (\d+)/(\d+)")
_MARKED = re.compile(r"^\s*[│|]?\s*❯\s+\S")
_DIALOG_LINES = 8
_DIALOG_CHARACTERS = 500
_PICKER = "Resume session"
_FRAME = " │|╭╮╰╯─▔╌━═"


class ClaudeDialogs:
    """Implements `agents.headless.Dialogs`: what a call of `print` asks of the screen (2.1.325)."""

    open_dialog = staticmethod(open_dialog)

    def asks_for_trust(self, lines: Sequence[str]) -> bool:
        return read_trust_choice(lines) is not None

    def is_question(self, lines: Sequence[str]) -> bool:
        """Return whether a row is marked outside a composer: a question, even in unknown words."""
        return any(_MARKED.match(line) for line in lines) and not has_composer(lines)

    def refusal(self, lines: Sequence[str]) -> str | None:
        """Find the CLI's list of conversations: it did not find the one to resume."""
        is_titled = any(line.strip(_FRAME) == _PICKER for line in lines)
        if is_titled and any("⌕" in line for line in lines):
            return "--resume: no conversation in this folder has that id or title"
        return None

    def retrying(self, lines: Sequence[str]) -> str | None:
        for line in reversed(lines):
            if match := _RETRY.search(line):
                attempt = f"attempt {match[1]} of {match[2]}"
                return f"the agent is retrying the API, {attempt}: {line.strip(_FRAME)[:200]}"
        return None

    def shown(self, lines: Sequence[str]) -> str:
        """Return the end of the screen as one line; of a question, what is below the rule above it."""
        marked = [y for y, line in enumerate(lines) if _MARKED.match(line)]
        rules = [y for y, line in enumerate(lines) if line.startswith(_RULE) and marked and y < marked[-1]]
        plain = [line.strip(_FRAME) for line in lines[rules[-1] if rules else 0 :]]
        return " / ".join([line for line in plain if line][-_DIALOG_LINES:])[:_DIALOG_CHARACTERS]
