"""Commands that a user waits for, run without click: see `declare`."""

from __future__ import annotations

import gc
import os
import sys

from remuda.errors import EXIT_CODES, FolderUnusable, RemudaError, SessionUnreachable, unusable

from .command_list import load
from .declare import DeclaredCommand, parse
from .output import Program, complain, discard, echo

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


def run(words: Sequence[str]) -> int | None:
    """Run a command line and return its exit code. None, with nothing done, for one that click must read."""
    if not words or f"_{Program.name.upper()}_COMPLETE" in os.environ:
        return None
    command = load(words[0])
    if not isinstance(command, DeclaredCommand) or (given := parse(command, words[1:])) is None:
        return None
    gc.enable()  # see `remuda.__main__`
    try:
        result = with_own_errors(lambda: command.callback(**given))
    except RemudaError as error:
        complain(str(error), error=True)
        return error.exit_code
    except KeyboardInterrupt:
        echo(err=True)  # after the terminal's ^C
        return EXIT_CODES["INTERRUPTED"]
    except Exception as error:
        if "click" not in sys.modules:
            raise
        from .app import report

        return report(error, command.to_click())
    return result if isinstance(result, int) else EXIT_CODES["OK"]


def with_own_errors(call: Callable[[], Any]) -> Any:
    """Call it, and turn errors of the operating system into ours."""
    try:
        return call()
    except EOFError:
        raise _keeper_gone() from None
    except (BrokenPipeError, ConnectionResetError):
        if not _reader_is_gone():
            raise _keeper_gone() from None
        discard(sys.stdout)  # the reader of our output has closed it
        return EXIT_CODES["OK"]
    except OSError as error:
        if not error.filename and _is_folder_gone():
            raise FolderUnusable("the working folder was removed", hint="change to another folder") from error
        raise unusable(error) from error


def _keeper_gone() -> SessionUnreachable:
    return SessionUnreachable(
        "the session's keeper ended while it answered", hint="'remuda ls --all' shows the session's state"
    )


def _reader_is_gone() -> bool:
    """Whether the other end of the pipe that we print to is closed."""
    import select

    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))


def _is_folder_gone() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False
