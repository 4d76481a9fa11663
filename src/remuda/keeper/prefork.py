"""A keeper that is brought up while its starter still reads its command line.

It takes a keeper a tenth of a second to load. Forked at the very beginning it does so beside us, and waits
for its specification; whoever never sends one never had it. For one session that ends with its starter.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple, NoReturn


class Waiting(NamedTuple):
    """Our ends of the pipes to a keeper that waits."""

    specification: int
    report: int
    lifeline: int


class _Nest:
    waiting: Waiting | None = None


def fork_keeper() -> None:
    """Call it before there is any thread. The forked process holds nothing of ours open."""
    try:
        for fd in range(3):
            os.fstat(fd)
    except OSError:  # a pipe would get the number of a standard stream
        return
    specification, report, lifeline = os.pipe(), os.pipe(), os.pipe()
    ours = Waiting(specification[1], report[0], lifeline[1])
    theirs = specification[0], report[1], lifeline[0]
    pid = os.fork()
    if pid == 0:
        _keep(ours, *theirs)
    for fd in theirs:
        os.close(fd)
    os.waitpid(pid, 0)
    _Nest.waiting = ours


def take_waiting() -> Waiting | None:
    """The one that waits; it can be had once."""
    waiting, _Nest.waiting = _Nest.waiting, None
    return waiting


def _keep(ours: Waiting, specification: int, report: int, lifeline: int) -> NoReturn:
    """In the forked process: what `process` does, but for the time at which it is loaded."""
    code = 1
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        for fd in (null, *ours):
            os.close(fd)
        # As with -P: a json.py in the user's folder is not ours to import.
        sys.path[:] = [path for path in sys.path if path and path != os.getcwd()]
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
