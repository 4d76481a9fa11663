"""How copilot takes a prompt: which ones are safe, its keys, composer and dialogs (1.0.102). Pure.

In a paste, `!` runs a shell command and `/word` a command of the CLI, also after white space. `ESC[201~` in
it would end the paste. A paste of 29 KB becomes a file, and the model gets only its name. `exit` and `quit`
end the agent. Tabs become four blanks, and both ends are trimmed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from remuda.agents.prompting import Carried, Choice, Composer, Past
from remuda.digest import sha256
from remuda.errors import InputError

from .files import copilot_home
from .records import read_past
from .screen import open_dialog, read_composer, read_trust_choice

PASTE_BEGIN, PASTE_END, ENTER = b"\x1b[200~", b"\x1b[201~", b"\r"
ESCAPE = b"\x1b[27u"
"""The Escape key in its long form. Two plain ones in one read are taken for one other key."""
MAX_PROMPT_BYTES = 10_000
_COMMAND = re.compile(r"/[^\s/]*(?:\s|$)")
_ENDS = frozenset({"exit", "quit"})
_MENTION = re.compile(r"(?:^|\s)@\S")
_LINE_END = re.compile("\r\n?")
_CREDENTIALS = (
    "COPILOT_PROVIDER_BEARER_TOKEN",
    "COPILOT_PROVIDER_API_KEY",
    "COPILOT_GITHUB_TOKEN",
    "GH_TOKEN",
    "GITHUB_TOKEN",
)
_IN_A_FILE = "put the text into a file and name the file in the prompt"


def _bare(text: str) -> str:
    """Return a prompt as copilot reports it."""
    return _LINE_END.sub("\n", text).replace("\t", "    ").strip()


def check_text(prompt: str) -> None:
    """Raise `InputError` for a prompt that no mode of copilot takes."""
    try:
        prompt.encode()
    except UnicodeEncodeError:
        raise InputError("the prompt is not valid UTF-8") from None
    if not prompt.strip():
        raise InputError("the prompt is empty: it has no visible characters")


def find_control(prompt: str) -> tuple[int, str] | None:
    for position, character in enumerate(prompt):
        if unicodedata.category(character) == "Cc" and character not in "\n\t\r":
            return position, character
    return None


def check_typed(prompt: str, *, command: bool = False, literal: bool = False) -> None:
    """Raise `InputError` for a prompt that cannot be typed into copilot unchanged and safely."""
    check_text(prompt)
    if (found := find_control(prompt)) is not None:
        raise InputError(
            f"the prompt contains the control character U+{ord(found[1]):04X} at position {found[0]}, "
            "which cannot be sent to a terminal",
            hint=_IN_A_FILE,
        )
    if command:
        raise InputError(
            "copilot reports nothing about its own commands, so none is sent", hint="attach and type it"
        )
    bare = _visible(prompt)
    if bare.startswith("!"):
        raise InputError(
            "a prompt that begins with ! would run a shell command in copilot", hint="put a word before it"
        )
    if _COMMAND.match(bare):
        raise InputError(
            f"a prompt that begins with {bare.split()[0]} would run copilot's own command",
            hint="put a word before it",
        )
    if bare in _ENDS:
        raise InputError(
            f"a prompt that is only '{bare}' would end the agent",
            hint="write a sentence, or end the session with 'remuda kill'",
        )
    if literal and _MENTION.search(bare):
        raise InputError(
            "the prompt contains @ before a word, which would attach a file; --literal forbids that"
        )
    if (size := len(prompt.encode())) > MAX_PROMPT_BYTES:
        raise InputError(
            f"a prompt of {size} bytes is too long for copilot's composer, which makes a file of it "
            f"(at most {MAX_PROMPT_BYTES})",
            hint=_IN_A_FILE,
        )


def _visible(prompt: str) -> str:
    """Return the text from its first visible character on: what is invisible may be dropped before it."""
    kept = (one for one in prompt if one.isspace() or unicodedata.category(one) not in ("Cf", "Cc"))
    return "".join(kept).strip()


def same(reported: str, prompt: str) -> bool:
    return _bare(reported) == _bare(prompt)


def holds(reported: str, prompt: str) -> bool:
    bare, whole = _bare(prompt), _bare(reported)
    return bool(bare) and bare != whole and (whole.startswith(bare) or whole.endswith(bare))


class CopilotPaste:
    kind: Literal["paste"] = "paste"
    stash = b"\x13"
    interrupt = ESCAPE * 2
    wipe = ESCAPE

    def paste(self, prompt: str, *, command: bool) -> Carried:
        text = _LINE_END.sub("\n", prompt)
        return Carried(PASTE_BEGIN + text.encode() + PASTE_END + ENTER, _bare(text))


class CopilotPrompts:
    transport = CopilotPaste()
    enter = ENTER
    trust_settle = 0.5
    keeps_unanswered = True

    def check(self, prompt: str, *, command: bool, literal: bool) -> None:
        check_typed(prompt, command=command, literal=literal)

    def argument(self, prompt: str, *, command: bool) -> Carried | None:
        return None if command else Carried(prompt.encode(), _bare(prompt))

    def same(self, reported: str, prompt: str) -> bool:
        return same(reported, prompt)

    def holds(self, reported: str, prompt: str) -> bool:
        return holds(reported, prompt)

    def composer(self, lines: Sequence[str], styled: Callable[[int], bytes]) -> Composer:
        return read_composer(lines)

    def dialog(self, lines: Sequence[str]) -> str | None:
        return open_dialog(lines)

    def trust_choice(self, lines: Sequence[str]) -> Choice | None:
        return read_trust_choice(lines)

    def past(self, records: Iterable[Mapping[str, Any]], prompt: str, since: float) -> Past:
        return read_past(records, prompt, since, same)

    def limited_for(self, text: str, now: float) -> float | None:
        return None

    def account(self, env: Mapping[str, str]) -> str:
        """Return a digest of home, provider and the source of the credential."""
        source = next((f"{name}={env[name]}" for name in _CREDENTIALS if env.get(name)), "file")
        base = env.get("COPILOT_PROVIDER_BASE_URL", "")
        return sha256(f"copilot\0{copilot_home(env)}\0{base}\0{source}".encode())[:24]
