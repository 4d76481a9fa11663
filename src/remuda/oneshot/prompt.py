"""Read the prompt of a call: as `claude -p` does, or from a file."""

from __future__ import annotations

import os
import select
import sys
import time

from remuda.durable import open_regular
from remuda.errors import InputError, WaitTimeout

from .output import warn
from .request import DEFAULT_TIMEOUT, PrintRequest

MAX_PROMPT_BYTES = 10 << 20
STDIN_TIMEOUT = 3.0
_READ_BYTES = 1 << 16


def read_prompt(request: PrintRequest) -> str:
    """Return the argument, followed by standard input if there is any. Raises `InputError`.

    Of several arguments the first, as with `claude -p`, which drops the others.
    """
    words, input_file = request.prompt_words[:1], request.input_file
    if input_file is not None:
        if words:
            raise InputError("a prompt and --input-file were both given", hint="pass only one of them")
        text = _decoded(_read_file(input_file), input_file)
    else:
        timeout = DEFAULT_TIMEOUT if request.timeout is None else request.timeout
        piped = _decoded(_read_stdin(timeout), "standard input")
        text = "\n".join([*words, *([piped] if piped else [])])
    if not text.strip():
        raise InputError(
            "the prompt is empty", hint="pass it as an argument, on standard input or with --input-file"
        )
    return text


def _read_file(path: str) -> bytes:
    try:
        with open(open_regular(path), "rb") as file:
            return _bounded(file.read(MAX_PROMPT_BYTES + 1))
    except OSError as error:
        raise InputError(f"cannot read --input-file {path}: {error.strerror}") from error


def _read_stdin(timeout: float) -> bytes:
    """Return what was piped in; empty for a terminal, a closed stream, or a pipe without data for a while.

    `claude -p` gives up on such a pipe too: one that a supervisor holds open never ends.
    """
    try:
        if sys.stdin is None or sys.stdin.isatty():
            return b""
        fd = sys.stdin.fileno()
        if not _is_readable(fd, STDIN_TIMEOUT):
            return _without(f"no data on standard input within {STDIN_TIMEOUT:g} s")
    except (OSError, ValueError):
        return b""
    return read_to_end(fd, time.monotonic() + (timeout or float("inf")))


def _without(why: str) -> bytes:
    """Go on without standard input, with a warning, as `claude -p` does."""
    warn(f"{why}; continuing without it")
    return b""


def read_to_end(fd: int, deadline: float) -> bytes:
    """Read until the end. Raises `WaitTimeout` at `deadline` (monotonic clock), and `InputError`."""
    pieces: list[bytes] = []
    size = 0
    while size <= MAX_PROMPT_BYTES:
        if not _is_readable(fd, deadline - time.monotonic()):
            so_far = "was not closed" if pieces else "sent no data and was not closed"
            raise WaitTimeout(f"--timeout: standard input {so_far}")
        try:
            piece = os.read(fd, _READ_BYTES)
        except OSError as error:
            if not pieces:  # it is open for writing only, for example
                return _without(f"cannot read standard input ({error.strerror})")
            raise InputError(f"cannot read all of standard input: {error.strerror}") from error
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
    return _bounded(b"".join(pieces))


def _is_readable(fd: int, timeout: float) -> bool:
    limit = None if timeout == float("inf") else max(0.0, timeout)
    return bool(select.select([fd], [], [], limit)[0])


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_PROMPT_BYTES:
        raise InputError(f"the prompt is longer than {MAX_PROMPT_BYTES} bytes")
    return data


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not valid UTF-8 (byte {error.start})") from None
