"""Standard output and standard error of a call. Their reader may be gone, or their disk full."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from types import TracebackType

from remuda.untrusted import printable

from .signals import is_over

_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
# How much a pipe or a terminal that is ready takes at once, without waiting for its reader.
_PIPE_PIECE, _TERMINAL_PIECE = select.PIPE_BUF, 256
_LAST_WRITE_TIMEOUT = 2.0


class Program:
    """The name of the command, in messages and with `--version`."""

    name = "remuda print"


class OutputLost(Exception):
    """The output cannot be written."""


class ReaderGone(OutputLost):
    """The reader has closed the pipe."""


def write(text: str) -> None:
    """Write to standard output: UTF-8 in every locale, and made safe if it is a terminal.

    Raises `OutputLost`.
    """
    if sys.stdout is None:  # the caller has closed it
        return
    try:
        sys.stdout.flush()
        text = for_terminal(text) if sys.stdout.isatty() else text
        _put(sys.stdout.fileno(), without_halves(text).encode())
    except (BrokenPipeError, ConnectionResetError):
        raise ReaderGone("the reader of standard output is gone") from None
    except OSError as error:
        raise OutputLost(f"cannot write to standard output: {error.strerror}") from error


def say(text: str) -> None:
    """Write to standard error. A failure is ignored: it does not change the outcome of the call."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.flush()
        _put(sys.stderr.fileno(), printable(text).encode(sys.stderr.encoding, "backslashreplace"))
    except (OSError, ValueError):
        pass


def warn(text: str) -> None:
    """Write a line to standard error, with the name of the command."""
    say(f"{Program.name}: {text}\n")


def show_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a traceback as Python does, but printable: an error may quote an agent. For `sys.excepthook`."""
    import traceback

    say("".join(traceback.format_exception(kind, error, trace)))


def for_terminal(text: str) -> str:
    """Return an answer as a terminal may get it: without escape sequences, and printable."""
    return printable(_SEQUENCE.sub("", text))


def without_halves(text: str) -> str:
    """Replace unpaired surrogates: JSON can carry them, UTF-8 cannot."""
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def _put(fd: int, data: bytes) -> None:
    """Write all data, even if another process that shares the descriptor (node does) made it non-blocking.

    When no signal can end the wait for a reader any more, the wait has a timeout, and the rest is dropped.
    """
    deadline = time.monotonic() + _LAST_WRITE_TIMEOUT if is_over() else None
    piece = _TERMINAL_PIECE if os.isatty(fd) else _PIPE_PIECE
    view = memoryview(data)
    while view:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([], [fd], [], left)[1]:
            return
        try:
            view = view[os.write(fd, view[:piece]) :]
        except BlockingIOError:  # another process was faster
            pass


def drop() -> None:
    """Discard further output. Otherwise Python would try again at exit, and fail."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
