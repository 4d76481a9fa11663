"""`remuda run` from its words to its exit code: warm where a pool is served, else cold.

| code | when |
| --- | --- |
| 0 | answered |
| 1 | the agent reported an error; the reader of standard output is gone |
| 2 | options that cannot be honoured; the agent crashed or did not start; the answer cannot be printed |
| 3 | no pool is served there, with --no-fallback |
| 4 | the prompt is empty or cannot be sent; the path is not a socket |
| 8 | the pool is served by another user |
| 9 | what serves the pool is broken: nonsense, silence, hung up, another version |
| 124 | --timeout; no session came free or up in time |
| 130 | SIGINT, SIGTERM or SIGHUP |

A cold run has those of `remuda print`: 0, 1, 2, 4, 124, 130.
"""

from __future__ import annotations

import os
import sys
import time

from remuda.errors import (
    EXIT_CODES,
    InputError,
    Interrupted,
    InvalidOptions,
    PoolNotServed,
    RemudaError,
)
from remuda.oneshot.output import OutputLost, ReaderGone, drop, say, write
from remuda.oneshot.signals import Signalled, heed_signals, unheed_signals
from remuda.pool.pool_connection import SILENCE_TIMEOUT, PoolConnection, default_socket, one_line_error
from remuda.pool.protocol import Message
from remuda.pool.request_builder import run_message
from remuda.untrusted import show_json

from .run_options import DEFAULT_TIMEOUT, PROFILE, parse, variables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Given = dict[str, Any]

_OWN_EXIT = {
    "AGENT_ERROR": EXIT_CODES["FAILED"],
    "POOL_NOT_SERVED": EXIT_CODES["NO_SESSION"],
    "PERMISSION_REFUSED": EXIT_CODES["REFUSED"],
}
_KEPT = frozenset(
    EXIT_CODES[name] for name in ("INVALID_OPTIONS", "INVALID_INPUT", "PROTOCOL", "TIMEOUT", "INTERRUPTED")
)
_ANSWER_GRACE = 30.0
"""What the answer may take beyond the timeout that the server keeps to."""


def main(words: Sequence[str]) -> int | None:
    """The exit code; None when help is wanted."""
    try:
        word, given = parse(words)
        if word is None:
            return None
        return _run(word, given)
    except RemudaError as error:
        _complain(str(error))
        return exit_code(error)
    except Signalled as signalled:  # when the outcome was just known
        unheed_signals()
        _complain(str(signalled))
        return EXIT_CODES["INTERRUPTED"]


def exit_code(error: RemudaError) -> int:
    other = error.exit_code if error.exit_code in _KEPT else EXIT_CODES["INVALID_OPTIONS"]
    return _OWN_EXIT.get(error.code, other)


def _run(word: str, given: Given) -> int:
    heed_signals()
    try:
        return _interruptible(word, given)
    except OutputLost as error:
        drop()
        if isinstance(error, ReaderGone):
            return EXIT_CODES["FAILED"]
        _complain(str(error))
        return EXIT_CODES["INVALID_OPTIONS"]
    finally:
        unheed_signals()


def _interruptible(word: str, given: Given) -> int:
    try:
        prompt = _read_prompt(word, given.get("--timeout", DEFAULT_TIMEOUT))
        try:
            return _warm(prompt, given)
        except PoolNotServed as error:
            if "--no-fallback" in given:
                raise
            _complain(f"{error.message}; running cold")
        from .run_cold import run_cold

        return run_cold(prompt, given)
    except Signalled as signalled:
        unheed_signals()
        return Printer(given).failed(Interrupted(str(signalled)))


def _read_prompt(word: str, timeout: float) -> str:
    if word != "-":
        text = word
    elif sys.stdin is None or sys.stdin.isatty():
        raise InputError("the prompt is empty", hint="pass it as an argument or on standard input")
    else:
        from remuda.oneshot.prompt import read_to_end

        data = read_to_end(sys.stdin.fileno(), time.monotonic() + timeout)
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise InputError(f"standard input is not valid UTF-8 (byte {error.start})") from None
    if not text.strip():
        raise InputError("the prompt is empty", hint="pass it as an argument or on standard input")
    return text


# ── warm ──


def _warm(prompt: str, given: Given) -> int:
    """Raises `PoolNotServed` when nothing was begun."""
    timeout = given.get("--timeout", DEFAULT_TIMEOUT)
    message = run_message(
        prompt,
        {**profile_options(given), "timeout": timeout, "request_id": given.get("--request-id")},
        cwd=_current_folder(),
        environ=os.environ,
        stream="--stream" in given,
        permissions=given.get("--permissions"),
        requires=_requires(given),
    )
    path = given.get("--socket") or default_socket()
    silence = given.get("--server-timeout", SILENCE_TIMEOUT)
    with PoolConnection(os.path.expanduser(path), silence_timeout=silence) as line:
        line.ask(message)
        line.deadline = time.monotonic() + timeout + _ANSWER_GRACE
        return _follow(line, Printer(given))


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise InvalidOptions(
            "the current folder no longer exists", hint="change to another folder"
        ) from error


def profile_options(given: Given) -> dict[str, Any]:
    options = {name: given.get(flag) for flag, name in PROFILE.items()}
    return {**options, "cwd": given.get("--cwd"), "env": variables(given.get("--env", []))}


def _requires(given: Given) -> dict[str, str]:
    found = {}
    if "--backend" in given:
        found["backend"] = given["--backend"]
    if "--demo" in given:
        found["agent"] = "demo"
    if "--claude-binary" in given:
        found["claude_binary"] = os.path.abspath(os.path.expanduser(given["--claude-binary"]))
    return found


def _follow(line: PoolConnection, printer: Printer) -> int:
    while (message := line.next())["type"] != "done":
        if message["type"] == "error":
            return printer.failed(one_line_error(message))
        printer.event(message)
    result = message["result"]
    if message.get("more") and printer.wants_usage:
        result["usage"] = _usage(line)
    printer.done(result)
    return EXIT_CODES["OK"]


def _usage(line: PoolConnection) -> Message | None:
    """It comes behind the answer, which stays one where the server is lost, or a signal comes, before it."""
    try:
        return line.next().get("usage")
    except (RemudaError, Signalled):
        return None


# ── printing ──


class Printer:
    """Text, or JSON; at the end, or as it comes."""

    def __init__(self, given: Given) -> None:
        self._json, self._stream = "--json" in given, "--stream" in given
        self._last = "\n"

    @property
    def wants_usage(self) -> bool:
        return self._json

    def event(self, message: Message) -> None:
        if not self._stream:
            return
        if self._json:
            self._document(message)
        elif message["type"] == "token" and message["text"]:
            self._last = message["text"][-1]
            write(message["text"])

    def done(self, result: Message, *, cold: bool = False) -> None:
        if self._json:
            document = {**result, "cold": cold}
            self._document({"type": "done", "result": document} if self._stream else document)
        elif self._stream and self._last != "\n":
            write("\n")
        elif not self._stream:
            text = str(result["text"])
            write(text if text.endswith("\n") else f"{text}\n")

    def failed(self, error: RemudaError) -> int:
        if self._json:
            told = {"code": error.code, "message": error.message, "hint": error.hint}
            self._document({"type": "error", **told} if self._stream else {"error": told})
        else:
            if self._stream and self._last != "\n":
                write("\n")
            _complain(str(error))
        return exit_code(error)

    @staticmethod
    def _document(document: Message) -> None:
        write(show_json(document) + "\n")


def _complain(text: str) -> None:
    say(f"remuda: {text}\n")
