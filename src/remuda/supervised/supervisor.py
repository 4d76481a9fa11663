"""A small process between ours and a program, so that nothing is left when ours is killed.

    python -I -S supervisor.py LIFELINE STDOUT STDERR PARENT STARTED GRACE SIGNAL MARK LC_CTYPE PROGRAM WORD…

The program has the supervisor's own standard input, output and errors: nothing is passed through. When the
lifeline is closed, or the process PARENT is gone, the program is ended: SIGNAL, GRACE seconds, SIGKILL. Every
descendant ends with it, in whatever process session: the supervisor adopts their orphans. Where the system
has no such thing they are found by the variable MARK in their environment. The supervisor exits as the
program did, with 128 and the signal for one that was killed.

STARTED is the program's process, if this process started it before it became the supervisor: the program then
loads while the supervisor does (see `child_process`). Signals are blocked until they are handled here.

STDOUT and STDERR are the other ends of the program's output. They are read when PARENT is dead: Claude Code
ends in a fifth of a second at a SIGHUP, out of a tool sometimes in 1.1 to 1.5. But it waits two seconds when
no one reads its output (2.1.325).

It runs as a file by itself and imports nothing of ours (but where orphans must be found by a variable), and
only modules in C: `os`, `signal` and `ctypes` would take as long as the interpreter itself.
"""

import _signal
import posix
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Environment = Mapping[str, str] | Mapping[bytes, bytes]

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
HANDLED = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGCHLD)
_ENDING = HANDLED[:3]
_POLL_INTERVAL = 0.05
"""Only while the program is ended: a dying parent's lifeline is closed a moment before it is gone, and
a list of children can miss one while others exit."""
_KILL_TIMEOUT = 10.0
"""Nothing outlives SIGKILL for long but what hangs in the kernel, or is another user's."""
_READ_BYTES = 1 << 16


def main(arguments: "Sequence[str]") -> int:
    lifeline, stdout, stderr, parent, program = map(int, arguments[:5])
    grace, end_signal, mark, lc_ctype = float(arguments[5]), int(arguments[6]), arguments[7], arguments[8]
    for fd in (lifeline, stdout, stderr):
        posix.set_inheritable(fd, False)
    wake = _wake_on_signals()
    if program:
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, HANDLED)
    else:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        program = start(arguments[9:], _environment(lc_ctype, mark), end_signal)
    _let_go()
    supervisor = Supervisor(program, parent, wake, [stdout, stderr], mark)
    supervisor.wait([lifeline, *_exit_descriptors(parent)])
    return supervisor.end(end_signal, grace)


