"""One request to the loopback model, kept in full."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..script import ToolResult

if TYPE_CHECKING:
    from .model_connection import Incoming

# ── what an agent sent ──

_CODEX_TITLE = "Generate a concise, single-line task title"
_OPENCODE_TITLE = "You are a title generator."
# What an agent adds to a prompt: Claude Code reminders, copilot the date (1.0.102).
_REMINDER = re.compile(r"<(system-reminder|current_datetime)>.*?</\1>", re.DOTALL)


class Conversation:
    """A view of one request's body."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.body = body

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @property
    def tools(self) -> list[str]:
        """The names of the tools on offer."""
        return [str(tool.get("name")) for tool in self.body.get("tools") or []]

    @property
    def system(self) -> str:
        """The system prompt, its blocks one below the other."""
        return "\n".join(block.get("text", "") for block in _blocks(self.body.get("system")))

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Every text with its role, in order: prompts, answers, tool results and system reminders alike."""
        return [
            (str(message.get("role")), _text(block))
            for message in self._messages()
            for block in _blocks(message.get("content"))
            if block.get("type") in ("text", "tool_result")
        ]

    @property
    def user_texts(self) -> list[str]:
        """Every text of the user's own in order, without system reminders."""
        texts = (
            _own(block)
            for message in self._messages()
            if message.get("role") == "user"
            for block in _blocks(message.get("content"))
            if block.get("type") == "text"
        )
        return [text for text in texts if text]

    @property
    def prompt(self) -> str:
        """The last text of the user's own, without system reminders; empty when there is none."""
        for message in self._user_messages():
            for block in reversed(_blocks(message.get("content"))):
                if block.get("type") == "text" and (text := _own(block)):
                    return text
        return ""

    @property
    def said(self) -> str | ToolResult:
        """What the answer is for: the last prompt, or the results of the tools that the last reply called."""
        for message in self._user_messages():
            blocks = _blocks(message.get("content"))
            for block in reversed(blocks):
                if block.get("type") == "tool_result":
                    return ToolResult("\n".join(_text(b) for b in blocks if b.get("type") == "tool_result"))
                if block.get("type") == "text" and (text := _own(block)):
                    return text
        return ""

    def _messages(self) -> list[Mapping[str, Any]]:
        return list(self.body.get("messages") or [])

    def _user_messages(self) -> Iterator[Mapping[str, Any]]:
        return (message for message in reversed(self._messages()) if message.get("role") == "user")


class ResponsesConversation(Conversation):
    """A view of one request of the Responses API, which codex speaks."""

    @property
    def system(self) -> str:
        return str(self.body.get("instructions", ""))

    @property
    def texts(self) -> list[tuple[str, str]]:
        return [
            (str(item.get("role", "tool")), text)
            for item in self.body.get("input") or []
            for text in _item_texts(item)
        ]

    @property
    def user_texts(self) -> list[str]:
        return [text for role, text in self.texts if role == "user"]

    @property
    def prompt(self) -> str:
        return next((text for role, text in reversed(self.texts) if role == "user"), "")

    @property
    def said(self) -> str | ToolResult:
        for item in reversed(self.body.get("input") or []):
            if item.get("type") == "function_call_output":
                return ToolResult("\n".join(_item_texts(item)))
            if item.get("role") == "user" and (texts := _item_texts(item)):
                return texts[-1]
        return ""


def _item_texts(item: Mapping[str, Any]) -> list[str]:
    """Return the texts of an item of a Responses request."""
    content = item.get("output") if item.get("type") == "function_call_output" else item.get("content")
    return [str(block["text"]) for block in _blocks(content) if "text" in block]


