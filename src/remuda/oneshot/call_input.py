"""Read what a call gets besides its command line: the prompt, as `claude -p` does, and defaults."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from remuda.durable import open_regular, read_regular
from remuda.errors import InputError, InvalidOptions, WaitTimeout
from remuda.frozen import frozen
from remuda.names import known_words
from remuda.paths import config_home

from .output import warn
from .print_request import DEFAULT_TIMEOUT, PrintRequest

TYPE_CHECKING = False  # as type checkers read it; importing `typing` takes 2 ms
if TYPE_CHECKING:
    from typing import Any

MAX_PROMPT_BYTES = 10 << 20
STDIN_TIMEOUT = 3.0
_READ_BYTES = 1 << 16


def read_prompt(request: PrintRequest) -> str:
    """Return the argument, followed by standard input if there is any. Raises `InputError`.

    Of several arguments the first, as with `claude -p`, which drops the others.
    """
    words, input_file = [*map(_as_text, request.prompt_words[:1])], request.input_file
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


def _as_text(word: str) -> str:
    """Return an argument. Python marks bytes that the locale does not have with surrogates."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return _decoded(os.fsencode(word), "the prompt")
    return word


def _decoded(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not valid UTF-8 (byte {error.start})") from None


# ── defaults from a file ──

# --config FILE, else $XDG_CONFIG_HOME/claude-print/config.toml, else ~/.config/claude-print/config.toml
#
# A missing file is not an error, even if it was named. An unknown key, or a value of another type or out of
# range, is one. Flags override the file.

_MAX_TURNS = 1000
_MAX_TIMEOUT = 86_400


@frozen
class Defaults:
    model: str | None = None
    inherit_hooks: bool | None = None
    max_turns: int | None = None
    timeout_secs: float | None = None
    source: Path | None = None
    """The file that was read; None if there is none."""


def config_file(named: str | None, environ: Mapping[str, str]) -> Path:
    if named is not None:
        return Path(named).expanduser()
    return config_home(environ) / "claude-print" / "config.toml"


def load_defaults(named: str | None, environ: Mapping[str, str]) -> Defaults:
    """Read the file. Raises `InvalidOptions` if it cannot be read or is wrong."""
    path = config_file(named, environ)
    try:
        data = read_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        return Defaults()
    except OSError as error:
        raise InvalidOptions(f"cannot read {path}: {error.strerror}") from error
    import tomllib  # most users have no such file

    try:
        document = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidOptions(f"{path} is not TOML: {error}") from error
    return read_defaults(document, path)


def read_defaults(document: Mapping[str, Any], path: Path) -> Defaults:
    for name in document:
        if name != "defaults":
            raise InvalidOptions(f"{path}: unknown key '{name}'", hint="the only table is [defaults]")
    table = document.get("defaults", {})
    if not isinstance(table, dict):
        raise InvalidOptions(f"{path}: 'defaults' must be a table")
    for name, value in table.items():
        check = _CHECKS.get(name)
        if check is None:
            raise InvalidOptions(f"{path}: unknown key '{name}'", hint=known_words(name, _CHECKS))
        wanted, is_right = check
        if not is_right(value):
            raise InvalidOptions(f"{path}: '{name}' must be {wanted}, not {value!r}")
    return Defaults(**table, source=path)


def _is_integer(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


_CHECKS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "model": ("the name of a model", lambda value: isinstance(value, str) and value[:1] not in ("", "-")),
    "inherit_hooks": ("true or false", lambda value: isinstance(value, bool)),
    "max_turns": (f"an integer from 1 to {_MAX_TURNS}", lambda value: _is_integer(value, _MAX_TURNS)),
    "timeout_secs": (
        f"an integer from 1 to {_MAX_TIMEOUT}",
        lambda value: _is_integer(value, _MAX_TIMEOUT),
    ),
}


def apply_defaults(request: PrintRequest, defaults: Defaults) -> None:
    """Set what the command line did not."""
    if request.timeout is None:
        request.timeout = defaults.timeout_secs
    if request.model is None and defaults.model is not None:
        request.model = defaults.model
        request.passed += ["--model", defaults.model]
    if request.max_turns is None and defaults.max_turns is not None:
        request.max_turns = defaults.max_turns
        if request.backend == "stream":
            request.passed += ["--max-turns", str(defaults.max_turns)]
    chose_sources = any(word.partition("=")[0] == "--setting-sources" for word in request.passed)
    if request.inherit_hooks is None and not chose_sources:
        request.inherit_hooks = defaults.inherit_hooks
