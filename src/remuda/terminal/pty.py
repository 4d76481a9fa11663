"""A program on a new pseudo-terminal, as the leader of its own process session."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

from remuda.errors import CommandNotExecutable, CommandNotFound, FolderUnusable, SpawnFailed

READ_BYTES = 4096
"""The maximum that is handed out at once."""
DRAIN_BYTES = 131072
"""One read of a flood: half of what a socket buffers.

Less is slower (by a fifth), more makes watchers lag.
"""
_LINUX = sys.platform.startswith("linux")
_BLOCKED = (errno.EAGAIN, errno.EINTR)


def set_size(fd: int, cols: int, rows: int) -> None:
    """Set the size of the terminal; the kernel notifies the foreground programs by SIGWINCH."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


def get_size(fd: int) -> tuple[int, int]:
    rows, cols, _, _ = struct.unpack("HHHH", fcntl.ioctl(fd, termios.TIOCGWINSZ, b"\0" * 8))
    return cols, rows


def resolve_program(program: str, env: Mapping[str, str], cwd: Path) -> str:
    """Return the file that `program` names, in the child's own PATH and folder."""
    if "/" in program:
        path = Path(os.path.join(cwd, program))
        if not path.exists():
            raise CommandNotFound(f"{program}: no such file")
        if path.is_dir() or not os.access(path, os.X_OK):
            raise CommandNotExecutable(f"{program}: not an executable file")
        return str(path)
    import shutil  # slow to load

    found = shutil.which(program, path=env.get("PATH", os.defpath))
    if found is None:
        raise CommandNotFound(
            f"{program}: command not found", hint="check that it is installed and on the PATH"
        )
    return os.path.join(cwd, found)


def check_folder(cwd: Path) -> None:
    if not cwd.is_dir():
        raise FolderUnusable(
            f"working folder {cwd} {'is not a folder' if cwd.exists() else 'does not exist'}"
        )
    if not os.access(cwd, os.X_OK):
        raise FolderUnusable(f"working folder {cwd} cannot be entered")


class Pty:
    """The master side, non-blocking, with the child's pid."""

    def __init__(self, pid: int, fd: int, terminal: str = "", terminal_made: int = 0) -> None:
        self.pid = pid
        self.fd = fd
        self.terminal = terminal
        """The path of the other side, and `terminal_made` when that was made (nanoseconds)."""
        self.terminal_made = terminal_made
        os.set_blocking(fd, False)

    def drain(self, first: bytes = b"", limit_bytes: int = DRAIN_BYTES) -> bytes | None:
        """Return `first` and what can be read now, up to about `limit_bytes`; b"" for nothing, None at the
        end.

        The kernel returns a terminal's output in pieces of at most 4 KiB. Gathering them here makes one frame
        of many, so that a hundred watchers can share one flood.
        """
        pieces = [first] if first else []
        size = len(first)
        while size < limit_bytes:
            try:
                piece = os.read(self.fd, READ_BYTES)
            except OSError as error:
                if error.errno in _BLOCKED:
                    break
                # EIO: every holder of the slave side is gone. What came before it is not lost.
                return b"".join(pieces) or None
            if not piece:
                return b"".join(pieces) or None
            pieces.append(piece)
            size += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def write(self, data: bytes | memoryview) -> int:
        """Write, and return how many bytes the terminal took, 0 when it is full.

        Raises `OSError` when it is gone.
        """
        try:
            return os.write(self.fd, data)
        except OSError as error:
            if error.errno in _BLOCKED:
                return 0
            raise

    def unread_bytes(self) -> int:
        """Return how many written bytes the program has not read yet.

        Raises `OSError` where that is unknown.
        """
        slave = os.open(self.terminal, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            unread: int = struct.unpack("i", fcntl.ioctl(slave, termios.FIONREAD, b"\0" * 4))[0]
            return unread
        finally:
            os.close(slave)

    def resize(self, cols: int, rows: int) -> None:
        set_size(self.fd, cols, rows)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def spawn(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], cols: int, rows: int) -> Pty:
    """Start `argv` on a terminal of that size.

    The calling process's own working folder is changed for a moment and restored: call it where no other
    thread depends on it.
    """
    check_folder(cwd)
    program = resolve_program(argv[0], env, cwd)
    master, slave = os.openpty()
    set_size(slave, cols, rows)
    slave_name, created_at = os.ttyname(slave), os.fstat(slave).st_ctime_ns
    before = os.getcwd()
    try:
        os.chdir(cwd)
        pid = _start(program, argv, env, slave_name)
    except OSError as error:
        os.close(master)
        raise _explain(argv[0], error) from error
    finally:
        os.chdir(before)
        os.close(slave)
    return Pty(pid, master, slave_name, created_at)


def _explain(program: str, error: OSError) -> Exception:
    if error.errno == errno.ENOENT:
        return CommandNotFound(f"{program}: its interpreter was not found")
    if error.errno in (errno.EACCES, errno.ENOEXEC):
        return CommandNotExecutable(f"{program}: {error.strerror}")
    if error.errno == errno.E2BIG:
        return SpawnFailed(f"{program}: arguments and environment are too long")
    return SpawnFailed(f"{program} could not be started: {error.strerror}")


def _start(program: str, argv: Sequence[str], env: Mapping[str, str], slave_name: str) -> int:
    if _LINUX:
        # Opening the slave by name after setsid makes it the controlling terminal: no fork of a
        # process that may have threads, and an exec that fails is reported here.
        return os.posix_spawn(
            program,
            list(argv),
            dict(env),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, slave_name, os.O_RDWR, 0),
                (os.POSIX_SPAWN_DUP2, 0, 1),
                (os.POSIX_SPAWN_DUP2, 0, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=_resettable_signals(),
        )
    return _start_by_fork(program, argv, env, slave_name)


def _resettable_signals() -> list[signal.Signals]:
    return [one for one in signal.Signals if one not in (signal.SIGKILL, signal.SIGSTOP)]


def _start_by_fork(program: str, argv: Sequence[str], env: Mapping[str, str], slave_name: str) -> int:
    """Do the same on systems where opening a terminal does not make it the controlling one."""
    report_read, report_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            slave = os.open(slave_name, os.O_RDWR)
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            for fd in (0, 1, 2):
                os.dup2(slave, fd)
            for one in _resettable_signals():
                signal.signal(one, signal.SIG_DFL)
            os.execve(program, list(argv), dict(env))
        except OSError as error:
            os.write(report_write, str(error.errno or errno.EIO).encode())
        finally:
            os._exit(127)
    os.close(report_write)
    with os.fdopen(report_read, "rb") as report:
        failure = report.read()
    if failure:
        os.waitpid(pid, 0)
        raise OSError(int(failure), os.strerror(int(failure)))
    return pid
