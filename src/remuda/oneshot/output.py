"""Standard output and standard error of a call: nobody may read them any more, or their disk may be full."""

from __future__ import annotations

import os
import re
import select
import sys
import time

from .signals import is_over

_SURROGATE = re.compile("[\ud800-\udfff]")
# What can be written to takes so much at once, without waiting for its reader.
_PIPE_PIECE, _TERMINAL_PIECE = select.PIPE_BUF, 256
_LAST_WORDS_TIMEOUT = 2.0


class OutputLost(Exception):
    """What was to be printed cannot be."""


class ReaderGone(OutputLost):
    """Whoever read it has seen enough."""


def write(text: str) -> None:
    """UTF-8 in every locale."""
    if sys.stdout is None:  # the caller has closed it
        return
    try:
        sys.stdout.flush()
        _put(sys.stdout.fileno(), without_halves(text).encode())
    except (BrokenPipeError, ConnectionResetError):
        raise ReaderGone("nobody reads standard output any more") from None
    except OSError as error:
        raise OutputLost(f"standard output cannot be written: {error.strerror}") from error


def say(text: str) -> None:
    """On standard error. That it cannot be written changes nothing about the call."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.flush()
        _put(sys.stderr.fileno(), text.encode(sys.stderr.encoding, "backslashreplace"))
    except (OSError, ValueError):
        pass


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
