"""Commands of ours are forked from a process that has loaded them: an interpreter of its own costs 100 ms.

`install` replaces `subprocess.Popen` in this process. A command `python -m remuda …` is then run by a fork of
the loader, if nothing of the caller's could make a difference: variables of the interpreter, limits, files in
its folder that could be imported. Every other command, and every other option, is run as always. Commands and
bosses that a forked command starts are forked from the same loader. A test of what a process loads has to use
`paused`.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import io
import json
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from remuda.keeper.fork_server import interpreter_variables, read_exactly, surroundings

_MODULES = {"remuda": "remuda.__main__", "remuda.boss": "remuda.boss.__main__"}
_LENGTH = struct.Struct("!I")
_ABOVE = 400
"""Descriptors that were received are moved above this number, and then to where the command expects them."""
_WORTH = 3
"""From which command with the same variables on a loader is started for them."""
_MOST = 2
"""Loaders of one process: each takes seconds to load."""


# ── the caller ──


class _Loader(NamedTuple):
    """A process that has loaded our commands: where it takes requests."""

    path: str
    pid: int


class _OwnLoader:
    """A loader of this process, with these variables of the interpreter."""

    def __init__(self, variables: dict[str, str]) -> None:
        self._folder = tempfile.mkdtemp(prefix="rmd-forks-", dir="/tmp")
        path = f"{self._folder}/socket"
        reading, writing = os.pipe()
        env = {**os.environ, **variables}
        env = {name: env[name] for name in env if name in variables or name in ("PATH", "REMUDA_TEST_RUN")}
        self._process = _Popen(
            [sys.executable, "-P", __file__, path, str(writing)],
            env={**env, "PYTHONPATH": os.pathsep.join(filter(None, (str(_TESTS), env.get("PYTHONPATH"))))},
            cwd="/",
            stdin=subprocess.DEVNULL,
            pass_fds=[writing],
            start_new_session=True,
        )
        os.close(writing)
        with open(reading) as ready:
            assert ready.read() == "ready"
        self.loader = _Loader(path, int(self._process.pid))

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        import shutil

        shutil.rmtree(self._folder, ignore_errors=True)


_TESTS = Path(__file__).parents[1]
_Popen: Any = subprocess.Popen
_lock = threading.Lock()
_own: list[_OwnLoader] = []
_loaders: dict[str, _Loader] = {}
"""By locale."""
_seen: Counter[str] = Counter()
_usual: dict[str, str] = {}
_starts = threading.Event()
"""Whether this process starts loaders."""
_starts.set()
_paused = threading.Event()


def install(loader: _Loader | None = None) -> None:
    """Fork commands from now on: from that loader only, or from those that are started when needed."""
    subprocess.Popen = ForkingPopen  # type: ignore[misc]
    _usual.update(_without_locale(os.environ))
    if loader is not None:
        _loaders[os.environ.get("LC_ALL", "")] = loader
        _starts.clear()


def close() -> None:
    """End the loaders."""
    for one in _own:
        one.close()
    _own.clear()
    _loaders.clear()


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Run every command with an interpreter of its own, which has loaded only what it needs."""
    _paused.set()
    yield
    _paused.clear()


def _without_locale(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in interpreter_variables(env).items() if name != "LC_ALL"}


def _module_of(words: list[str]) -> str | None:
    """Return the module of a command of ours."""
    at = 2 if words[1:2] == ["-P"] else 1
    is_ours = words[:1] == [sys.executable] and words[at : at + 1] == ["-m"] and words[at + 1] in _MODULES
    return words[at + 1] if is_ours else None


def _find_loader(env: dict[str, str], folder: str) -> _Loader | None:
    """Return the loader for a command; None if it has to be run as always."""
    if _paused.is_set() or _without_locale(env) != _usual:
        return None
    locale = env.get("LC_ALL", "")
    with _lock:
        _seen[locale] += 1
        if _starts.is_set() and _seen[locale] == _WORTH and len(_own) < _MOST:
            _own.append(_OwnLoader(interpreter_variables(env)))
            _loaders[locale] = _own[-1].loader
        loader = _loaders.get(locale)
    if loader is None or not _is_bare(folder) or surroundings(loader.pid) != surroundings(os.getpid()):
        return None
    return loader