def _blocks(content: Any) -> list[Mapping[str, Any]]:
    """Content as a list of blocks; the API takes a bare string for a single text."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content or [])


def _text(block: Mapping[str, Any]) -> str:
    if block.get("type") == "tool_result":
        return "\n".join(_text(part) for part in _blocks(block.get("content")))
    return str(block.get("text", ""))


def _own(block: Mapping[str, Any]) -> str:
    text = _text(block)
    return _REMINDER.sub("", text).strip() if _REMINDER.search(text) else text


# ── the request ──

# `abandoned`: the agent closed the connection before the reply was complete; `cut`: the script did.
Outcome: TypeAlias = Literal["open", "answered", "failed", "cut", "abandoned"]


@dataclass(slots=True)
class Request:
    """What came in, byte for byte, and what became of it. Times are of the monotonic clock."""

    number: int
    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    raw: bytes
    body: Any
    """The parsed JSON, or None."""
    received: float
    answered: float | None = None
    outcome: Outcome = "open"

    @property
    def conversation(self) -> Conversation:
        view = ResponsesConversation if self.is_response else Conversation
        return view(self.body if isinstance(self.body, dict) else {})

    @property
    def prompt(self) -> str:
        """The last user text that is not a system reminder."""
        return self.conversation.prompt

    @property
    def said(self) -> str | ToolResult:
        """What the agent wants an answer to."""
        return self.conversation.said

    @property
    def texts(self) -> list[tuple[str, str]]:
        return self.conversation.texts

    @property
    def user_texts(self) -> list[str]:
        return self.conversation.user_texts

    @property
    def model(self) -> str:
        return self.conversation.model

    @property
    def tools(self) -> list[str]:
        return self.conversation.tools

    @property
    def system(self) -> str:
        return self.conversation.system

    @property
    def session_id(self) -> str:
        """The agent's own session id; empty for a client that names none."""
        return self.headers.get("x-claude-code-session-id") or self.headers.get("session-id", "")

    @property
    def streams(self) -> bool:
        return isinstance(self.body, dict) and self.body.get("stream") is True

    @property
    def is_message(self) -> bool:
        return self.method == "POST" and self.path.partition("?")[0] in ("/v1/messages", "/v1/responses")

    @property
    def is_response(self) -> bool:
        """Whether it is a request of the Responses API."""
        return self.path.partition("?")[0] == "/v1/responses"

    @property
    def is_main(self) -> bool:
        """Whether it belongs to the conversation, and is not one that the agent makes on the side."""
        return self.is_message and not _is_side(self)

    def __str__(self) -> str:
        about = f" {self.said!s:.80}" if self.is_message else ""
        return f"#{self.number} {self.method} {self.path} {self.outcome}{about}"


def parse_body(raw: bytes) -> Any:
    """Return the JSON in a body, or None where there is none."""
    try:
        return json.loads(raw)
    except ValueError:
        return None


def _is_side(request: Request) -> bool:
    """Claude Code names sessions, sums up pages and the like on the side: no tools, and no context to manage.

    codex names sessions in a thread of its own (0.166.0), and warms a connection without a prompt. opencode
    names them with a system prompt of its own (1.18.33).

    Seen on 2.1.325: a conversation with ``--tools ""`` has no tools either, but has its context managed.
    """
    body = request.body if isinstance(request.body, dict) else {}
    if request.is_response:
        return request.prompt.startswith(_CODEX_TITLE)
    if request.system.startswith(_OPENCODE_TITLE):
        return True
    return bool(request.session_id) and not body.get("tools") and "context_management" not in body


# ── the requests, readable from any thread ──

Predicate: TypeAlias = Callable[[Request], bool]


def matching(wanted: Predicate | str) -> Predicate:
    """Return a predicate; a string matches main requests whose prompt contains it."""
    if isinstance(wanted, str):
        return lambda request: request.is_main and wanted in request.prompt
    return wanted


class RequestLog:
    """Grows only; a request in it changes once more, when it is answered."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._requests: list[Request] = []

    def requests(self) -> list[Request]:
        with self._changed:
            return list(self._requests)

    def add(self, incoming: Incoming) -> Request:
        with self._changed:
            request = Request(
                number=len(self._requests) + 1,
                method=incoming.method,
                path=incoming.path,
                headers=incoming.headers,
                raw=incoming.body,
                body=parse_body(incoming.body),
                received=time.monotonic(),
            )
            self._requests.append(request)
            self._changed.notify_all()
        return request

    def close(self, request: Request, outcome: Outcome) -> None:
        """Note how a request ended."""
        with self._changed:
            request.answered = time.monotonic()
            request.outcome = outcome
            self._changed.notify_all()

    def wait_for(self, wanted: Predicate | str, timeout: float, count: int) -> Request:
        matches = matching(wanted)
        with self._changed:
            if self._changed.wait_for(lambda: len(self._matching(matches)) >= count, timeout):
                return self._matching(matches)[count - 1]
            seen = "\n  ".join(str(request) for request in self._requests) or "nothing"
        what = repr(wanted) if isinstance(wanted, str) else "the request waited for"
        raise TimeoutError(f"{what} (x{count}) did not come within {timeout:g} s. Seen:\n  {seen}")

    def _matching(self, matches: Predicate) -> list[Request]:
        return [request for request in self._requests if matches(request)]
