"""One request to the loopback model, kept whole."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ..script import ToolResult
from .conversation import Conversation

# `abandoned`: the agent closed the connection before the reply was whole; `cut`: the script did.
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
        return Conversation(self.body if isinstance(self.body, dict) else {})

    @property
    def prompt(self) -> str:
        """The last user text that is no system reminder."""
        return self.conversation.prompt

    @property
    def said(self) -> str | ToolResult:
        """What the agent wants an answer to."""
        return self.conversation.said

    @property
    def texts(self) -> list[tuple[str, str]]:
        return self.conversation.texts

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
        return self.headers.get("x-claude-code-session-id", "")

    @property
    def streams(self) -> bool:
        return isinstance(self.body, dict) and self.body.get("stream") is True

    @property
    def is_message(self) -> bool:
        return self.method == "POST" and self.path.partition("?")[0] == "/v1/messages"

    @property
    def is_main(self) -> bool:
        """Whether it belongs to the conversation, and is not one that the agent makes on the side."""
        return self.is_message and not _is_side(self)

    def __str__(self) -> str:
        about = f" {self.said!s:.80}" if self.is_message else ""
        return f"#{self.number} {self.method} {self.path} {self.outcome}{about}"


def parse_body(raw: bytes) -> Any:
    """The JSON in a body, or None where there is none."""
    try:
        return json.loads(raw)
    except ValueError:
        return None


def _is_side(request: Request) -> bool:
    """Claude Code names sessions, sums up pages and the like on the side: no tools, and no context to manage.

    Seen on 2.1.325: a conversation with ``--tools ""`` has no tools either, but has its context managed.
    """
    body = request.body if isinstance(request.body, dict) else {}
    return bool(request.session_id) and not body.get("tools") and "context_management" not in body