def _is_bare(folder: str) -> bool:
    """Return whether nothing in the folder could be imported instead of a module of ours or Python's."""
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    return not any(
        name.endswith((".py", ".so")) or os.path.exists(f"{folder}/{name}/__init__.py") for name in names
    )


class ForkingPopen(_Popen):  # type: ignore[misc]
    """As `subprocess.Popen`. `_status` is where the loader reports the end; None for a process of our own."""

    _status: socket.socket | None = None

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, *rest: Any) -> None:
        (close_fds, pass_fds, cwd, env, _, _, shell), pipes = rest[:7], rest[7:13]
        (_, gid, gids, uid, umask, new_session, group) = rest[13:]
        options = (executable, preexec_fn, shell, gid, gids, uid, umask, group, close_fds)
        is_usual = options == (None, None, False, None, None, None, -1, -1, True)
        words = [os.fsdecode(word) for word in args] if isinstance(args, list | tuple) and is_usual else []
        env = dict(os.environ) if env is None else {os.fsdecode(key): os.fsdecode(env[key]) for key in env}
        folder = os.path.abspath(os.fsdecode(cwd or "."))
        request = {
            "words": words,
            "env": env,
            "cwd": folder,
            "targets": [0, 1, 2, *pass_fds],
            "new_session": bool(new_session),
        }
        # asyncio waits for its processes by their number.
        is_awaited = sys._getframe(2).f_globals.get("__name__", "").startswith("asyncio")
        if _module_of(words) and not is_awaited and (loader := _find_loader(env, folder)):
            standard = [fd if fd >= 0 else number for number, fd in enumerate(pipes[:1] + pipes[3::2])]
            self._fork(loader, request, [*standard, *pass_fds])
            self._close_pipe_fds(*pipes)
        else:
            super()._execute_child(args, executable, preexec_fn, *rest)

    def _fork(self, loader: _Loader, request: dict[str, Any], descriptors: list[int]) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(loader.path)
        data = json.dumps(request).encode()
        socket.send_fds(connection, [_LENGTH.pack(len(data))], descriptors)
        connection.sendall(data)
        self.pid = _LENGTH.unpack(read_exactly(connection, _LENGTH.size))[0]
        self._child_created = True
        self._status = connection

    def _take_status(self, timeout: float | None) -> bool:
        """Return whether the process has ended."""
        if self._status is None:  # another thread was first
            return True
        waiter = select.poll()
        waiter.register(self._status, select.POLLIN)
        if not waiter.poll(None if timeout is None else max(0.0, timeout) * 1000):
            return False
        status = _LENGTH.unpack(read_exactly(self._status, _LENGTH.size))[0]
        self._status.close()
        self._status = None
        self._handle_exitstatus(status)
        return True

    def __del__(self, *args: Any, **more: Any) -> None:
        if self._status is not None:
            self._status.close()
            self._status = None
        super().__del__(*args, **more)

    def _is_given_up(self) -> bool:
        """Return whether its caller said how it ended, so as not to wait for it."""
        return self.returncode is not None

    def _internal_poll(self, *args: Any, **more: Any) -> int | None:
        if self._status is None or self._is_given_up():
            return super()._internal_poll(*args, **more)  # type: ignore[no-any-return]
        with self._waitpid_lock:
            self._take_status(0.0)
        return self.returncode  # type: ignore[no-any-return]

    def _wait(self, timeout: float | None) -> int:
        if self._status is None or self._is_given_up():
            return super()._wait(timeout)  # type: ignore[no-any-return]
        with self._waitpid_lock:
            if not self._take_status(timeout):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return self.returncode  # type: ignore[no-any-return]


# ── the loader ──


