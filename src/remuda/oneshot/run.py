"""One call from its request to its exit code."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from types import FrameType
from typing import Any

from remuda.errors import (
    EXIT_CODES,
    CommandNotFound,
    InputError,
    InvalidOptions,
    RemudaError,
    WaitTimeout,
)

from .emit import Emitter
from .prompt import read_prompt
from .request import Request
from .result import error_result, make_result
from .stream import StreamCall
from .terminal import TerminalCall

_SUBTYPES = {"TIMEOUT": "timeout", "INTERRUPTED": "interrupted"}


class Interrupted(RemudaError):
    code = "INTERRUPTED"
    exit_name = "INTERRUPTED"


class Clock:
    """Trace points with milliseconds, for `--trace`."""

    def __init__(self, *, shown: bool) -> None:
        self._began = time.monotonic()
        self._shown = shown

    @property
    def milliseconds(self) -> int:
        return round((time.monotonic() - self._began) * 1000)

    def note(self, text: str) -> None:
        if self._shown:
            sys.stderr.write(f"[remuda print {self.milliseconds}ms] {text}\n")
            sys.stderr.flush()


def run(request: Request) -> int:
    """Carry it out and print it. The exit code."""
    clock, emitter = Clock(shown=request.trace), Emitter(request)
    try:
        prompt = read_prompt(request.prompt_words, request.input_file)
    except InputError as error:
        sys.stderr.write(f"remuda print: {error}\n")
        return error.exit_code
    _heed_signals()
    try:
        return _call(request, prompt, clock, emitter)
    except BrokenPipeError:  # whoever read us has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_CODES["FAILED"]
    except RemudaError as error:
        return _failed(error, request, clock, emitter)


def _call(request: Request, prompt: str, clock: Clock, emitter: Emitter) -> int:
    binary = find_binary(request.claude_binary)
    if request.backend == "stream":
        return _stream(StreamCall(request, prompt, binary, clock.note, emitter.message), emitter)
    call = TerminalCall(
        request,
        prompt,
        binary,
        clock.note,
        lambda record: emitter.record(record, call.summary),
        lambda text: emitter.shown(text, call.summary),
    )
    try:
        ended = call.run()
        clock.note("ended")
        result = make_result(call.summary, ended, clock.milliseconds, "terminal")
        if request.keep:
            result["session"] = call.name
            sys.stderr.write(f"remuda print: the session goes on as '{call.name}'\n")
        emitter.terminal_result(result, call.summary)
    except WaitTimeout:
        if request.show_child_output:
            sys.stderr.write("\n".join(["remuda print: ── the agent's screen ──", *call.screen(), "──", ""]))
        raise
    finally:
        call.close()
    return EXIT_CODES["FAILED"] if ended.is_error else EXIT_CODES["OK"]


def _stream(call: StreamCall, emitter: Emitter) -> int:
    try:
        result = call.run()
    finally:
        call.close()
    emitter.stream_result(result)
    return EXIT_CODES["FAILED"] if result.get("is_error") else EXIT_CODES["OK"]


def find_binary(named: str | None) -> str:
    """Raises `CommandNotFound`."""
    found = shutil.which(named or "claude")
    if found is None:
        raise CommandNotFound(
            f"cannot find {named or 'claude'}", hint="install Claude Code, or name it with --claude-binary"
        )
    return os.path.abspath(found)


def _failed(error: RemudaError, request: Request, clock: Clock, emitter: Emitter) -> int:
    if isinstance(error, (InputError, InvalidOptions)):
        sys.stderr.write(f"remuda print: {error}\n")
        return EXIT_CODES["INVALID_INPUT"] if isinstance(error, InputError) else EXIT_CODES["INVALID_OPTIONS"]
    subtype = _SUBTYPES.get(error.code, "internal_error")
    facts: dict[str, Any] = {"error_code": error.code}
    emitter.error(
        error_result(subtype, str(error), duration_ms=clock.milliseconds, backend=request.backend, **facts)
    )
    return error.exit_code if error.code in _SUBTYPES else 2


def _heed_signals() -> None:
    def interrupted(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(f"interrupted by {signal.Signals(number).name}")

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
