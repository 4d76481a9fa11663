"""A process that is ready to fork keepers: a session starts in a fraction of the time. Linux only.

Loading a keeper's modules takes most of the time of a start. The fork server has loaded them. It is started
after a session had to be started the slow way, and ends when no one has needed it for a minute or when our
files have changed. It reads no request itself: each connection is served by a process that it forks, which
becomes the keeper. So it holds no session and no secret, and its keepers share its memory.

A keeper from here has to be what it would be if the caller had started it. So there is a fork server for each
set of surroundings: every tab of a terminal and every login may have a cgroup of its own. A caller uses one
only if both still have the same, and if no other process would have adopted the keeper (`_would_adopt`,
`find_server`). In every other case, and in a sandbox, the session is started the slow way.

    caller                      fork server
    connects                    forks twice
                                the new process sends its process group and surroundings
    sends descriptors, request  becomes the keeper, and reports as any other
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import sys
import time

from remuda.errors import RemudaError
from remuda.paths import SocketAddress, connect_own, home, peer_uid, private_folder
from remuda.readable import is_readable

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from .spec import SessionSpec

    Files = dict[str, tuple[int, ...]]

IDLE_LIMIT = 60.0
_ANSWER_LIMIT = 2.0
"""Seconds to wait for the forked process; after that the slow way is quicker."""
_BACKLOG = 64
_LENGTH = struct.Struct("!I")
_GREETING = struct.Struct("!I32s")
# They change how an interpreter loads or works, so they have to be the same from its start.
_INTERPRETER_VARIABLES = ("PYTHON", "LD_", "LC_", "LANG", "GLIBC_", "MALLOC_", "COVERAGE_")
_STATUS = (
    "Umask",
    "Uid",
    "Gid",
    "Groups",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
    "NoNewPrivs",
    "Seccomp",
    "Seccomp_filters",
    "THP_enabled",
    "Cpus_allowed",
    "Mems_allowed",
)
_RIGHTS = tuple(name for name in _STATUS if name.startswith(("Uid", "Gid", "Gr", "Cap", "NoNew", "Seccomp")))
_FILES = ("cgroup", "limits", "oom_score_adj", "personality", "loginuid", "sessionid", "attr/current")
_PROCESS_FILES = ("coredump_filter", "timerslack_ns")
"""Those that a thread does not have."""
_NICE, _REALTIME_PRIORITY, _SCHEDULING_POLICY = 16, 37, 38
_KEEPER, _FORKED = ["-P", "-m", "remuda.keeper"], ["-P", "-m", "remuda.keeper.fork_server"]
_SUPERVISOR = "/remuda/supervised/supervisor.py"
_ALWAYS_IGNORED = {signal.SIGPIPE, signal.SIGXFSZ}  # by every interpreter


# ── the caller ──


class ForkServer:
    """The fork server of this user, interpreter and version, with our surroundings, as a caller sees it."""

    def __init__(self) -> None:
        self._ours = _fingerprint()
        self.path = _folder() / _socket_name(self._ours)
        self.is_running = False
        """Whether one answered, even if it could not be used."""

    def fork(self, spec: SessionSpec, descriptors: Sequence[int], timeout: float) -> int | None:
        """Start a keeper. Returns its process group; None if it has to be started the slow way."""
        try:
            connection = connect_own(self.path)
        except OSError:
            return None
        self.is_running = True
        if connection is None:
            return None
        with connection:
            try:
                if not _would_adopt(_parent(_peer_pid(connection))):
                    return None
                connection.settimeout(_ANSWER_LIMIT)
                group, theirs = _GREETING.unpack(read_exactly(connection, _GREETING.size))
                if self._ours != theirs:
                    return None
                request = _request(spec)
                connection.settimeout(timeout)  # it reads: from here on it is the keeper
                socket.send_fds(connection, [_LENGTH.pack(len(request))], descriptors)
                connection.sendall(request)
            except (OSError, EOFError):
                return None  # without a complete request nothing is started
            return int(group)

    def start(self) -> None:
        """Start one for the next sessions. A shell starts it and ends, so it is not our child."""
        import subprocess

        command = [sys.executable, "-P", "-m", "remuda.keeper.fork_server", str(self.path)]
        try:
            private_folder(self.path.parent)
            subprocess.run(
                ["/bin/sh", "-c", '"$@" &', "sh", *command],
                env=interpreter_variables(os.environ),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                check=False,
            )
        except (OSError, RemudaError):  # the session runs, and the next one starts the slow way too
            pass


def find_server() -> ForkServer | None:
    """Return where a keeper may come from. None on other systems, in a session, and in a sandbox."""
    if not sys.platform.startswith("linux") or "REMUDA_SESSION" in os.environ:
        return None
    try:
        return None if may_be_in_sandbox() else ForkServer()
    except OSError:  # our surroundings cannot be read
        return None


def may_be_in_sandbox() -> bool:
    """Return whether a program may have restricted us by Landlock, or by a filter of system calls.

    The kernel does not show these rules, so two sandboxes look alike. Of all users but root it demands
    `NoNewPrivs` for both.
    """
    return "\nNoNewPrivs:\t1\n" in _read("/proc/thread-self/status")


def _folder() -> Path:
    from pathlib import Path

    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    try:
        is_ours = os.path.isabs(runtime) and os.stat(runtime).st_uid == os.getuid()
    except OSError:
        is_ours = False
    return Path(runtime, "remuda") if is_ours else home()  # `sudo -E` keeps the one of the user before


def _socket_name(surroundings: bytes) -> str:
    """Return a name that is different for all surroundings, interpreters, versions, copies of our package."""
    from remuda._version import __version__
    from remuda.digest import sha256

    variables = sorted(interpreter_variables(os.environ).items())
    parts = [sys.executable, sys.version, os.path.abspath(__file__), __version__, *map("=".join, variables)]
    return f"keepers-{sha256(surroundings + os.fsencode(chr(0).join(parts)))[:16]}.sock"


def interpreter_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that change how an interpreter loads or works. HOME may have packages."""
    has_user_packages = getattr(sys.modules.get("site"), "ENABLE_USER_SITE", True)
    names = (*_INTERPRETER_VARIABLES, *(("HOME",) if has_user_packages else ()))
    return {name: value for name, value in env.items() if name.startswith(names)}


