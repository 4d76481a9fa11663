"""Ending the agent of a stream call when the call itself was killed: a process beside it that waits for that.

The kernel tells the CLI of our end (SIGHUP), and it ends in order in a fifth of a second, out of a tool
sometimes in 1.1 to 1.5, but only as long as somebody reads what it prints: else it waits two seconds for that
(2.1.325). What it started may outlive it, and is known by a variable in its environment.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Collection

from remuda.keeper.prefork import close_all_but
from remuda.proctree import is_alive, send_signal, with_variable

MARK = "REMUDA_CALL"
_GRACE = 1.8
_KILL_LIMIT = 2.0
_LOOK_INTERVAL = 0.02
_READ_BYTES = 1 << 16


class Guard:
    """`dismiss` it when the call is over."""

    def __init__(self, name: str, agent: int, output: Collection[int]) -> None:
        """`name`: what `MARK` is for the agent and all it starts; `output`: what the agent prints to."""
        watched, self._lifeline = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _watch(name, agent, watched, output)
        os.close(watched)

    def dismiss(self) -> None:
        try:
            os.write(self._lifeline, b".")
        except OSError:  # somebody has killed it
            pass
        os.close(self._lifeline)
        try:
            os.waitpid(self._pid, 0)
        except ChildProcessError:
            pass


def _watch(name: str, agent: int, lifeline: int, output: Collection[int]) -> None:
    """In the forked process: nothing of the caller's is held, and no signal to the command is for us."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        close_all_but(lifeline, *output)
        if not os.read(lifeline, 1):
            if not sys.platform.startswith("linux"):  # where the kernel does so when its parent ends
                send_signal(agent, signal.SIGHUP)
            _take_output(agent, output)
            _kill_all(name)
    finally:
        os._exit(0)


def _take_output(agent: int, output: Collection[int]) -> None:
    """For as long as the agent takes to end, and may."""
    reading = set(output)
    deadline = time.monotonic() + _GRACE
    while is_alive(agent) and time.monotonic() < deadline:
        ready, _, _ = select.select(reading, [], [], _LOOK_INTERVAL)
        reading -= {fd for fd in ready if not _drained(fd)}


def _drained(fd: int) -> bool:
    """False at its end."""
    try:
        return bool(os.read(fd, _READ_BYTES))
    except BlockingIOError:
        return True
    except OSError:
        return False


def _kill_all(name: str) -> None:
    deadline = time.monotonic() + _KILL_LIMIT
    while (left := list(with_variable(MARK, name))) and time.monotonic() < deadline:
        for pid in left:
            send_signal(pid, signal.SIGKILL)
        time.sleep(_LOOK_INTERVAL)
