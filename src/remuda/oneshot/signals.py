"""Signals that end a call: raised wherever they meet us, and not lost where nothing can be raised.

One is raised, once: what ends because of it comes to its end, whatever else is pressed meanwhile. So all that
comes behind it has a limit of its own.
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
    """Raised by a signal, wherever that met us: no handler of errors on the way shall take it for one."""


class _Heed:
    over = False
    held = False
    waiting = ""


def heed_signals() -> None:
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _hear)
    sys.unraisablehook = _raise_again


def unheed_signals() -> None:
    """The outcome is known, and no signal changes it. For the rest of the process: at its end Python puts the
    system's own handling in the place of ours, and would be killed."""
    _Heed.over = True
    signal.setitimer(signal.ITIMER_REAL, 0)
    numbers = (*_ENDING, signal.SIGALRM)
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # Python complains of one that comes while it is set
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    sys.unraisablehook = sys.__unraisablehook__


def is_over() -> bool:
    """Whether no signal will be raised any more: then nothing may be waited for without a limit."""
    return _Heed.over


class SignalsHeld:
    """Within, nothing is raised: what is begun there is done. A signal is raised behind it."""

    def __enter__(self) -> None:
        _Heed.held = True

    def __exit__(self, *exc: object) -> None:
        _Heed.held = False
        if _Heed.waiting:
            said, _Heed.waiting = _Heed.waiting, ""
            raise Signalled(said)


def _hear(number: int, _frame: FrameType | None) -> None:
    if not _Heed.over:
        _Heed.over = True
        _raise(f"interrupted by {signal.Signals(number).name}")


def _raise(said: str) -> None:
    if not _Heed.held:
        raise Signalled(said)
    _Heed.waiting = said


def _raise_again(dropped: sys.UnraisableHookArgs) -> None:
    """What is raised while an object is taken away goes no further. It is raised again, behind that."""
    if not isinstance(dropped.exc_value, Signalled):
        sys.__unraisablehook__(dropped)
        return
    said = str(dropped.exc_value)

    def again(_number: int, _frame: FrameType | None) -> None:
        _raise(said)

    signal.signal(signal.SIGALRM, again)
    signal.setitimer(signal.ITIMER_REAL, _SOON)
