"""opencode for `remuda print`: its flags, and a turn as print's messages, read from our transcript."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.agents.base import StreamTransport
from remuda.agents.events import TurnFailed
from remuda.agents.headless import Handling, Lines, Message, NoDialogs, PrintFlags, TurnEnd
from remuda.agents.unattended import max_turns_reason
from remuda.jsonl_tail import JsonlTail
from remuda.untrusted import as_object, dump_json, finite

from .messages import answers_to, end_of, info_of, parts_of, text_of, usage_of
from .prompting import OpencodePrompts

_OURS = ["--output-format", "--verbose", "--help", "--version", "--include-partial-messages", "--max-turns"]
_VALUED = frozenset(["--output-format", "--max-turns", "--model", "--session", "--settings"])
FLAGS = PrintFlags(
    terminal={
        **dict.fromkeys(_OURS, Handling.OURS),
        **dict.fromkeys(["--model", "--session", "--continue", "--settings", "--pure"], Handling.PASSED),
    },
    aliases={"-m": "--model", "-s": "--session", "-c": "--continue", "-h": "--help", "-v": "--version"},
    ours=frozenset(_OURS),
    needs_value=_VALUED,
    takes=lambda flag, have, _word: flag in _VALUED and have == 0,
)
NO_QUESTIONS = "--settings=" + dump_json({"permission": {"question": "deny"}})
"""For an agent at whose terminal no one sits."""


class PrintedConversation:
    """The turn of one prompt, as our transcript has it."""

    version: str | None = None
    woken = goes_on = False

    def __init__(self, emit: Callable[[Message], None] | None = None, *, partial: bool = False) -> None:
        self._emit = emit
        self._partial = partial and emit is not None
        self._path: Path | None = None
        self._turn = ""
        self._answers: list[Mapping[str, Any]] = []

    @property
    def facts(self) -> PrintedConversation:
        return self

    def follow(self, path: Path, prompt_id: str | None) -> None:
        self._path, self._turn = path, prompt_id or ""

    def read(self) -> bool:
        """Read the answers, which are written at the end of the turn."""
        if self._path is None or self._answers:
            return False
        self._answers = answers_to(JsonlTail(self._path).read(), self._turn)
        if self._emit is not None:
            for answer in self._answers:
                for message in answer_messages(answer):
                    self._emit(message)
        return bool(self._answers)

    def shown(self, text: str) -> None:
        if self._partial and self._emit is not None:
            self._emit({"type": "stream_event", "event": {"type": "text_delta", "text": text}})

    @property
    def model(self) -> str | None:
        return str(info_of(self._answers[-1]).get("modelID")) if self._answers else None

    @property
    def text(self) -> str:
        if self.is_api_error:
            end = end_of(self._answers, self._turn, "")
            return end.text if isinstance(end, TurnFailed) else ""
        return text_of(self._answers[-1]) if self._answers else ""

    @property
    def is_api_error(self) -> bool:
        return bool(self._answers) and isinstance(end_of(self._answers, self._turn, ""), TurnFailed)

    @property
    def said_all(self) -> bool:
        return bool(self._answers)

    def has(self, answer: str) -> bool:
        return bool(self._answers) and self.text == answer

    def result(self, ended: TurnEnd, duration_ms: int, backend: str) -> Message:
        usages = [usage_of(answer) for answer in self._answers]
        known = ended.usage_known and bool(usages)
        conversation = info_of(self._answers[0]).get("sessionID") if self._answers else None
        return {
            "type": "result",
            "subtype": ended.subtype,
            "is_error": ended.is_error,
            "result": ended.text,
            **({"errors": list(ended.errors)} if ended.errors else {}),
            "session_id": conversation,
            "num_turns": len(self._answers),
            "duration_ms": duration_ms,
            "total_cost_usd": sum(finite(info_of(one).get("cost")) for one in self._answers)
            if known
            else None,
            "usage": {key: sum(one[key] for one in usages) for key in usages[0]} if known else None,
            "backend": backend,
        }


def answer_messages(answer: Mapping[str, Any]) -> list[Message]:
    """Return an answer, and the results of its tools, in the form that print has for every agent."""
    info = info_of(answer)
    content: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for part in parts_of(answer):
        state = as_object(part.get("state"))
        if part.get("type") == "text":
            content.append({"type": "text", "text": part.get("text")})
        elif part.get("type") == "tool":
            call = {"id": part.get("callID"), "name": part.get("tool"), "input": state.get("input")}
            content.append({"type": "tool_use", **call})
            is_error = state.get("status") != "completed"
            text = state.get("error") if is_error else state.get("output")
            results.append(
                {
                    "type": "tool_result",
                    "tool_use_id": part.get("callID"),
                    "content": text,
                    "is_error": is_error,
                }
            )
    message = {"id": info.get("id"), "role": "assistant", "model": info.get("modelID"), "content": content}
    known = {"session_id": info.get("sessionID")}
    made = [{"type": "assistant", "message": {**message, "usage": usage_of(answer)}, **known}]
    if results:
        made.append({"type": "user", "message": {"role": "user", "content": results}, **known})
    return made


class OpencodeDialogs(NoDialogs):
    question_timeout = 30.0
    """Its server takes up to 5 s for an answer on a busy machine."""

    def open_dialog(self, lines: Lines) -> str | None:
        return OpencodePrompts().dialog(lines)

    def shown(self, lines: Lines) -> str:
        shown = [line.strip() for line in lines if line.strip()]
        return shown[-1] if shown else ""


class OpencodeHeadless:
    program = "opencode"
    install_hint = "install opencode"
    stream: StreamTransport | None = None
    print_flags = FLAGS
    dialogs = OpencodeDialogs()
    max_turns_reason = staticmethod(max_turns_reason)

    def terminal_arguments(
        self, passed: Sequence[str], env: Mapping[str, str], cwd: Path, *, inherit_hooks: bool, asks: bool
    ) -> list[str]:
        return [*passed, *([] if asks else [NO_QUESTIONS])]

    def print_turn(self, emit: Callable[[Message], None] | None, *, partial: bool) -> PrintedConversation:
        return PrintedConversation(emit, partial=partial)

    def check_typed(self, prompt: str) -> None:
        OpencodePrompts().check(prompt, command=False, literal=False)

    def find_control(self, prompt: str) -> tuple[int, str] | None:
        """Return None: nothing is typed."""

    def pretrust(self, env: Mapping[str, str], cwd: str, warn: Callable[[str], None]) -> bool:
        return False

    def text_message(self, text: str, session_id: str | None) -> Message:
        message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
        return {"type": "assistant", "message": message, "session_id": session_id}

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
        messages: list[Message] = []
        turn = PrintedConversation(messages.append)
        turn.follow(path, prompt_id)
        turn.read()
        ended = TurnEnd(text=answer, is_error=failed)
        return [*messages, turn.result(ended, round(seconds * 1000), "terminal")]
