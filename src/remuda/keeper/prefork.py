"""Start a keeper while its starter still reads its command line.

A keeper takes a while to load. Forked at the very beginning, it loads in parallel and waits for its
specification; if none comes, it ends unnoticed. For one session that ends with its starter.

Nothing is imported here that is not needed before the fork.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as type checkers read it; `typing` is slow to load
if TYPE_CHECKING:
    from typing import Any, NoReturn


FAREWELL = b"."
"""Written to a lifeline before it is closed: all is well, and the session may take its time to end."""


class Waiting:
    """Our ends of the pipes to a waiting keeper."""

    def __init__(self, specification: int, report: int, lifeline: int) -> None:
        self._specification = specification
        self.report = report
        self.lifeline = lifeline

    def tell(self, specification: dict[str, Any]) -> None:
        """Send the specification; `start.hear_from` returns the result."""
        import json

        try:
            with open(self._specification, "wb") as file:
                file.write(json.dumps(specification).encode())
        except BrokenPipeError:  # it has ended: its report is empty
            pass


class _Nest:
    waiting: Waiting | None = None


def fork_keeper() -> None:
    """Fork a keeper.

    Call it before any thread starts. The forked process keeps no descriptor of ours or our caller's.
    """
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
    """Return the waiting keeper, once."""
    waiting, _Nest.waiting = _Nest.waiting, None
    return waiting


def _keep(specification: int, report: int, lifeline: int) -> NoReturn:
    """Run in the forked process: as `process` does, but loaded earlier."""
    code = 1
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        from remuda.proctree import close_all_but

        close_all_but(specification, report, lifeline)
        # As with -P: do not import a json.py from the user's folder.
        sys.path[:] = [path for path in sys.path if path and path != os.getcwd()]
        from remuda.agents import DEFAULT_AGENT, find_agent

        find_agent(DEFAULT_AGENT)  # loads what most calls start

        from .process import StartReport, run_keeper, settle
        from .spec import SessionSpec

        with open(specification, "rb") as file:
            data = file.read()
        if data:
            settle()
            code = run_keeper(SessionSpec.from_json(data), StartReport(report), lifeline)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        os._exit(code)