def _load() -> None:
    """Load every module of ours: a command that is forked loads nothing."""
    import importlib
    import pkgutil

    import remuda

    for module in pkgutil.walk_packages(remuda.__path__, "remuda."):
        if module.name.endswith("__main__") and module.name not in _MODULES.values():
            continue
        with contextlib.suppress(ImportError):
            importlib.import_module(module.name)


def _serve(path: str, ready: int) -> tuple[socket.socket, dict[str, Any], list[int]]:
    """Fork a process for each request. Returns in that process."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(64)
    _load()
    gc.collect()
    gc.freeze()
    os.write(ready, b"ready")
    os.close(ready)
    running: dict[int, tuple[int, socket.socket]] = {}
    waiter = select.poll()
    waiter.register(listener, select.POLLIN)
    while True:
        for fd, _ in waiter.poll():
            if fd in running:
                pid, connection = running.pop(fd)
                waiter.unregister(fd)
                os.close(fd)
                status = os.waitpid(pid, 0)[1]
                with contextlib.suppress(OSError), connection:
                    connection.sendall(_LENGTH.pack(status))
                continue
            connection, _ = listener.accept()
            header, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, 32)
            request = json.loads(read_exactly(connection, _LENGTH.unpack(header)[0]))
            if (pid := os.fork()) == 0:
                return connection, request, list(descriptors)
            for received in descriptors:
                os.close(received)
            pidfd = os.pidfd_open(pid)
            running[pidfd] = pid, connection
            waiter.register(pidfd, select.POLLIN)
            with contextlib.suppress(OSError):
                connection.sendall(_LENGTH.pack(pid))


def _run(loader: _Loader, request: dict[str, Any], descriptors: list[int]) -> None:
    from remuda.proctree import close_all_but

    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, _ABOVE) for fd in descriptors]
    close_all_but(*moved)
    for fd, target in zip(moved, request["targets"], strict=True):
        os.dup2(fd, target, inheritable=True)
        os.close(fd)
    if request["new_session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    os.chdir(request["cwd"])
    install(loader)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        setattr(sys, name, _stream(number, getattr(sys, name)))
        setattr(sys, f"__{name}__", getattr(sys, name))
    import importlib

    words = request["words"]
    asked = _module_of(words)
    assert asked is not None
    module = importlib.import_module(_MODULES[asked])
    sys.orig_argv[:] = words
    sys.argv[:] = [str(module.__file__), *words[words.index(asked) + 1 :]]
    sys.path[:] = [one for one in sys.path if one != str(_TESTS)]
    if "-P" not in words[:2]:
        sys.path.insert(0, request["cwd"])
    try:
        sys.exit(module.main())
    except SystemExit as ended:
        _exit(ended)
    except BaseException:  # noqa: BLE001  # as the interpreter does
        sys.excepthook(*sys.exc_info())
        _exit(SystemExit(1))


def _exit(ended: SystemExit) -> None:
    """End as the interpreter does, but do not take apart what was loaded: that takes longer than the rest."""
    code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    if isinstance(ended.code, str):
        print(ended.code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError as error:
            if stream is sys.stdout:
                code = 120
                sys.__stderr__ and print(f"Exception ignored: {error}", file=sys.__stderr__)
    os._exit(code)


def _stream(number: int, before: Any) -> io.TextIOWrapper:
    """As the interpreter opens it."""
    raw = io.FileIO(number, "w" if number else "r", closefd=False)
    buffer = io.BufferedWriter(raw) if number else io.BufferedReader(raw)
    lines = number == 2 or os.isatty(number)
    return io.TextIOWrapper(buffer, encoding=before.encoding, errors=before.errors, line_buffering=lines)


if __name__ == "__main__":
    _own_loader = _Loader(sys.argv[1], os.getpid())
    _connection, _request, _descriptors = _serve(_own_loader.path, int(sys.argv[2]))
    _connection.close()
    _run(_own_loader, _request, _descriptors)
