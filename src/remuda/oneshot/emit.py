"""Printing a call: text, json, or messages as they come."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from remuda.untrusted import escape_hidden

from .conversation import Summary
from .messages import delta_message, init_message, texts_of, to_messages
from .output import warn, write
from .partial import Partial
from .request import Request

# The words of `claude -p` in text mode, without a newline behind them.
_LIMITS = {"error_max_turns": "Reached max turns", "error_max_budget_usd": "Exceeded USD budget"}
_SINCE_LAST = "model_usage_since_last_result"


class Emitter:
    def __init__(self, request: Request) -> None:
        self._format = request.output_format
        self._verbose = request.verbose
        self._first: Mapping[str, Any] | None = None
        self._begun = False
        self._messages: list[dict[str, Any]] = []
        self._results: list[dict[str, Any]] = []
        self._partial = Partial() if request.partial_messages else None
        self._early: list[str] = []
        self._version: object = None

    @property
    def _wants_messages(self) -> bool:
        return self._format == "stream-json" or (self._format == "json" and self._verbose)

    def record(self, record: Mapping[str, Any], summary: Summary) -> None:
        """A record of the turn: printed at once where messages are printed, kept where all are wanted."""
        self._version = summary.version
        if not self._wants_messages:
            return
        self._first = self._first or record
        messages = to_messages(record, summary.tool_uses)
        if summary.model or messages:
            self._begin(summary)
        for message in messages:
            for text in texts_of(message):
                self._delta(self._partial.message(text) if self._partial is not None else "", summary)
            self._message(message)

    def shown(self, text: str, summary: Summary) -> None:
        """Text that has just appeared, printed where parts of messages are wanted."""
        if self._partial is not None:
            self._delta(self._partial.shown(text), summary)

    def _delta(self, text: str, summary: Summary) -> None:
        if text and not self._begun:
            self._early.append(text)
        elif text:
            self._message(delta_message(text, summary.session_id))

    def _begin(self, summary: Summary) -> None:
        if not self._begun and self._first is not None:
            self._begun = True
            self._message(init_message(self._first, summary.model))
            for text in self._early:
                self._delta(text, summary)

    def message(self, message: dict[str, Any]) -> None:
        """A message of the CLI's own stream, passed on as it is where messages are printed.

        There can be several results: what the agent left in the background may wake it again.
        """
        if message.get("subtype") == "init":
            self._version = message.get("claude_code_version")
        if message.get("type") == "result":
            message = {
                **message,
                "backend": "stream",
                "entrypoint": "sdk-cli",
                "claude_version": self._version,
                "cost_usd": message.get("total_cost_usd") or 0,
            }
            if self._format == "json":  # as the CLI leaves it out there
                message.pop(_SINCE_LAST, None)
            self._results.append(message)
        if self._wants_messages:
            self._message(message)

    def stream_end(self) -> None:
        """The stream is over: what is not printed yet is printed."""
        if self._format == "text":
            write("\n".join(_as_text(result) for result in self._results))
        elif self._format == "json":
            _print_document(self._messages if self._verbose else self._results[-1])

    def terminal_result(self, result: dict[str, Any], summary: Summary) -> None:
        if self._wants_messages:
            self._begin(summary)
        if self._format == "stream-json":
            result = {**result, _SINCE_LAST: result.get("modelUsage")}
        self.result(result)

    def _message(self, message: dict[str, Any]) -> None:
        if self._format == "stream-json":
            _print_document(message)
        else:
            self._messages.append(message)

    def result(self, document: dict[str, Any]) -> None:
        if self._format == "text":
            write(_as_text(document))
        elif self._format == "json" and self._verbose:
            _print_document([*self._messages, document])
        else:
            _print_document(document)

    def error(self, document: dict[str, Any]) -> None:
        """An end that is not the agent's: one object in the json modes, one line on standard error else."""
        if self._format == "text":
            warn(document["error_message"])
        else:
            self.result({**document, "claude_version": self._version})


def _as_text(document: Mapping[str, Any]) -> str:
    errors = [str(one) for one in document.get("errors", [])]
    if errors and (words := _LIMITS.get(str(document.get("subtype")))):
        limit = errors[0].rpartition("(")[2].rstrip(")").lstrip("$")
        return f"Error: {words} ({limit})"
    text = str(document["result"]) if "result" in document else "\n".join(errors)
    return text if text.endswith("\n") else text + "\n"


def _print_document(document: object) -> None:
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    write((escape_hidden(text) if sys.stdout.isatty() else text) + "\n")
