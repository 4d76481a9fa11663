"""What an agent shows while it works: text, tools, and effects that outlive the conversation. Pure.

Text comes in numbered pieces; the end of a turn may be reported before the last of them. Calls of subagents
are left out, but their lasting effects count.
"""

from __future__ import annotations

from typing import Any

from .events import (
    PromptSubmitted,
    Report,
    TextShown,
    ToolFinished,
    ToolsFinished,
    ToolStarted,
    TurnFailed,
    TurnStopped,
)


class Progress:
    def __init__(self) -> None:
        self._message: object = None
        self._pieces: dict[int, str] = {}
        self._last: int | None = None
        self._succeeded: set[str] = set()
        self.carry_over: list[str] = []
        """Effects that outlive the conversation. The list only grows: they survive every clear."""

    def take(self, report: Report) -> tuple[str, list[dict[str, Any]]]:
        """Return the text that appeared, and what happened to tools, as documents for clients."""
        for reason in report.carry_over:
            if reason not in self.carry_over:
                self.carry_over.append(reason)
        text, tools = "", []
        for event in report.events:
            if isinstance(event, TextShown):
                self._note_text(event)
                text += event.text
            elif not report.subagent:
                tools += self._tools(event)
        return text, tools

    def _tools(self, event: object) -> list[dict[str, Any]]:
        match event:
            case ToolStarted(tool, arguments, call_id):
                given = dict(arguments) if isinstance(arguments, dict) else {}
                return [{"what": "began", "id": call_id, "name": tool, "input": given}]
            case ToolFinished(ok=True):
                self._succeeded.add(event.id)
            case ToolsFinished(results):
                return [
                    {
                        "what": "ended",
                        "id": result.id,
                        "name": result.tool,
                        "content": result.content,
                        "is_error": result.id not in self._succeeded,
                    }
                    for result in results
                ]
            case PromptSubmitted() | TurnStopped() | TurnFailed():
                self._succeeded.clear()
        return []

    def _note_text(self, event: TextShown) -> None:
        if event.message_id != self._message:
            self._message, self._pieces, self._last = event.message_id, {}, None
        if event.index is not None:
            self._pieces[event.index] = event.text
            self._last = event.index if event.final else self._last

    @property
    def last_shown(self) -> str | None:
        """The complete text that appeared last; None while a piece is missing."""
        if self._last is None or len(self._pieces) != self._last + 1:
            return None
        return "".join(text for _, text in sorted(self._pieces.items()))
