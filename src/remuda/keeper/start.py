"""Start a keeper, and wait for its report: the session runs, or why it does not."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from remuda.agents import DEFAULT_AGENT, find_agent
from remuda.duration import check_seconds
from remuda.errors import SpawnFailed, SpawnTimeout, from_code
from remuda.readable import is_readable
from remuda.untrusted import parse_json

from .fork_server import find_server

if TYPE_CHECKING:
    from .prefork import Waiting
    from .spec import SessionSpec

DEFAULT_START_TIMEOUT = 30.0
_LONGEST_START = 1e6
"""`subprocess` waits by a system call that takes 24 days at most."""
_END_LIMIT = 10.0


class Started(NamedTuple):
    """The processes of a session that was started."""

    keeper_pid: int
    child_pid: int


class Attended(NamedTuple):
    """A session for one message, whose starter waits for its end."""

    started: Started
    news: int
    """Readable when there may be something to see; at its end when the keeper is gone."""
    lifeline: int = -1
    """The session ends when this is closed, by its owner or by the owner's end; -1 if it outlives the owner.
    """


def start_attended(
    spec: SessionSpec, timeout: float = DEFAULT_START_TIMEOUT, *, owned: bool = True
) -> Attended:
    """Start a session as `start_session` does. An owned one ends with its owner, in order."""
    if not owned:
        return Attended(*_start(spec, timeout, lifeline=None))
    read, write = os.pipe()
    try:
        return Attended(*_start(spec, timeout, lifeline=read), write)
    except BaseException:
        os.close(write)
        raise
    finally:
        os.close(read)


def hear_from(waiting: Waiting, name: str, timeout: float = DEFAULT_START_TIMEOUT) -> Attended:
    """Do as `start_attended`, for a keeper that was started early and has its specification."""
    report = _read_line(waiting.report, timeout)
    if report is None:
        raise _not_ready(name, timeout)
    return Attended(_read_report(report, name), waiting.report, waiting.lifeline)


def start_session(spec: SessionSpec, timeout: float = DEFAULT_START_TIMEOUT) -> Started:
    """Start a session and return when its socket answers.

    Raises what the keeper reports, and `SpawnTimeout` after `timeout` seconds. Nothing runs after an error.
    The keeper is not a child of the caller: it survives the caller's end, and that of its terminal.
    """
    started, news = _start(spec, timeout, lifeline=None)
    os.close(news)
    return started


def default_start_timeout(agent: str) -> float:
    """Return how long a session of this agent may take to start: longer if its server is started first."""
    if agent == DEFAULT_AGENT:  # it has none, and a short command does not load it
        return DEFAULT_START_TIMEOUT
    prompts = find_agent(agent).prompts
    if prompts is None or prompts.transport.kind != "call":
        return DEFAULT_START_TIMEOUT
    return DEFAULT_START_TIMEOUT + prompts.transport.start_timeout


def _start(spec: SessionSpec, timeout: float, *, lifeline: int | None) -> tuple[Started, int]:
    """Start a keeper, and return it with the socket of its report."""
    spec.check()
    timeout = min(check_seconds("timeout", timeout), _LONGEST_START)
    if timeout == DEFAULT_START_TIMEOUT:
        timeout = default_start_timeout(spec.agent)
    # Not a pipe: by a shutdown the keeper sees that we gave up, and we still see its end.
    ours, theirs = socket.socketpair()
    passed = (theirs.fileno(),) if lifeline is None else (theirs.fileno(), lifeline)
    server = find_server()
    report_read = ours.detach()
    group = None
    try:
        complaint: bytes | None = b""
        group = server.fork(spec, passed, timeout) if server is not None else None
        if is_slow := group is None:
            group, complaint = _start_slowly(spec, passed, timeout)
        theirs.close()
        report = _read_line(report_read, timeout) if complaint is not None else None
        if report is None and not (report := _give_up(report_read, group)):
            raise _not_ready(spec.name, timeout)
        started = _read_report(report, spec.name, complaint or b"")
    except BaseException as error:
        theirs.close()
        if isinstance(error, KeyboardInterrupt):
            _give_up(report_read, group)
        os.close(report_read)
        raise
    if server is not None and is_slow and not server.is_running and not spec.once:
        server.start()
    return started, report_read


def _start_slowly(spec: SessionSpec, passed: tuple[int, ...], timeout: float) -> tuple[int, bytes | None]:
    """Start a keeper with an interpreter of its own.

    Returns its process group, and what it printed to standard error before it left us; None if it did not in
    time.
    """
    import subprocess

    # -P: do not import a json.py from the user's folder.
    command = [sys.executable, "-P", "-m", "remuda.keeper", str(passed[0]), spec.name, *map(str, passed[1:])]
    starter = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=passed,
        start_new_session=True,
    )
    try:
        return starter.pid, starter.communicate(spec.to_json(), timeout)[1]
    except subprocess.TimeoutExpired:
        starter.kill()
        starter.communicate()
        return starter.pid, None


def _give_up(fd: int, group: int | None) -> bytes:
    """End the keeper, and wait for that. Returns its report if one was on its way, else nothing.

    `group` is its process group, if it is known. A keeper that does not react is killed.
    """
    with socket.socket(fileno=os.dup(fd)) as ours:
        ours.shutdown(socket.SHUT_WR)
    report = _read_line(fd, _END_LIMIT)
    if report is None and group is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        report = _read_line(fd, _END_LIMIT)
    return report or b""


def _not_ready(name: str, timeout: float) -> SpawnTimeout:
    return SpawnTimeout(f"session '{name}' was not ready within {timeout:g} s")


def _read_report(data: bytes, name: str, complaint: bytes = b"") -> Started:
    if not data:
        last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
        raise SpawnFailed(f"the keeper of '{name}' ended while starting{': ' + last if last else ''}")
    report: dict[str, Any] = parse_json(data, keep_surrogates=True)
    if not report["ok"]:
        raise from_code(report["code"], report["message"], report["hint"])
    return Started(report["pid"], report["child_pid"])


def _read_line(fd: int, timeout: float) -> bytes | None:
    """Return the first line, or everything written before the last writer closes; None after the timeout."""
    deadline = time.monotonic() + timeout
    data = b""
    while b"\n" not in data:
        if not is_readable(fd, max(0.0, deadline - time.monotonic())):
            return None
        piece = os.read(fd, 65536)
        if not piece:
            break
        data += piece
    return data.partition(b"\n")[0]
