"""Standard output and standard error of a call. Their reader may be gone, or their disk full."""

from __future__ import annotations

import os
import select
import sys
import time
from types import TracebackType

from remuda.patterns import pattern
from remuda.untrusted import printable

TYPE_CHECKING = False

if TYPE_CHECKING:
    from types import FrameType


# ── signals ──

# Only the first one is raised. The call then ends in order, whatever signals follow. So everything after it
# needs a timeout of its own.

# `signal` is loaded where it is needed: every command loads this module, and few handle signals.

_ENDING = "SIGINT", "SIGTERM", "SIGHUP"
_SOON = 0.001


class Signalled(BaseException):
    """Raised by a signal. Not an `Exception`, so that no handler of errors catches it."""


class _State:
    over = False
    held = False
    pending = ""


def raise_signals() -> None:
    import signal

    for number in (signal.Signals[name] for name in _ENDING):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _on_signal)
    sys.unraisablehook = _raise_again


def ignore_signals() -> None:
    """Ignore signals for the rest of the process: the outcome is known, and no signal changes it.

    At exit Python restores the default handlers, and a signal would kill it.
    """
    import signal

    _State.over = True
    signal.setitimer(signal.ITIMER_REAL, 0)
    numbers = [signal.Signals[name] for name in (*_ENDING, "SIGALRM")]
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
    import signal

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
    import signal

    text = str(dropped.exc_value)

    def again(_number: int, _frame: FrameType | None) -> None:
        _raise(text)

    signal.signal(signal.SIGALRM, again)
    signal.setitimer(signal.ITIMER_REAL, _SOON)


_SEQUENCE = pattern(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
_SURROGATE = pattern("[\ud800-\udfff]")
# How much a pipe or a terminal that is ready takes at once, without waiting for its reader.
_PIPE_PIECE, _TERMINAL_PIECE = select.PIPE_BUF, 256
_LAST_WRITE_TIMEOUT = 2.0


class PrintProgram:
    """The name of the command, in messages and with `--version`."""

    name = "remuda print"


class OutputLost(Exception):
    """The output cannot be written."""


class ReaderGone(OutputLost):
    """The reader has closed the pipe."""


def open_standard_streams() -> None:
    """Open the null device for closed standard streams: else the next file or socket gets their number."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


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
    say(f"{PrintProgram.name}: {text}\n")


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
