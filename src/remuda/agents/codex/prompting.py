"""How codex takes a prompt: by a call to its app-server, never by keys."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from remuda.agents.base import Companion, LaunchContext
from remuda.agents.prompting import CallAddress, Choice, Composer, Past
from remuda.errors import InputError

from . import launch
from .channel import SCHEME, CodexChannel
from .files import account
from .notices import ThreadReader
from .rollout import read_past
from .screen import open_dialog, read_composer, read_trust_choice

_RESET = re.compile(
    r"[Tt]ry again at (?:([A-Z][a-z]{2}) (\d{1,2})(?:st|nd|rd|th), (\d{4}) )?(\d{1,2}):(\d{2})\s*([AP])M"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class AppServerTransport:
    kind: Literal["call"] = "call"
    start_timeout = 30.0

    def __init__(self) -> None:
        self._reader = ThreadReader()

    def companion(self, context: LaunchContext) -> Companion:
        made = launch.companion(context)
        with contextlib.suppress(OSError):  # of a server that was killed
            os.unlink(launch.socket_path(context))
        return made

    def find_address(self, context: LaunchContext, output: str) -> str | None:
        """Return the address once the link to the socket is there. No one connects before the terminal."""
        path = launch.socket_path(context)
        return SCHEME + path if os.path.exists(path) else None

    def may_start_again(self, output: str) -> bool:
        return False

    def channel(self, address: CallAddress) -> CodexChannel:
        return CodexChannel(address, self._reader)


class CodexPrompts:
    enter = b"\r"
    trust_settle = 0.5
    keeps_unanswered = True

    def __init__(self) -> None:
        self.transport = AppServerTransport()

    def check(self, prompt: str, *, command: bool, literal: bool) -> None:
        if command:
            word = prompt.split()[0] if prompt.split() else "/"
            raise InputError(f"codex runs {word[:40]!r} only at its terminal: attach and type it")
        if not prompt.strip():
            raise InputError("the prompt is empty")

    def argument(self, prompt: str, *, command: bool) -> None:
        return None

    def same(self, reported: str, prompt: str) -> bool:
        return reported == prompt

    def holds(self, reported: str, prompt: str) -> bool:
        return reported != prompt and prompt in reported

    def composer(self, lines: Sequence[str], styled: Callable[[int], bytes]) -> Composer:
        return read_composer(lines, styled)

    def dialog(self, lines: Sequence[str]) -> str | None:
        return open_dialog(lines)

    def trust_choice(self, lines: Sequence[str]) -> Choice | None:
        return read_trust_choice(lines)

    def past(self, records: Iterable[Mapping[str, Any]], prompt: str, since: float) -> Past:
        return read_past(records, prompt, since)

    def limited_for(self, text: str, now: float) -> float | None:
        """Return how long a limit lasts by the words of codex, which name the minute in the local zone."""
        found = _RESET.search(text)
        if found is None:
            return None
        month, day, year, hour, minute, half = found.groups()
        here = datetime.fromtimestamp(now).astimezone()
        try:
            at = here.replace(hour=int(hour) % 12 + 12 * (half == "P"), minute=int(minute), second=0)
            at = at.replace(year=int(year), month=_MONTHS.index(month) + 1, day=int(day)) if month else at
        except ValueError:
            return None
        if not month and at + timedelta(minutes=1) <= here:
            at += timedelta(days=1)
        return max(1.0, at.timestamp() + 60.0 - now)

    def account(self, env: Mapping[str, str]) -> str:
        return account(env)