def _would_adopt(pid: int) -> bool:
    """Return whether this process, which adopted the fork server, would adopt our orphans too.

    A process that adopts orphans may end them. Keepers and supervisors do, and a program below them may have
    lost its environment.
    """
    if pid == os.getpid():  # we adopt them ourselves
        return True
    for ancestor in _ancestors():
        if ancestor == pid:
            return True
        words = _read(f"/proc/{ancestor}/cmdline").split("\0")
        if words[1:4] in (_KEEPER, _FORKED) or any(word.endswith(_SUPERVISOR) for word in words[1:4]):
            return False
    return False


def _parent(pid: int) -> int:
    return int(_fields(pid)[1])


def _ancestors() -> Iterator[int]:
    """Yield our ancestors, at last 1, which adopts all others.

    It does so too if the last one has the parent 0: one of another pid namespace, as after `docker exec`.
    """
    pid = os.getppid()
    while pid > 1:
        yield pid
        pid = _parent(pid)
    yield 1


def _fingerprint() -> bytes:
    """Return the surroundings in short. Each process reads its own: Yama keeps some from others."""
    from remuda.digest import sha256

    return bytes.fromhex(sha256(repr(surroundings()).encode(errors="surrogateescape")))


def surroundings(process: int | str = "thread-self") -> tuple[object, ...]:
    """Return what a process passes on to its children: namespaces, cgroup, limits, rights, priority.

    Some belong to a thread.
    """
    base = f"/proc/{process}"
    status = _status(base)
    fields = _fields(process)
    owner = "/proc/self" if process == "thread-self" else base
    paths = [*(f"{base}/{name}" for name in _FILES), *(f"{owner}/{name}" for name in _PROCESS_FILES)]
    return (
        [os.readlink(f"{base}/ns/{name}") for name in sorted(os.listdir(f"{base}/ns"))],
        _root(base),
        [status.get(name) for name in _STATUS],
        [_read(path) for path in paths if os.path.exists(path)],
        [fields[number] for number in (_NICE, _REALTIME_PRIORITY, _SCHEDULING_POLICY)],
    )


