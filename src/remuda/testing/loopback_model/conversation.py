"""Reads what an agent sent: pure functions of the body of a Messages request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..script import ToolResult

_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)


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
    def prompt(self) -> str:
        """The last text of the user's own, without system reminders; empty when there is none."""
        for message in self._user_messages():
            for block in reversed(_blocks(message.get("content"))):
                if block.get("type") == "text" and (text := _own(block)):
                    return text
        return ""

    @property
    def said(self) -> str | ToolResult:
        """What is to be answered: the last prompt, or the results of the tools that the last reply called."""
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
    return _REMINDER.sub("", text).strip() if "<system-reminder>" in text else text
