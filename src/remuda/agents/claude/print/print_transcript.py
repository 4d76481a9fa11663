"""One turn in a transcript of Claude Code: its records as they come, and what they add up to.

Reading tolerates records that are new or odd: they are skipped.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remuda.agents.claude.hooks import TASK_NOTICE
from remuda.agents.claude.order import HOLD_SECONDS, InOrder
from remuda.agents.unattended import DENIED
from remuda.jsonl_tail import JsonlTail
from remuda.untrusted import as_object, text_at

Json = Mapping[str, Any]


class TurnTail:
    """Reads the records of one turn as they are appended, from its prompt on. Incomplete lines wait."""

    def __init__(self, path: Path, prompt_id: str | None) -> None:
        self._lines = JsonlTail(path)
        self._prompt_id = prompt_id
        self._begun = False
        self._order = InOrder()
        self._held_since: float | None = None

    def read(self) -> Iterator[Json]:
        """Yield the new records; none while the file cannot be read."""
        for record in self._lines.read():
            yield from filter(self._is_of_turn, self._order.take(record))
        yield from filter(self._is_of_turn, self._overdue())

    def _overdue(self) -> Sequence[Json]:
        now = time.monotonic()
        if not self._order.holds:
            self._held_since = None
        elif self._held_since is None:
            self._held_since = now
        elif now - self._held_since >= HOLD_SECONDS:
            return self._order.flush()
        return []

    def _is_of_turn(self, record: Json) -> bool:
        if not self._begun and record.get("type") == "user":
            self._begun = self._prompt_id is None or record.get("promptId") == self._prompt_id
        return self._begun


@dataclass(slots=True)
class TurnSummary:
    """Adds up the records of a turn. Nothing is counted twice."""

    session_id: str | None = None
    entrypoint: str | None = None
    version: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    text: str = ""
    """The answer as the CLI has it: the last block of the last message, empty if that is not text."""
    turns: int = 1
    """As the CLI counts them: the prompt, and everything that the model got after it."""
    finished: bool = False
    """The transcript has the end of the turn: no more records of it will come."""
    woken: bool = False
    """A background task has ended, and the agent went on because of it."""
    usages: dict[str, Json] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    tool_uses: dict[str, Json] = field(default_factory=dict)
    denied: list[str] = field(default_factory=list)
    api_error_status: int | None = None
    api_error_type: str | None = None
    is_api_error: bool = False
    _last_message: str = ""
    _said: list[str] = field(default_factory=list)
    _notices: set[str] = field(default_factory=set)

    @property
    def goes_on(self) -> bool:
        """Whether the agent will go on by itself, or has and is not done: its text is not the answer yet.

        A background task that ends during the last answer is reported to the agent after it (2.1.325).
        """
        return bool(self._notices) or (self.woken and not self.finished and not self.is_api_error)

    @property
    def said_all(self) -> bool:
        """Whether the last message so far ends a turn."""
        return self.stop_reason not in (None, "tool_use")

    def has(self, answer: str) -> bool:
        """Whether all records up to this answer were read. A hook reports the answer without outer blanks.

        A hook without an answer proves nothing: then the transcript must have the end, and some answer.
        """
        wanted = answer.strip()
        if not wanted:
            return self.finished and bool(self.text)
        return wanted in (text.strip() for text in self._said)

    def take(self, record: Json) -> None:
        if record.get("isSidechain"):
            return
        self._note_origin(record)
        message = record.get("message")
        if isinstance(message, Mapping) and record.get("type") == "assistant":
            self._assistant(record, message)
        elif isinstance(message, Mapping) and record.get("type") == "user":
            self._user(record, message)
        elif record.get("subtype") == "turn_duration":
            self.finished = True
        else:
            self._queued(record)

    def _note_origin(self, record: Json) -> None:
        for key, name in (("sessionId", "session_id"), ("entrypoint", "entrypoint"), ("version", "version")):
            if isinstance(value := record.get(key), str):
                setattr(self, name, value)
        self.model = self.model or _announced_model(record)

    def _queued(self, record: Json) -> None:
        """Note a notice to the agent: it waits until the agent rests, or is given to it during the turn."""
        notice = text_at(record, "content") or _queued_prompt(record)
        if notice is None or not notice.startswith(TASK_NOTICE):
            return
        if record.get("type") == "queue-operation" and record.get("operation") == "enqueue":
            self._notices.add(notice)
        else:
            self._notices.discard(notice)

    def _assistant(self, record: Json, message: Json) -> None:
        message_id = str(message.get("id") or record.get("uuid") or "")
        if message_id != self._last_message:
            self._last_message, self._said = message_id, []
        texts = _texts(message.get("content"))
        self._said += texts
        self.text = texts[-1] if texts and _ends_with_text(message.get("content")) else ""
        self.stop_reason = text_at(message, "stop_reason") or self.stop_reason
        if record.get("isApiErrorMessage"):
            self._api_error(record)
            return
        self.is_api_error = False
        self.model = text_at(message, "model") or self.model
        usage = message.get("usage")
        self.usages[message_id] = usage if isinstance(usage, Mapping) else {}
        self.models[message_id] = self.model or ""
        for block in content_blocks(message.get("content"), "tool_use"):
            self.tool_uses[str(block.get("id"))] = block

    def _api_error(self, record: Json) -> None:
        self.is_api_error = True
        status = record.get("apiErrorStatus")
        self.api_error_status = status if isinstance(status, int) else None
        self.api_error_type = text_at(record, "apiErrorType")

    def _user(self, record: Json, message: Json) -> None:
        results = content_blocks(message.get("content"), "tool_result")
        content = message.get("content")
        if isinstance(content, str) and content.startswith(TASK_NOTICE):
            self._notices.discard(content)
            self.woken, self.finished = True, False
        if results or record.get("isMeta"):
            self.turns += 1
        for block in results:
            if block.get("is_error") and DENIED in _plain(block.get("content")):
                self.denied.append(str(block.get("tool_use_id")))

    def permission_denials(self) -> list[dict[str, Any]]:
        uses = [(tool_id, self.tool_uses.get(tool_id, {})) for tool_id in self.denied]
        return [
            {"tool_name": use.get("name"), "tool_use_id": tool_id, "tool_input": use.get("input")}
            for tool_id, use in uses
        ]

    def usage(self) -> dict[str, Any]:
        """Return the sum of all usage. Each API message counts once."""
        return add_up(self.usages.values())

    def usage_by_model(self) -> dict[str, dict[str, Any]]:
        names = dict.fromkeys(self.models.values())
        return {
            name: add_up(usage for key, usage in self.usages.items() if self.models[key] == name)
            for name in names
        }


def add_up(usages: Iterable[Json]) -> dict[str, Any]:
    """Add numbers, nested ones too. Of anything else the last value counts."""
    total: dict[str, Any] = {}
    for usage in usages:
        for key, value in usage.items():
            total[key] = _added(total.get(key), value)
    return total


def _added(before: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return add_up([before if isinstance(before, Mapping) else {}, value])
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        is_number = isinstance(before, (int, float)) and not isinstance(before, bool)
        return (before if is_number else 0) + value
    return value


def _announced_model(record: Json) -> str | None:
    """Return the model that the CLI names before the first request."""
    return text_at(as_object(as_object(record.get("attachment")).get("identity")), "modelId")


def _queued_prompt(record: Json) -> str | None:
    return text_at(as_object(record.get("attachment")), "prompt")


def _ends_with_text(content: object) -> bool:
    if isinstance(content, list):
        last = content[-1] if content else None
        return isinstance(last, Mapping) and last.get("type") == "text"
    return isinstance(content, str)


def content_blocks(content: object, kind: str) -> list[Json]:
    """Return the blocks of one kind in the content of a message, whatever that holds."""
    blocks = content if isinstance(content, list) else []
    return [block for block in blocks if isinstance(block, Mapping) and block.get("type") == kind]


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [str(block.get("text", "")) for block in content_blocks(content, "text")]


def _plain(content: object) -> str:
    return content if isinstance(content, str) else "\n".join(_texts(content))
