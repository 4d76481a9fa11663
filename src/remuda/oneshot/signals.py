"""Signals that end a call: raised as an exception wherever the program is, and never lost.

Only the first one is raised. The call then ends in order, whatever signals follow. So everything after it
needs a timeout of its own.
"""

from __future__ import annotations

import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

_ENDING = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
_SOON = 0.001


class Signalled(BaseException):
    """Raised by a signal. Not an `Exception`, so that no handler of errors catches it."""


class _State:
    over = False
    held = False
    pending = ""


def raise_signals() -> None:
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _on_signal)
    sys.unraisablehook = _raise_again


def ignore_signals() -> None:
    """Ignore signals for the rest of the process: the outcome is known, and no signal changes it.

    At exit Python restores the default handlers, and a signal would kill it.
    """
    _State.over = True
    signal.setitimer(signal.ITIMER_REAL, 0)
    numbers = (*_ENDING, signal.SIGALRM)
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # Python prints an error if one comes while it is set
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    sys.unraisablehook = sys.__unraisablehook__


def is_over() -> bool:
    """Whether no signal will be raised any more: then every wait needs a timeout."""
    return _State.over


class SignalsHeld:
    """A block in which no signal is raised. One that comes is raised after the block."""

    def __enter__(self) -> None:
        _State.held = True

    def __exit__(self, *exc: object) -> None:
        _State.held = False
        if _State.pending:
            text, _State.pending = _State.pending, ""
            raise Signalled(text)


def _on_signal(number: int, _frame: FrameType | None) -> None:
    if not _State.over:
        _State.over = True
        _raise(f"interrupted by {signal.Signals(number).name}")


def _raise(text: str) -> None:
    if not _State.held:
        raise Signalled(text)
    _State.pending = text


def _raise_again(dropped: sys.UnraisableHookArgs) -> None:
    """Raise a signal again that came while Python deleted an object: there it would be lost."""
    if not isinstance(dropped.exc_value, Signalled):
        sys.__unraisablehook__(dropped)
        return
    text = str(dropped.exc_value)

    def again(_number: int, _frame: FrameType | None) -> None:
        _raise(text)

    signal.signal(signal.SIGALRM, again)
    signal.setitimer(signal.ITIMER_REAL, _SOON)
