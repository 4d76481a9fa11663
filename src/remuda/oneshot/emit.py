"""Printing a call: text, json, or messages as they come."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any

from .messages import init_message, to_messages
from .request import Request

_CONTROL = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


class Emitter:
    def __init__(self, request: Request) -> None:
        self._format = request.output_format
        self._verbose = request.verbose
        self._model = request.model
        self._begun = False
        self._messages: list[dict[str, Any]] = []

    def record(self, record: Mapping[str, Any]) -> None:
        """A record of the turn: printed at once where messages are printed, kept where all are wanted."""
        if self._format == "text" or (self._format == "json" and not self._verbose):
            return
        if not self._begun:
            self._begun = True
            self._message(init_message(record, self._model, None))
        for message in to_messages(record):
            self._message(message)

    def message(self, message: dict[str, Any]) -> None:
        """A message of the CLI's own stream, passed on as it is where messages are printed."""
        if self._format == "text" or message.get("type") == "result":
            return
        if self._format == "stream-json" or self._verbose:
            self._message(message)

    def stream_result(self, result: dict[str, Any]) -> None:
        self.result({**result, "backend": "stream", "entrypoint": "sdk-cli"})

    def _message(self, message: dict[str, Any]) -> None:
        if self._format == "stream-json":
            _print_line(json.dumps(message, ensure_ascii=False))
        else:
            self._messages.append(message)

    def result(self, document: dict[str, Any]) -> None:
        if self._format == "text":
            self._text(document)
        elif self._format == "json" and self._verbose:
            _print_line(json.dumps([*self._messages, document], ensure_ascii=False))
        else:
            _print_line(json.dumps(document, ensure_ascii=False))

    def _text(self, document: dict[str, Any]) -> None:
        if document.get("subtype") == "error_max_turns":
            limit = str(document["errors"][0]).rpartition("(")[2].rstrip(")")
            sys.stdout.write(f"Error: Reached max turns ({limit})")
        elif "result" in document:
            text = str(document["result"])
            sys.stdout.write((_CONTROL.sub("", text) if sys.stdout.isatty() else text) + "\n")
        else:
            sys.stdout.write("\n".join(str(one) for one in document.get("errors", [])) + "\n")
        sys.stdout.flush()

    def error(self, document: dict[str, Any]) -> None:
        """An end that is not the agent's: one object in the json modes, one line on standard error else."""
        if self._format == "text":
            sys.stderr.write(f"remuda print: {document['error_message']}\n")
        else:
            _print_line(json.dumps(document, ensure_ascii=False))


def _print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
