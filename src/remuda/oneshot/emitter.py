"""Print a call: text, json, or messages as they come."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from remuda.untrusted import escape_hidden

from .output import warn, write
from .print_request import PrintRequest

TYPE_CHECKING = False  # as type checkers read it; importing `typing` takes 2 ms
if TYPE_CHECKING:
    from typing import Any

# The words of `claude -p` in text mode, without a newline after them.
_LIMITS = {"error_max_turns": "Reached max turns", "error_max_budget_usd": "Exceeded USD budget"}
_SINCE_LAST = "model_usage_since_last_result"


class Emitter:
    """Prints the messages and the result of a call in the format that was asked for."""

    def __init__(self, request: PrintRequest) -> None:
        self._format = request.output_format
        self._verbose = request.verbose
        self._messages: list[dict[str, Any]] = []
        self._results: list[dict[str, Any]] = []
        self.agent_version: object = None

    @property
    def wants_messages(self) -> bool:
        return self._format == "stream-json" or (self._format == "json" and self._verbose)

    def message(self, message: dict[str, Any]) -> None:
        """Take a message of the agent's own stream. It is printed as it is, if messages are wanted.

        There can be several results: a background task may wake the agent again.
        """
        if message.get("subtype") == "init":
            self.agent_version = message.get("claude_code_version")
        if message.get("type") == "result":
            message = {
                **message,
                "backend": "stream",
                "entrypoint": "sdk-cli",
                "claude_version": self.agent_version,
                "cost_usd": message.get("total_cost_usd") or 0,
            }
            if self._format == "json":  # the CLI leaves it out there
                message.pop(_SINCE_LAST, None)
            self._results.append(message)
        if self.wants_messages:
            self.emit(message)

    def stream_end(self) -> None:
        """Print what is left at the end of the stream."""
        if self._format == "text":
            write("\n".join(_as_text(result) for result in self._results))
        elif self._format == "json":
            _print_document(self._messages if self._verbose else self._results[-1])

    def terminal_result(self, result: dict[str, Any]) -> None:
        """Print the result of a call on the terminal backend."""
        if self._format == "stream-json":
            result = {**result, _SINCE_LAST: result.get("modelUsage")}
        self.result(result)

    def emit(self, message: dict[str, Any]) -> None:
        """Print a message now, or keep it for a format that prints all at the end."""
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
        """Print an end that is not the agent's: an object, or in text format a line on standard error."""
        if self._format == "text":
            warn(document["error_message"])
        else:
            self.result({**document, "claude_version": self.agent_version})


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
