"""Standard output and standard error of a call: nobody may read them any more, or their disk may be full."""

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
# What can be written to takes so much at once, without waiting for its reader.
_PIPE_PIECE, _TERMINAL_PIECE = select.PIPE_BUF, 256
_LAST_WORDS_TIMEOUT = 2.0


class Program:
    """What a call is known by to its user: in messages, and with `--version`."""

    name = "remuda print"


class OutputLost(Exception):
    """What was to be printed cannot be."""


class ReaderGone(OutputLost):
    """Whoever read it has seen enough."""


def write(text: str) -> None:
    """UTF-8 in every locale: every byte to a file or a pipe, and `for_terminal` to a terminal."""
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
    """On standard error. That it cannot be written changes nothing about the call."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.flush()
        _put(sys.stderr.fileno(), printable(text).encode(sys.stderr.encoding, "backslashreplace"))
    except (OSError, ValueError):
        pass


def warn(text: str) -> None:
    """A line of our own, on standard error."""
    say(f"{Program.name}: {text}\n")


def show_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a traceback as Python does, but printable: an error may quote an agent. For `sys.excepthook`."""
    import traceback

    say("".join(traceback.format_exception(kind, error, trace)))


def for_terminal(text: str) -> str:
    """Return an answer as a terminal may get it: without escape sequences, and printable."""
    return printable(_SEQUENCE.sub("", text))


def without_halves(text: str) -> str:
    """Half a pair of surrogates, which JSON can carry, has no form in UTF-8."""
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def _put(fd: int, data: bytes) -> None:
    """All of it, also where somebody who shares the descriptor (node, say) made it one that does not block.

    When no signal can end the wait for a reader any more, that has a limit, and the rest is dropped.
    """
    deadline = time.monotonic() + _LAST_WORDS_TIMEOUT if is_over() else None
    piece = _TERMINAL_PIECE if os.isatty(fd) else _PIPE_PIECE
    view = memoryview(data)
    while view:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([], [fd], [], left)[1]:
            return
        try:
            view = view[os.write(fd, view[:piece]) :]
        except BlockingIOError:  # somebody else was quicker
            pass


def drop() -> None:
    """What could not be printed is not tried again at the end of the process, which would fail of it."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