def _status(base: str) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in _read(f"{base}/status").splitlines() if ":\t" in line)


def _root(base: str) -> tuple[int, int, list[str]]:
    """Return which folder is the root. Its path does not tell: all see their own as /, also after chroot(2).

    A bind mount of a root is the same folder, and other things may be mounted in it.
    """
    fd = os.open(f"{base}/root", os.O_PATH | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        lines = _read(f"/proc/thread-self/fdinfo/{fd}").splitlines()
        return status.st_dev, status.st_ino, [one for one in lines if one.startswith("mnt_id:")]
    finally:
        os.close(fd)


def _fields(process: int | str) -> list[str]:
    """Return the fields of /proc/PID/stat after the name of the program, which may hold anything."""
    return _read(f"/proc/{process}/stat").rpartition(")")[2].split()


def _read(path: str) -> str:
    try:
        with open(path, errors="surrogateescape") as file:
            return file.read()
    except OSError:
        if path.endswith("attr/current"):  # there is none without a security module
            return ""
        raise


def _has_our_rights(pid: int) -> bool:
    """Return whether a caller may do what we may, by what all may read of it.

    A caller compares more, but in a sandbox or a container it may be a program that skips this, to get out.
    """
    try:
        return _rights(pid) == _rights(os.getpid())
    except OSError:  # it has ended, or is in a pid namespace that we do not see
        return False


def _rights(pid: int) -> tuple[object, ...]:
    status = _status(f"/proc/{pid}")
    depth = len(status.get("NSpid", "").split())  # pid namespaces below ours
    return depth, [status.get(name) for name in _RIGHTS], _read(f"/proc/{pid}/cgroup")


def _peer_pid(connection: socket.socket) -> int:
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])


