"""A keeper that is brought up while its starter still reads its command line.

It takes a keeper a while to load. Forked at the very beginning it does so beside us, and waits for its
specification; whoever never sends one never had it. For one session that ends with its starter.

Nothing is imported here that is not needed before the fork.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as type checkers read it; `typing` is slow to load
if TYPE_CHECKING:
    from typing import Any, NoReturn


FAREWELL = b"."
"""On a lifeline, before it is closed: all is well, and the session may take its time to end."""

_DESCRIPTORS = 1024


class Waiting:
    """Our ends of the pipes to a keeper that waits."""

    def __init__(self, specification: int, report: int, lifeline: int) -> None:
        self._specification = specification
        self.report = report
        self.lifeline = lifeline

    def tell(self, specification: dict[str, Any]) -> None:
        """What it is to keep; `start.hear_from` says what became of that."""
        import json

        try:
            with open(self._specification, "wb") as file:
                file.write(json.dumps(specification).encode())
        except BrokenPipeError:  # it has ended: its report is empty
            pass


class _Nest:
    waiting: Waiting | None = None


def fork_keeper() -> None:
    """Call it before there is any thread. The forked process holds nothing open of ours or our caller's."""
    try:
        for fd in range(3):
            os.fstat(fd)
    except OSError:  # a pipe would get the number of a standard stream
        return
    specification, report, lifeline = os.pipe(), os.pipe(), os.pipe()
    ours = specification[1], report[0], lifeline[1]
    theirs = specification[0], report[1], lifeline[0]
    pid = os.fork()
    if pid == 0:
        _keep(*theirs)
    for fd in theirs:
        os.close(fd)
    os.waitpid(pid, 0)
    _Nest.waiting = Waiting(*ours)


def take_waiting() -> Waiting | None:
    """The one that waits; it can be had once."""
    waiting, _Nest.waiting = _Nest.waiting, None
    return waiting


def close_all_but(*kept: int) -> None:
    """And the standard streams. What a caller has left open (a lock, a pipe) is not ours to hold."""
    try:
        found = [int(entry) for entry in os.listdir("/dev/fd")]
    except OSError:  # there is no such folder everywhere
        found = list(range(_DESCRIPTORS))
    for fd in found:
        if fd > 2 and fd not in kept:
            try:
                os.close(fd)
            except OSError:  # the one by which they were listed
                pass


def _keep(specification: int, report: int, lifeline: int) -> NoReturn:
    """In the forked process: what `process` does, but for the time at which it is loaded."""
    code = 1
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        close_all_but(specification, report, lifeline)
        # As with -P: a json.py in the user's folder is not ours to import.
        sys.path[:] = [path for path in sys.path if path and path != os.getcwd()]
        import remuda.agents.claude.agent  # noqa: F401  # what most calls start

        from .process import Report, run_keeper, settle
        from .spec import SessionSpec

        with open(specification, "rb") as file:
            data = file.read()
        if data:
            settle()
            code = run_keeper(SessionSpec.from_json(data), Report(report), lifeline)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        os._exit(code)
