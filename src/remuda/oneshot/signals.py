"""Signals that end a call: raised wherever they meet us, and not lost where nothing can be raised."""

from __future__ import annotations

import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

_SOON = 0.001


class Signalled(BaseException):
    """Raised by a signal, wherever that met us: no handler of errors on the way shall take it for one."""


def heed_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _raise)
    sys.unraisablehook = _raise_again


def _raise(number: int, _frame: FrameType | None) -> None:
    raise Signalled(f"interrupted by {signal.Signals(number).name}")


def _raise_again(dropped: sys.UnraisableHookArgs) -> None:
    """What is raised while an object is taken away goes no further. It is raised again, behind that."""
    if not isinstance(dropped.exc_value, Signalled):
        sys.__unraisablehook__(dropped)
        return
    said = str(dropped.exc_value)

    def again(_number: int, _frame: FrameType | None) -> None:
        raise Signalled(said)

    signal.signal(signal.SIGALRM, again)
    signal.setitimer(signal.ITIMER_REAL, _SOON)
