"""How Claude Code changes a prompt that is pasted or passed as an argument (2.1.325). Pure.

The first characters of a pasted prompt can run something: `!` a shell command, `/word` one of the CLI's
commands, also after white space. A newline before `!` makes it text; nothing invisible makes `/word` text.
A line that is the path of a picture is removed and attached, unless it comes in two pastes.
A prompt that is only `exit`, `quit` or a command that leaves vi ends the CLI, also as an argument.
Control characters are dropped from a paste, and `ESC[201~` in it would end it: none ever reaches the
terminal. Tabs become four blanks, blanks at the end are removed, CR, U+2028 and U+2029 become a newline.

Invisible characters are dropped too, except joiners and selectors of a visible character. After some of them,
such as marks of direction, the CLI holds Enter back ("Removed 1 invisible character · review and press Enter
to send"). So we remove them before the paste. Enter after a backslash is a line end. A short prompt is
changed to Unicode's composed form (NFC), a long one is not.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

from remuda.errors import InputError
from remuda.patterns import pattern

TYPE_CHECKING = False  # as type checkers read it; importing `typing` takes 2 ms
if TYPE_CHECKING:
    from remuda.agents.prompting import Carried

PASTE_BEGIN, PASTE_END, ENTER = b"\x1b[200~", b"\x1b[201~", b"\r"
MAX_ARGUMENT_BYTES = 131_071
MAX_PASTE_BYTES = 4 << 20
MAX_PICTURES = 1000
"""Each needs a paste of its own; a thousand take some seconds."""

_COMMAND = pattern(r"/[^\s/]*(?:\s|$)")
_ENDS = frozenset({"exit", "quit", ":q", ":q!", ":wq", ":wq!"})
_LINE_END = pattern("\r\n|[\r\u2028\u2029]")
_PATH_LINE = pattern(r"^[^\S\n]*['\"]?/.*$", re.MULTILINE)
_PICTURE = pattern(r"\.(?:png|jpe?g|gif|webp)", re.IGNORECASE)
_MENTION = pattern(r"(?:^|\s)@\S")
# What the CLI drops, found by pasting every candidate character of Unicode.
_INVISIBLE = pattern(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001107f\U00013430-\U0001343f\U00016fe4\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Joiners, selectors and tags stay after a character that they apply to: emoji, joining letters, keycaps.
_JOINED = "\u200c\u200d\ufe0e\ufe0f\U000e0020-\U000e007f"
_UNJOINED = pattern(f"(?![{_JOINED}]){_INVISIBLE.pattern}")
_ASTRAY = pattern(f"(?<![^\\x00-\\x7f]|[#*0-9])[{_JOINED}]+")


def check(prompt: str, *, command: bool, literal: bool) -> None:
    """Raise `InputError` for a prompt that neither a paste nor an argument can carry unchanged."""
    try:
        size = len(prompt.encode())
    except UnicodeEncodeError:
        raise InputError("the prompt is not valid UTF-8") from None
    if not _bare(prompt):
        raise InputError("the prompt is empty: it has no visible characters")
    if (found := find_control(prompt)) is not None:
        position, character = found
        raise InputError(
            f"the prompt contains the control character U+{ord(character):04X} at position {position}, "
            "which cannot be sent to a terminal",
            hint="put the text into a file and name the file in the prompt",
        )
    if command:
        _check_command(prompt)
    else:
        _check_text(prompt)
    if literal and _MENTION.search(visible(prompt)):
        raise InputError(
            "the prompt contains @ before a word, which would attach a file; --literal forbids that"
        )
    _check_size(prompt, size)


def _check_command(prompt: str) -> None:
    if not looks_like_command(prompt):
        raise InputError("--command is for a prompt that begins with /word")
    if len(prompt.strip().splitlines()) > 1:
        raise InputError("a command must be a single line")


def _check_text(prompt: str) -> None:
    if looks_like_command(prompt):
        word = visible(prompt).split()[0]
        raise InputError(
            f"a prompt that begins with {word} would run the agent's own command",
            hint="pass --command to run it, or put a word before it",
        )
    if (word := visible(prompt).strip()) in _ENDS:
        raise InputError(
            f"a prompt that is only '{word}' would end the agent",
            hint="write a sentence, or end the session with 'remuda kill'",
        )


def _check_size(prompt: str, size: int) -> None:
    what = ""
    if size > MAX_PASTE_BYTES:
        what = f"of more than {MAX_PASTE_BYTES} bytes"
    elif len(_pieces(_LINE_END.sub("\n", prompt))) > MAX_PICTURES + 1:
        what = f"with the paths of more than {MAX_PICTURES} pictures"
    if what:
        raise InputError(
            f"a prompt {what} cannot be pasted",
            hint="put the text into a file and name the file in the prompt",
        )


def looks_like_command(prompt: str) -> bool:
    return _COMMAND.match(visible(prompt).lstrip()) is not None


def visible(prompt: str) -> str:
    """Return the text without invisible characters: they hide nothing from the CLI."""
    return _INVISIBLE.sub("", prompt)


def _as_kept(prompt: str) -> str:
    """Return the prompt without what the CLI would drop."""
    return _ASTRAY.sub("", _UNJOINED.sub("", prompt))


def find_control(prompt: str) -> tuple[int, str] | None:
    """Return the first control character and its position: none can be pasted or passed as an argument."""
    for position, character in enumerate(prompt):
        if unicodedata.category(character) == "Cc" and character not in "\n\t\r":
            return position, character
    return None


def paste(prompt: str, *, command: bool) -> Carried:
    """Return what to type into the empty composer of an idle agent. Call `check` first."""
    from remuda.agents.prompting import Carried

    text = prompt.strip() if command else prompt
    text = _as_kept(_LINE_END.sub("\n", text))
    guarded = f"\n{text}" if visible(text).startswith("!") else text
    reported = _as_pasted(guarded)
    # After a backslash Enter is a line end; a blank at the end is dropped.
    typed = f"{guarded} " if guarded.endswith("\\") else guarded
    pasted = b"".join(PASTE_BEGIN + piece.encode() + PASTE_END for piece in _pieces(typed))
    return Carried(pasted + ENTER, reported)


def _pieces(text: str) -> list[str]:
    """Split a prompt into pastes: within names of pictures, on lines that begin with a path.

    In one paste the CLI takes the line for a file that was dropped on the terminal. The line is replaced by
    an attachment before the prompt, and the Enter after it is lost.
    """
    cuts = [
        line.start() + name.end() - 1
        for line in _PATH_LINE.finditer(text)
        for name in _PICTURE.finditer(line[0])
    ]
    return [text[begin:end] for begin, end in pairwise([0, *cuts, len(text)])]


def argument(prompt: str, *, command: bool) -> Carried | None:
    """Return the prompt as an argument, exact except for what the CLI drops; None if it is too long."""
    from remuda.agents.prompting import Carried

    data = prompt.encode()
    if command or len(data) > MAX_ARGUMENT_BYTES:
        return None
    reported = _as_kept(prompt)
    return Carried(data, reported)


def fits_argument(prompt: str) -> bool:
    try:
        check(prompt, command=False, literal=False)
    except InputError:
        return False
    return len(prompt.encode()) <= MAX_ARGUMENT_BYTES


def _as_pasted(text: str) -> str:
    return text.replace("\t", "    ").rstrip()


def same(reported: str, prompt: str) -> bool:
    return reported == prompt or _bare(reported) == _bare(prompt)


def holds(reported: str, prompt: str) -> bool:
    bare, whole = _bare(prompt), _bare(reported)
    return bool(bare) and bare != whole and (whole.startswith(bare) or whole.endswith(bare))


def _bare(text: str) -> str:
    """Return what none of our transports changes."""
    return unicodedata.normalize("NFC", "".join(visible(text).split()))
