"""What a transcript says of one turn: text, usage, tools, errors. Pure, and tolerant of what is new."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from remuda.agents.claude.hooks import TASK_NOTICE
from remuda.agents.unattended import DENIED

Json = Mapping[str, Any]


@dataclass(slots=True)
class Summary:
    """Grows with every record of the turn; nothing in it is ever counted twice."""

    session_id: str | None = None
    entrypoint: str | None = None
    version: str | None = None
    model: str | None = None
    stop_reason: str | None = None
    text: str = ""
    """The answer, as the CLI takes it: the last block of the last message, and nothing if that is no text."""
    turns: int = 1
    """As the CLI counts them: the prompt, and everything that was given to the model after it."""
    finished: bool = False
    """The CLI has written down the end of the turn: nothing of it is still to come."""
    woken: bool = False
    """What the agent had left in the background has ended, and it went on with that."""
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
    def api_messages(self) -> int:
        return len(self.usages)

    @property
    def goes_on(self) -> bool:
        """Whether the agent will be woken, or was and is not done: what it said so far is not its answer.

        What ends in its background while it gives its last answer waits until that is given (2.1.325).
        """
        return bool(self._notices) or (self.woken and not self.finished and not self.is_api_error)

    @property
    def said_all(self) -> bool:
        """Whether the last message that was seen ends a turn."""
        return self.stop_reason not in (None, "tool_use")

    def has(self, answer: str) -> bool:
        """Whether all up to this answer has been seen. A hook tells it without the blanks around it.

        A hook that tells none is no proof: then the end must be written down, and some answer.
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
        """A notice for the agent itself, which waits until it rests, or is given to it in its turn."""
        notice = _string(record.get("content")) or _queued_prompt(record)
        if notice is None or not notice.startswith(TASK_NOTICE):
            return
        if record.get("type") == "queue-operation" and record.get("operation") == "enqueue":
            self._notices.add(notice)
        else:
            self._notices.discard(notice)

    def _assistant(self, record: Json, message: Json) -> None:
        number = str(message.get("id") or record.get("uuid") or "")
        if number != self._last_message:
            self._last_message, self._said = number, []
        texts = _texts(message.get("content"))
        self._said += texts
        self.text = texts[-1] if texts and _ends_with_text(message.get("content")) else ""
        self.stop_reason = _string(message.get("stop_reason")) or self.stop_reason
        if record.get("isApiErrorMessage"):
            self._api_error(record)
            return
        self.is_api_error = False
        self.model = _string(message.get("model")) or self.model
        usage = message.get("usage")
        self.usages[number] = usage if isinstance(usage, Mapping) else {}
        self.models[number] = self.model or ""
        for block in _blocks(message.get("content"), "tool_use"):
            self.tool_uses[str(block.get("id"))] = block

    def _api_error(self, record: Json) -> None:
        self.is_api_error = True
        status = record.get("apiErrorStatus")
        self.api_error_status = status if isinstance(status, int) else None
        self.api_error_type = _string(record.get("apiErrorType"))

    def _user(self, record: Json, message: Json) -> None:
        results = _blocks(message.get("content"), "tool_result")
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
        uses = [(number, self.tool_uses.get(number, {})) for number in self.denied]
        return [
            {"tool_name": use.get("name"), "tool_use_id": number, "tool_input": use.get("input")}
            for number, use in uses
        ]

    def usage(self) -> dict[str, Any]:
        """All usage together, with every number once per message of the API."""
        return add_up(self.usages.values())

    def usage_by_model(self) -> dict[str, dict[str, Any]]:
        names = dict.fromkeys(self.models.values())
        return {
            name: add_up(usage for number, usage in self.usages.items() if self.models[number] == name)
            for name in names
        }


def add_up(usages: Iterable[Json]) -> dict[str, Any]:
    """Numbers are added, also those inside; of anything else the last word counts."""
    total: dict[str, Any] = {}
    for usage in usages:
        for key, value in usage.items():
            total[key] = _added(total.get(key), value)
    return total


def _added(before: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return add_up([before if isinstance(before, Mapping) else {}, value])
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = isinstance(before, (int, float)) and not isinstance(before, bool)
        return (before if number else 0) + value
    return value


def _announced_model(record: Json) -> str | None:
    """The CLI tells the model its name before the first request."""
    attachment = record.get("attachment")
    identity = attachment.get("identity") if isinstance(attachment, Mapping) else None
    return _string(identity.get("modelId")) if isinstance(identity, Mapping) else None


def _queued_prompt(record: Json) -> str | None:
    attachment = record.get("attachment")
    return _string(attachment.get("prompt")) if isinstance(attachment, Mapping) else None


def _ends_with_text(content: object) -> bool:
    if isinstance(content, list):
        last = content[-1] if content else None
        return isinstance(last, Mapping) and last.get("type") == "text"
    return isinstance(content, str)


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _blocks(content: object, kind: str) -> list[Json]:
    blocks = content if isinstance(content, list) else []
    return [block for block in blocks if isinstance(block, Mapping) and block.get("type") == kind]


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [str(block.get("text", "")) for block in _blocks(content, "text")]


def _plain(content: object) -> str:
    return content if isinstance(content, str) else "\n".join(_texts(content))
