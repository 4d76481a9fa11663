"""What Claude Code makes of a prompt that is pasted or given as an argument (2.1.325). Pure.

A pasted prompt is live at its first characters: `!` runs a shell command at once, `/word` one of the CLI's
commands, also behind white space. A newline before `!` makes it text; nothing invisible makes `/word` text.
Control characters are dropped from a paste, and `ESC[201~` in it would end it: none ever reaches the
terminal. Tabs become four blanks, blanks at the end go, CR becomes a newline, U+200B is dropped.
"""

from __future__ import annotations

import re
import unicodedata

from remuda.agents.speech import Carried
from remuda.errors import InputError

PASTE_BEGIN, PASTE_END, ENTER = b"\x1b[200~", b"\x1b[201~", b"\r"
MAX_ARGUMENT_BYTES = 131_071
MAX_PASTE_BYTES = 4 << 20

_BLANKS = " \t\n\r\x0b\x0c"
_COMMAND = re.compile(r"/[^\s/.]*(?:\s|$)")
_MENTION = re.compile(r"(?:^|\s)@[^\s@]")
_ZERO_WIDTH_SPACE = "\u200b"


def check(prompt: str, *, command: bool, literal: bool) -> None:
    """Raises `InputError` for what neither a paste nor an argument can carry as what it is."""
    if (found := _control(prompt)) is not None:
        position, character = found
        raise InputError(
            f"the prompt holds the control character U+{ord(character):04X} at position {position}, "
            "which no terminal can be given",
            hint="put it into a file and name that",
        )
    is_command = looks_like_command(prompt)
    if is_command and not command:
        word = visible(prompt).split()[0]
        raise InputError(
            f"a prompt that begins with {word} would run the agent's own command",
            hint="say --command if that is meant, or put a word before it",
        )
    if command and not is_command:
        raise InputError("--command is for a prompt that begins with /word")
    if command and len(prompt.strip().splitlines()) > 1:
        raise InputError("a command has one line")
    if literal and _MENTION.search(prompt):
        raise InputError(
            "the prompt holds @ before a word, which would attach a file, and --literal was said"
        )
    if len(prompt.encode()) > MAX_PASTE_BYTES:
        raise InputError(
            f"a prompt of more than {MAX_PASTE_BYTES} bytes cannot be pasted",
            hint="put it into a file and name that",
        )


def looks_like_command(prompt: str) -> bool:
    return _COMMAND.match(visible(prompt).lstrip(_BLANKS)) is not None


def visible(prompt: str) -> str:
    """Less the characters that the CLI drops or that may as well not be there: they hide nothing from it."""
    return "".join(character for character in prompt if unicodedata.category(character) != "Cf")


def _control(prompt: str) -> tuple[int, str] | None:
    for position, character in enumerate(prompt):
        if unicodedata.category(character) == "Cc" and character not in "\n\t\r":
            return position, character
    return None


def paste(prompt: str, *, command: bool) -> Carried:
    """For an idle, empty composer; `check` comes first."""
    text = prompt.strip() if command else prompt
    guarded = f"\n{text}" if visible(text).startswith("!") else text
    reported = _as_pasted(guarded)
    data = PASTE_BEGIN + guarded.replace("\r\n", "\n").replace("\r", "\n").encode() + PASTE_END + ENTER
    return Carried(data, reported, reported != prompt)


def argument(prompt: str, *, command: bool) -> Carried | None:
    """As a word of the command line it is exact but for what is dropped; too long a word cannot be given."""
    data = prompt.encode()
    if command or len(data) > MAX_ARGUMENT_BYTES:
        return None
    reported = prompt.replace(_ZERO_WIDTH_SPACE, "")
    return Carried(data, reported, reported != prompt)


def _as_pasted(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", "    ")
    return text.replace(_ZERO_WIDTH_SPACE, "").rstrip()


def same(reported: str, prompt: str) -> bool:
    return reported == prompt or _bare(reported) == _bare(prompt)


def holds(reported: str, prompt: str) -> bool:
    bare, whole = _bare(prompt), _bare(reported)
    return bool(bare) and bare != whole and (whole.startswith(bare) or whole.endswith(bare))


def _bare(text: str) -> str:
    """What no transport of ours changes."""
    return "".join(visible(_as_pasted(text)).split())
