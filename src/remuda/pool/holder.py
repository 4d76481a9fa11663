"""A small process between the user's and the agent, so that nothing is left when the user's is killed.

    python -I -S holder.py LIFELINE PARENT GRACE LC_CTYPE PROGRAM ARGUMENT…

The program has the holder's own standard input, output and errors: nothing is passed through. When the
lifeline is closed, or the process PARENT is gone, the program is ended: SIGTERM, GRACE seconds, SIGKILL. With
it ends every descendant, in whatever process session: the holder is the reaper of their orphans. It exits as
the program did, with 128 and the signal for one that was killed.

Run as a file by itself and importing nothing of ours, it is ready in 15 ms and has 10 MB, most of it shared.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LOOK_INTERVAL = 0.05
"""Only while ending what does not end: a list of children can miss one while others exit."""
_GIVE_UP = 10.0
"""Nothing outlives SIGKILL for long but what hangs in the kernel, or is another user's."""


def main(arguments: Sequence[str]) -> int:
    lifeline, parent, grace = int(arguments[0]), int(arguments[1]), float(arguments[2])
    os.set_inheritable(lifeline, False)
    wake = _wake_on_signals()
    prctl = Prctl()
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    program = _start(arguments[4:], _environment(arguments[3]), prctl)
    _let_go_of_streams()
    holder = Holder(program, grace, wake)
    holder.wait([lifeline, *_gone(parent)])
    return holder.end()


class Holder:
    def __init__(self, program: int, grace: float, wake: int) -> None:
        self._program = program
        self._grace = grace
        self._wake = wake
        self._code: int | None = None
        self._told = False

    def wait(self, ends: Sequence[int]) -> None:
        """Until the program has ended, or one of these can be read."""
        while not (self._ended() or self._told):
            ready, _, _ = select.select([*ends, self._wake], [], [])
            if self._wake in ready:
                self._hear()
            if any(end in ready for end in ends):
                return

    def end(self) -> int:
        """Returns how the program ended, when no descendant is left."""
        if not self._ended():
            _signal(self._program, signal.SIGTERM)
            deadline = time.monotonic() + self._grace
            while not self._ended() and (left := deadline - time.monotonic()) > 0:
                self._sleep(left)
        deadline = time.monotonic() + _GIVE_UP
        while self._reap() and time.monotonic() < deadline:
            for pid in _descendants(os.getpid()):
                _signal(pid, signal.SIGKILL)
            self._sleep(_LOOK_INTERVAL)
        return 128 + signal.SIGKILL if self._code is None else self._code

    def _ended(self) -> bool:
        return self._code is not None

    def _sleep(self, timeout: float) -> None:
        if select.select([self._wake], [], [], timeout)[0]:
            self._hear()

    def _hear(self) -> None:
        numbers = os.read(self._wake, 512)
        self._told = self._told or any(number in numbers for number in _ENDING)
        self._reap()

    def _reap(self) -> bool:
        """Bury all that have ended, ours and orphans. Whether anybody is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._program:
                code = os.waitstatus_to_exitcode(status)
                self._code = code if code >= 0 else 128 - code


def _wake_on_signals() -> int:
    wake, woken = os.pipe()
    for fd in (wake, woken):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, *_ENDING):
        signal.signal(number, lambda *_: None)
    return wake


def _start(argv: Sequence[str], env: dict[str, str], prctl: Prctl) -> int:
    holder = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        # Should the holder itself be killed: the agent then ends what it started.
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() == holder:
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and it would be inherited
                signal.signal(number, signal.SIG_DFL)
            os.execve(argv[0], list(argv), env)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _environment(lc_ctype: str) -> dict[str, str]:
    """As it was given: in the C locale Python sets a variable of its own."""
    env = dict(os.environ)
    env.pop("LC_CTYPE", None)
    return {**env, "LC_CTYPE": lc_ctype[1:]} if lc_ctype else env


def _let_go_of_streams() -> None:
    """Else nobody would see that the program has closed them."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


def _gone(parent: int) -> Iterator[int]:
    """What can be read once the parent has ended: other children of it may have inherited the lifeline."""
    if hasattr(os, "pidfd_open"):
        try:
            yield os.pidfd_open(parent)
        except OSError:  # it has ended, and the lifeline tells; or this system cannot
            pass


class Prctl:
    """Nothing where the system has no such call."""

    def __init__(self) -> None:
        self._call = None
        if sys.platform.startswith("linux"):
            import ctypes

            self._call = ctypes.CDLL(None).prctl

    def __call__(self, option: int, value: int) -> None:
        if self._call is not None:
            self._call(option, value, 0, 0, 0)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    queue = [pid]
    while queue:
        kids = _children(queue.pop())
        found += kids
        queue += kids
    return found


def _children(pid: int) -> list[int]:
    kids: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as listed:
                kids += map(int, listed.read().split())
    except OSError:
        pass
    return kids if os.path.isdir("/proc/self") else _listed_children(pid)


def _listed_children(pid: int) -> list[int]:
    import subprocess

    with subprocess.Popen(["ps", "-axo", "pid=,ppid="], stdout=subprocess.PIPE, text=True) as listing:
        pairs = [tuple(map(int, line.split())) for line in listing.communicate()[0].splitlines()]
    return [kid for kid, parent in pairs if parent == pid and kid != listing.pid]  # that is ours itself


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
