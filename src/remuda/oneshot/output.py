"""Standard output of a call: nobody may read it any more, or its disk may be full."""

from __future__ import annotations

import os
import re
import sys

_SURROGATE = re.compile("[\ud800-\udfff]")


class OutputLost(Exception):
    """What was to be printed cannot be."""


class ReaderGone(OutputLost):
    """Whoever read it has seen enough."""


def write(text: str) -> None:
    """UTF-8 in every locale. Half a pair of surrogates, which JSON can carry, has no form in it."""
    if sys.stdout is None:  # the caller has closed it
        return
    try:
        sys.stdout.buffer.write(_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text).encode())
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise ReaderGone("nobody reads standard output any more") from None
    except OSError as error:
        raise OutputLost(f"standard output cannot be written: {error.strerror}") from error


def drop() -> None:
    """What could not be printed is not tried again at the end of the process, which would fail of it."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