class Supervisor:
    def __init__(self, program: int, parent: int, wake: int, output: "Sequence[int]", mark: str) -> None:
        self._program = program
        self._parent = parent
        self._wake = wake
        self._output = list(output)
        self._mark = mark
        self._code: int | None = None
        self._signalled = False

    def wait(self, ends: "Sequence[int]") -> None:
        """Return when the program has ended, a signal has come, or one of `ends` can be read."""
        while not (self._ended() or self._signalled):
            ready, _, _ = select.select([*ends, self._wake], [], [])
            if self._wake in ready:
                self._take_signals()
            if any(end in ready for end in ends):
                return

    def end(self, number: int, grace: float) -> int:
        """End the program and every descendant. Return its exit code."""
        if not self._ended():
            _kill(self._program, number)
            deadline = time.monotonic() + grace
            while not self._ended() and (left := deadline - time.monotonic()) > 0:
                self._sleep(min(left, _POLL_INTERVAL))
        deadline = time.monotonic() + _KILL_TIMEOUT
        while (self._reap() or self._marked()) and time.monotonic() < deadline:
            for pid in [*_descendants(posix.getpid()), *self._marked()]:
                _kill(pid, _signal.SIGKILL)
            self._sleep(_POLL_INTERVAL)
        return 128 + _signal.SIGKILL if self._code is None else self._code

    def _ended(self) -> bool:
        return self._code is not None

    def _sleep(self, timeout: float) -> None:
        """Wait for a signal. Read the output if no one else can."""
        output = self._output if posix.getppid() != self._parent else []
        ready, _, _ = select.select([self._wake, *output], [], [], timeout)
        if self._wake in ready:
            self._take_signals()
        for fd in (fd for fd in ready if fd in output):
            if not _read(fd):
                self._output.remove(fd)

    def _take_signals(self) -> None:
        numbers = posix.read(self._wake, 512)
        self._signalled = self._signalled or any(number in numbers for number in _ENDING)
        self._reap()

    def _reap(self) -> bool:
        """Wait for every child that has ended, orphans too. Return whether any is left."""
        while True:
            try:
                pid, status = posix.waitpid(-1, posix.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._program:
                code = posix.waitstatus_to_exitcode(status)
                self._code = code if code >= 0 else 128 - code

    def _marked(self) -> list[int]:
        if not self._mark:
            return []
        sys.path.insert(0, __file__.rpartition("/remuda/supervised/")[0])
        from remuda.process_table import with_variable

        name, _, value = self._mark.partition("=")
        return list(with_variable(name, value))


def _read(fd: int) -> bool:
    """Drop what there is. Return False at its end."""
    try:
        return bool(posix.read(fd, _READ_BYTES))
    except BlockingIOError:
        return True
    except OSError:
        return False


def _wake_on_signals() -> int:
    wake, woken = posix.pipe()
    for fd in (wake, woken):
        posix.set_blocking(fd, False)
    _signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    for number in (_signal.SIGCHLD, *_ENDING):
        _signal.signal(number, lambda *_: None)
    return wake


def start(
    argv: "Sequence[str]", env: "Environment", end_signal: int, blocked: "Iterable[int] | None" = None
) -> int:
    """Start the program as our child, with our standard streams and default signals. Return its pid.

    `blocked`: the signals that it shall have blocked, if not ours.
    """
    supervisor = posix.getpid()
    pid = posix.fork()
    if pid:
        return pid
    try:
        # If the supervisor itself is killed, the agent ends what it started.
        prctl(PR_SET_PDEATHSIG, end_signal)
        if posix.getppid() == supervisor:
            # Python ignores the last two, and it would be inherited.
            for number in (*HANDLED, _signal.SIGPIPE, _signal.SIGXFSZ):
                _signal.signal(number, _signal.SIG_DFL)
            if blocked is not None:
                _signal.pthread_sigmask(_signal.SIG_SETMASK, blocked)
            posix.execve(argv[0], list(argv), env)
    except OSError as error:
        posix.write(2, f"{argv[0]}: {error.strerror}\n".encode())
    finally:
        posix._exit(127)


def _environment(lc_ctype: str, mark: str) -> "dict[bytes, bytes]":
    """Return it as it was given: in the C locale Python sets LC_CTYPE itself."""
    env = dict(posix.environ)
    env.pop(b"LC_CTYPE", None)
    if lc_ctype:
        env[b"LC_CTYPE"] = lc_ctype[1:].encode(errors="surrogateescape")
    if mark:
        name, _, value = mark.partition("=")
        env[name.encode()] = value.encode()
    return env


def _let_go() -> None:
    """Close the streams, so that the program's end of them counts, and leave the terminal to it."""
    null = posix.open("/dev/null", posix.O_RDWR)
    for fd in (0, 1, 2):
        posix.dup2(null, fd)
    posix.close(null)
    try:
        posix.setsid()
    except OSError:  # it leads a session already
        pass


def _exit_descriptors(pid: int) -> "Iterator[int]":
    """Yield what can be read once a process has ended: its other children may have the lifeline too."""
    if hasattr(posix, "pidfd_open"):
        try:
            yield posix.pidfd_open(pid)
        except OSError:  # it has ended, and the lifeline is closed; or this system cannot
            pass


def prctl(option: int, value: int) -> None:
    """Make this system call of Linux. Does nothing elsewhere."""
    if sys.platform.startswith("linux"):
        import _ctypes

        program = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # None is the program itself
        _ctypes.call_function(_ctypes.dlsym(program, "prctl"), (option, value, 0, 0, 0))


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    queue = [pid]
    while queue:
        children = _children(queue.pop())
        found += children
        queue += children
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for task in posix.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                children += map(int, file.read().split())
    except OSError:
        pass
    return children if sys.platform.startswith("linux") else _children_by_ps(pid)


def _children_by_ps(pid: int) -> list[int]:
    import subprocess

    with subprocess.Popen(["ps", "-axo", "pid=,ppid="], stdout=subprocess.PIPE, text=True) as listing:
        pairs = [tuple(map(int, line.split())) for line in listing.communicate()[0].splitlines()]
    return [child for child, parent in pairs if parent == pid and child != listing.pid]


def _kill(pid: int, number: int) -> None:
    try:
        posix.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


if __name__ == "__main__":
    posix._exit(main(sys.argv[1:]))
