"""The invented agent for `remuda print`: its flags, and its trail as print's messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.agents.base import StreamTransport
from remuda.agents.headless import Handling, Message, NoDialogs, PrintFlags, TurnEnd
from remuda.agents.unattended import max_turns_reason

_OURS = ["--output-format", "--verbose", "--help", "--version", "--include-partial-messages"]
FLAGS = PrintFlags(
    terminal=dict.fromkeys(_OURS, Handling.OURS),
    aliases={},
    ours=frozenset(_OURS),
    needs_value=frozenset(["--output-format"]),
    takes=lambda flag, have, _word: flag == "--output-format" and have == 0,
)


class Trail:
    """The turn of one prompt, as its file has it."""

    version = "1.0"
    model = "horse"
    woken = goes_on = False

    def __init__(self) -> None:
        self._path: Path | None = None
        self._turn: str | None = None
        self._end: dict[str, Any] = {}

    @property
    def facts(self) -> Trail:
        return self

    def follow(self, path: Path, prompt_id: str | None) -> None:
        self._path, self._turn = path, prompt_id

    def read(self) -> bool:
        if self._path is None or self._end:
            return False
        records = [json.loads(line) for line in self._path.read_text().splitlines()]
        ends = [one for one in records if one["turn"] == self._turn and one["kind"] != "ask"]
        self._end = ends[-1] if ends else {}
        return bool(ends)

    def shown(self, text: str) -> None:
        pass

    @property
    def text(self) -> str:
        return str(self._end.get("words", ""))

    @property
    def is_api_error(self) -> bool:
        return self._end.get("kind") == "fall"

    @property
    def said_all(self) -> bool:
        return bool(self._end)

    def has(self, answer: str) -> bool:
        return self.text == answer

    def result(self, ended: TurnEnd, duration_ms: int, backend: str) -> Message:
        return {
            "type": "result",
            "subtype": ended.subtype,
            "is_error": ended.is_error,
            "result": ended.text,
            "duration_ms": duration_ms,
            "backend": backend,
            "usage": {"input_tokens": self._end.get("oats")},
        }


class MustangDialogs(NoDialogs):
    """All that it asks comes as a permission request."""

    def open_dialog(self, lines: Sequence[str]) -> str | None:
        return "kick" if lines and lines[0].startswith("?? may I kick") else None

    def is_question(self, lines: Sequence[str]) -> bool:
        return False

    def shown(self, lines: Sequence[str]) -> str:
        return lines[0].strip() if lines else ""


class MustangHeadless:
    program = "mustang"
    install_hint = "catch a mustang"
    stream: StreamTransport | None = None
    print_flags = FLAGS
    dialogs = MustangDialogs()

    def terminal_arguments(
        self, passed: Sequence[str], env: Mapping[str, str], cwd: Path, *, inherit_hooks: bool, asks: bool
    ) -> list[str]:
        return list(passed)

    def print_turn(self, emit: Callable[[Message], None] | None, *, partial: bool) -> Trail:
        return Trail()

    def max_turns_reason(self, limit: int) -> str:
        return max_turns_reason(limit)

    def check_typed(self, prompt: str) -> None:
        pass

    def find_control(self, prompt: str) -> tuple[int, str] | None:
        return None

    def pretrust(self, env: Mapping[str, str], cwd: str, warn: Callable[[str], None]) -> bool:
        return False

    def text_message(self, text: str, session_id: str | None) -> Message:
        return {"type": "text", "text": text}

    def turn_messages(
        self,
        path: Path,
        prompt_id: str | None,
        answer: str,
        *,
        failed: bool,
        model: str | None,
        seconds: float,
    ) -> list[Message]:
        trail = Trail()
        trail.follow(path, prompt_id)
        trail.read()
        return [trail.result(TurnEnd(text=answer, is_error=failed), round(seconds * 1000), "terminal")]
