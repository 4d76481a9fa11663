"""Start a program and its supervisor from a process without threads: the program at once.

A supervisor that is started by `exec` alone takes as long as an interpreter until it starts the program. Here
a forked process of ours starts the program, and becomes the supervisor by `exec`, which changes neither its
children nor whether it adopts orphans. Linux only.
"""

from __future__ import annotations

import os
import signal
import sys
from io import FileIO

from remuda.proctree import close_all_but

from .supervisor import HANDLED, PR_SET_CHILD_SUBREAPER, prctl, start

TYPE_CHECKING = False  # as type checkers read it; importing `typing` takes 2 ms
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import NoReturn

_PR_GET_DUMPABLE = 3
_NOT_RUN = 127


class ForkedProcess:
    """A child of ours, as `subprocess.Popen` shows one."""

    def __init__(self, pid: int, stdin: FileIO | None) -> None:
        self.pid = pid
        self.stdin = stdin
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self._reap(os.WNOHANG)

    def wait(self) -> int | None:
        return self._reap(0)

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # our caller ignores SIGCHLD: the kernel has reaped it
                self.returncode = 0
            else:
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


def start_forked(
    argv: Sequence[str],
    cwd: str | None,
    env: Mapping[str, str],
    command: Callable[[int], Sequence[str]],
    kept: Collection[int],
    output: tuple[int, int],
    end_signal: int,
    *,
    inherit_input: bool,
) -> ForkedProcess:
    """Start the program in our process group. Raises OSError.

    `command` returns that of the supervisor, for the pid of the program. It keeps the descriptors `kept`.
    """
    prctl(_PR_GET_DUMPABLE, 0)  # changes nothing: it loads what the call needs
    read, write = (0, -1) if inherit_input else os.pipe()
    # No signal may come between the two: a handler of ours would run there, and the default would leave the
    # program without a supervisor. They are blocked until the supervisor handles them.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    try:
        pid = os.fork()
        if pid == 0:
            _supervise(argv, cwd, env, command, kept, (read, *output), end_signal, blocked)
    except OSError:
        if write >= 0:
            os.close(write)
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if not inherit_input:
            os.close(read)
    return ForkedProcess(pid, None if inherit_input else FileIO(write, "w"))


def _supervise(
    argv: Sequence[str],
    cwd: str | None,
    env: Mapping[str, str],
    command: Callable[[int], Sequence[str]],
    kept: Collection[int],
    streams: Sequence[int],
    end_signal: int,
    blocked: Collection[int],
) -> NoReturn:
    """Run in the forked process: start the program, and become its supervisor."""
    program = 0
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would take the program's exit code
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
        close_all_but(*kept)
        if cwd is not None:
            os.chdir(cwd)
        program = start(argv, env, end_signal, blocked)  # not for it: `kept` is closed when it is executed
        for fd in kept:
            os.set_inheritable(fd, True)
        words = list(command(program))
        os.execve(sys.executable, words, env)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
    finally:
        if program:
            os.kill(program, signal.SIGKILL)
        os._exit(_NOT_RUN)
