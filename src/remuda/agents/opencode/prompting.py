"""How opencode takes prompts: by calls to the server of its session. Its screen shows drafts and dialogs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from remuda.agents.base import Companion, LaunchContext
from remuda.agents.prompting import CallAddress, Choice, Composer, ComposerKind, Past
from remuda.digest import sha256
from remuda.errors import InputError

from .channel import OpencodeChannel
from .launch import find_address, make_companion
from .server import START_TIMEOUT

_BORDER = "╹▀▀"
_EDGE = "┃"
_PLACEHOLDER = "Ask anything"
_LOGO = frozenset(" █▀▄")
_BORDER_ROWS = 8
"""The lower border of the composer is in one of these rows at the bottom."""
_DIALOGS = {
    "△ Permission required": "permission",
    "△ Always allow": "permission",
    "△ Reject permission": "permission",
    "enter submit  esc dismiss": "question",
    "enter confirm  esc dismiss": "question",
}

_CONFIGURED = ("OPENCODE_CONFIG", "OPENCODE_CONFIG_CONTENT", "OPENCODE_AUTH_CONTENT")
"""Variables whose settings may name another service, or a key."""


class OpencodeTransport:
    kind: Literal["call"] = "call"
    start_timeout = START_TIMEOUT

    def __init__(self, skip: int = 1) -> None:
        self._skip = skip

    def companion(self, context: LaunchContext) -> Companion:
        return make_companion(context, self._skip)

    def find_address(self, context: LaunchContext, output: str) -> str | None:
        return find_address(context, output, self._skip)

    def may_start_again(self, output: str) -> bool:
        """Two servers that start at once may meet in their database, mostly in a new home."""
        return "database is locked" in output

    def channel(self, address: CallAddress) -> OpencodeChannel:
        return OpencodeChannel(address)


class OpencodePrompts:
    enter = b"\r"
    trust_settle = 0.0
    keeps_unanswered = True

    def __init__(self) -> None:
        self.transport = OpencodeTransport()

    def check(self, prompt: str, *, command: bool, literal: bool) -> None:
        if not prompt.strip():
            raise InputError("the prompt is empty")
        if command and not prompt.startswith("/"):
            raise InputError(f"{prompt[:40]!r} is not a command: it must begin with '/'")

    def argument(self, prompt: str, *, command: bool) -> None:
        return None

    def same(self, reported: str, prompt: str) -> bool:
        return reported == prompt

    def holds(self, reported: str, prompt: str) -> bool:
        return reported != prompt and prompt in reported

    def composer(self, lines: Sequence[str], styled: Callable[[int], bytes]) -> Composer:
        border = _find_border(lines)
        if border is None:
            return Composer(ComposerKind.ABSENT)
        width = lines[border].rindex("▀") + 1  # beyond it is the sidebar of a wide terminal
        rows = []
        for row in range(border - 1, -1, -1):
            line = lines[row][:width].strip()
            if not line.startswith(_EDGE):
                break
            rows.append(line.removeprefix(_EDGE).strip())
        text = "\n".join(reversed(rows[1:])).strip()  # the last row names the model
        if not text or text.startswith(_PLACEHOLDER):
            return Composer(ComposerKind.EMPTY)
        return Composer(ComposerKind.DRAFT, text)

    def dialog(self, lines: Sequence[str]) -> str | None:
        if _find_border(lines) is not None:
            return None  # a dialog is in the place of the composer; the same words above it are text
        for line in reversed(lines):
            for words, name in _DIALOGS.items():
                if words in line:
                    return name
        return None

    def trust_choice(self, lines: Sequence[str]) -> Choice | None:
        return None

    def past(self, records: Iterable[Mapping[str, Any]], prompt: str, since: float) -> Past:
        """Return nothing: the server is searched."""
        return Past()

    def limited_for(self, text: str, now: float) -> float | None:
        return None

    def account(self, env: Mapping[str, str]) -> str:
        """Return a digest of the folder with its credentials, and of variables with keys."""
        home = env.get("HOME", "")
        folder = env.get("XDG_DATA_HOME") or f"{home}/.local/share"
        keys = sorted(
            f"{name}={value}"
            for name, value in env.items()
            if name.endswith("_API_KEY") or name in _CONFIGURED
        )
        return sha256("\0".join([f"opencode {folder}", *keys]).encode())[:24]


def _find_border(lines: Sequence[str]) -> int | None:
    """Return the row of the composer's lower border."""
    for row in range(len(lines) - 1, max(-1, len(lines) - 1 - _BORDER_ROWS), -1):
        if lines[row].lstrip().startswith(_BORDER):
            return row
    return _find_start_border(lines)


def _find_start_border(lines: Sequence[str]) -> int | None:
    """Return the same row on the start screen, which has only the logo above a composer in its middle.

    The terminal shows it after its server died while it attached (1.18.33). Text cannot look like that: it
    would be above the composer.
    """
    border = next((row for row, line in enumerate(lines) if line.lstrip().startswith(_BORDER)), None)
    if border is None:
        return None
    top = border
    while top > 0 and lines[top - 1].lstrip().startswith(_EDGE):
        top -= 1
    above = set("".join(lines[:top]))
    return border if above and "█" in above and not above - _LOGO else None