def _request(spec: SessionSpec) -> bytes:
    import json

    request = {
        "spec": spec.to_json().decode(),
        "env": dict(os.environ),
        "ignored": [one for one in signal.valid_signals() if signal.getsignal(one) == signal.SIG_IGN],
        "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    }
    return json.dumps(request).encode()


# ── the server ──


def main() -> None:
    from pathlib import Path

    from remuda import lockfile

    path = Path(sys.argv[1])
    os.chdir("/")
    _set_signals((), ())  # not those of the caller, nor of its shell
    if path.name != _socket_name(_fingerprint()):  # a relative PYTHONPATH leads to another package
        return
    if _has_io_class():
        return
    lock_path = path.with_suffix(".lock")
    lock = lockfile.acquire(lock_path, lambda _: True)
    if lock is None:
        return
    listener = _listen(path)
    _remove_stale(path.parent)
    files = _load()
    if (connection := _serve(listener, files)) is None:
        if lockfile.is_at(lock, lock_path):  # else the folder was removed, and the next one may be there
            path.unlink(missing_ok=True)
            lock_path.unlink(missing_ok=True)
        return
    listener.close()
    os.close(lock)
    sys.exit(_become_keeper(connection))


def _has_io_class() -> bool:
    """Return whether a program such as `ionice` gave us a class, which all keepers would have.

    A session that is started with a class may so lose it: reading its own would take a caller 3 ms.
    """
    import ctypes

    number = {"x86_64": 252, "aarch64": 31, "riscv64": 31}.get(os.uname().machine)
    return number is not None and ctypes.CDLL(None).syscall(number, 1, 0) >> 13 > 0


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path.unlink(missing_ok=True)  # of one that was killed: we have the lock
    with SocketAddress(path) as address:
        listener.bind(address)
    return listener


def _remove_stale(folder: Path) -> None:
    """Remove the files of servers that were killed. Surroundings seldom come again, and their names neither.

    A server that creates its lock at this moment may end because of this; the next start brings another.
    """
    from remuda import lockfile

    for lock_path in folder.glob("keepers-*.lock"):
        with contextlib.suppress(OSError):
            fd = os.open(lock_path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if lockfile.try_lock(fd) and lockfile.is_at(fd, lock_path):  # ours is locked too
                    lock_path.with_suffix(".sock").unlink(missing_ok=True)
                    lock_path.unlink()
            finally:
                os.close(fd)


def _load() -> Files:
    """Load what a keeper needs. Returns the files, and how to see that they have changed."""
    import gc

    from .process import load_asyncio

    load_asyncio()
    import shutil  # noqa: F401

    from remuda.agents import DEFAULT_AGENT, PLAIN_AGENTS, find_agent, warm  # noqa: F401
    from remuda.names import is_name
    from remuda.terminal.screen import open_screen

    from . import call, companion, emit, hidden, history, logfile, loop, main, survivors  # noqa: F401

    is_name("a")  # compiles the expression
    for name in (DEFAULT_AGENT, *PLAIN_AGENTS):
        agent = find_agent(name)
        _ = agent.hooks
        if (prompts := agent.prompts) is not None:  # load what they load when they are first used
            prompts.dialog([])
            prompts.past([], "", 0.0)
            prompts.limited_for("", 0.0)
    if screen := open_screen(80, 24):  # loads the engine
        screen.close()
    paths = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    paths |= {line.split(maxsplit=5)[5] for line in _read("/proc/self/maps").splitlines() if "/" in line}
    files = {}
    for path in filter(None, paths):
        with contextlib.suppress(OSError):
            files[path] = _state(path)
    gc.collect()
    gc.freeze()  # so that no collection writes to memory that is shared
    return files


def _state(path: str) -> tuple[int, ...]:
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _is_current(files: Files) -> bool:
    try:
        return all(_state(path) == before for path, before in files.items())
    except OSError:
        return False


def _serve(listener: socket.socket, files: Files) -> socket.socket | None:
    """Fork a process for each connection: there this returns the connection, and here None at the end."""
    listener.listen(_BACKLOG)  # not earlier: a caller would wait until all is loaded
    while is_readable(listener.fileno(), IDLE_LIMIT):
        connection, _ = listener.accept()
        with connection:
            if not _is_current(files):
                return None
            if peer_uid(connection) == os.getuid() and (pid := os.fork()):
                os.waitpid(pid, 0)
            elif peer_uid(connection) == os.getuid():
                return _detached(connection.dup())
    return None


def _detached(connection: socket.socket) -> socket.socket:
    """Leave the fork server, as a keeper leaves its starter: in a process session that it does not lead."""
    os.setsid()
    if os.fork():
        os._exit(0)
    return connection


def greeting() -> bytes:
    return _GREETING.pack(os.getpgrp(), _fingerprint())


def _become_keeper(connection: socket.socket) -> int:
    from remuda.untrusted import parse_json

    from .process import StartReport, run_keeper, settle
    from .spec import SessionSpec

    with connection:
        if not _has_our_rights(_peer_pid(connection)):
            return 0
        connection.sendall(greeting())
        header, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, 2)
        if not header:  # the caller has chosen the slow way
            return 0
        for fd in descriptors:
            os.set_inheritable(fd, False)  # in Python 3.11 the function ignores the flag for this
        header += read_exactly(connection, _LENGTH.size - len(header))
        data = read_exactly(connection, _LENGTH.unpack(header)[0])
    request = parse_json(data, keep_surrogates=True)
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    _set_signals(request["ignored"], request["blocked"])
    spec = SessionSpec.from_json(request["spec"].encode())
    _show_as("-m", "remuda.keeper", str(descriptors[0]), spec.name)
    settle()
    return run_keeper(spec, StartReport(descriptors[0]), descriptors[1] if descriptors[1:] else None)


def _set_signals(ignored: Collection[int], blocked: Collection[int]) -> None:
    for one in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        is_ignored = one in ignored or one in _ALWAYS_IGNORED
        signal.signal(one, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _show_as(*words: str) -> None:
    """Change the command that `ps` shows, which is the fork server's, after the first two words."""
    fields = _fields(os.getpid())
    start, end = int(fields[45]), int(fields[46])
    shown = b"\0".join(os.fsencode(word) for word in (sys.orig_argv[0], sys.orig_argv[1], *words))
    with contextlib.suppress(OSError), open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        memory.write(shown[: end - start - 1].ljust(end - start, b"\0"))


def read_exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(min(count - len(data), 1 << 20))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


if __name__ == "__main__":
    main()
