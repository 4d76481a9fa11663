"""Where the prompt of a call comes from: as `claude -p` takes it, and from a file besides."""

from __future__ import annotations

import os
import stat
import sys

from remuda.errors import InputError

MAX_PROMPT_BYTES = 10 << 20


def read_prompt(words: list[str], input_file: str | None) -> str:
    """The argument, with standard input behind it where both are given. Raises `InputError`."""
    if len(words) > 1:
        raise InputError(
            f"there is more than one prompt: {words[1][:40]!r} follows the first", hint="quote it"
        )
    if input_file is not None:
        if words:
            raise InputError("both a prompt and --input-file were given", hint="give one or the other")
        text = _decoded(_read_file(input_file), input_file)
    else:
        piped = _decoded(_read_stdin(), "standard input")
        text = "\n".join([*words, *([piped] if piped else [])])
    if not text.strip():
        raise InputError(
            "there is no prompt", hint="give it as an argument, on standard input, or with --input-file"
        )
    return text


def _read_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InputError(f"--input-file {path} is not a file")
            return _bounded(file.read(MAX_PROMPT_BYTES + 1))
    except OSError as error:
        raise InputError(f"cannot read --input-file {path}: {error.strerror}") from error


def _read_stdin() -> bytes:
    """Nothing when nobody has piped anything: a terminal, or none at all."""
    try:
        if sys.stdin is None or sys.stdin.isatty():
            return b""
        return _bounded(sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1))
    except (OSError, ValueError):
        return b""


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_PROMPT_BYTES:
        raise InputError(f"the prompt has more than {MAX_PROMPT_BYTES} bytes")
    return data


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not valid UTF-8 (byte {error.start})") from None
