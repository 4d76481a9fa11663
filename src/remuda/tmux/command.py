"""Run tmux for one command, or for several in a row. Blocking; 2 ms each.

Such a run attaches to nothing, so that users do not see it. It never starts a server: some commands would
(list-keys, for one), so it first checks that a server listens.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from remuda.errors import (
    LocalProtocolError,
    PermissionRefused,
    TmuxError,
    TmuxGone,
    TmuxMissing,
    TmuxTargetGone,
    TmuxTooOld,
    WaitTimeout,
)
from remuda.paths import peer_uid

from .address import Address, check_version, surroundings, why_unsafe

TIMEOUT: Final = 5.0
"""tmux answers in a millisecond; a server that needs longer than this is stuck."""

_GONE: Final = (
    "no server running on",
    "error connecting to",
    "server exited",
    "lost server",
    "no sessions",
    "no current target",
    "no current session",
)
_MISMATCH: Final = ("protocol version mismatch", "server version is too old")


class TmuxResult(NamedTuple):
    code: int
    output: bytes
    complaint: str


class Tmux:
    """One tmux server, reached by blocking calls."""

    def __init__(self, address: Address, env: Mapping[str, str] | None = None) -> None:
        self.address = address
        self._env = surroundings(os.environ if env is None else env)

    def command(self, *words: str, timeout: float | None = TIMEOUT) -> list[str]:
        """Return the lines that a command prints, followed by what the user's tmux hooks on it print."""
        return _lines(self.output(words, timeout=timeout))

    def output(self, *commands: Sequence[str], stdin: bytes = b"", timeout: float | None = TIMEOUT) -> bytes:
        """Return the raw output of these commands. The first that fails ends the rest."""
        words = ["tmux", "-u", "-S", self.address.path, *arguments_of(*commands)]
        _check_listening(self.address)
        done = run(words, self._env, stdin=stdin, timeout=timeout)
        if done.code != 0:
            raise error_of(done.complaint, self.address)
        return done.output

    def rows(self, *words: str, fields: Sequence[str], timeout: float | None = TIMEOUT) -> list[list[str]]:
        """Run a command that lists things, and return the values of these formats for each.

        A random mark separates the values. So no title or folder name, whatever its characters, is read as
        the next value or the next row; nor is the output of a hook.
        """
        return self.tables((words, fields), timeout=timeout)[0]

    def tables(
        self, *requests: tuple[Sequence[str], Sequence[str]], timeout: float | None = TIMEOUT
    ) -> list[list[list[str]]]:
        """Return the rows of several commands, run at once."""
        marked = [(words, fields, new_mark()) for words, fields in requests]
        commands = [[*words, "-F", row_format(fields, mark)] for words, fields, mark in marked]
        output = self.output(*commands, timeout=timeout)
        return [cut_rows(output, fields, mark) for _, fields, mark in marked]


def arguments_of(*commands: Sequence[str]) -> list[str]:
    """Return one or more commands as arguments of one `tmux` call."""
    arguments: list[str] = []
    for words in commands:
        if not words or not words[0]:
            raise LocalProtocolError("a tmux command needs a name")
        if any("\0" in word for word in words):
            raise LocalProtocolError("a tmux command cannot hold a NUL byte")
        arguments += [*([";"] if arguments else []), *map(_escaped, words)]
    return arguments


def _escaped(word: str) -> str:
    """Escape a semicolon at the end of an argument, which tmux would read as the end of the command."""
    return word[:-1] + "\\;" if word.endswith(";") else word


def literal(text: str) -> str:
    """Escape text for a place where tmux expands formats, so that it is shown unchanged."""
    return text.replace("#", "##")


def _check_listening(address: Address) -> None:
    """Raise if no server of this user answers. Nothing is sent."""
    if (reason := why_unsafe(address)) is not None:
        raise _not_ours(address, reason)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
        try:
            knocking.connect(address.path)
            uid = peer_uid(knocking)
        except OSError as error:
            raise error_of(f"error connecting to {address.path} ({error.strerror})", address) from None
    if uid != os.getuid():
        raise _not_ours(address, f"uid {uid} listens there")


def _not_ours(address: Address, reason: str) -> TmuxGone:
    return TmuxGone(f"no tmux server of this user on {address.path}", hint=f"not used: {reason}")


def new_mark() -> str:
    return os.urandom(12).hex()


def row_format(fields: Sequence[str], mark: str) -> str:
    return "".join(f"{mark}:#{{{field}}}" for field in fields) + f"{mark}."


def cut_rows(output: bytes, fields: Sequence[str], mark: str) -> list[list[str]]:
    text = output.decode("utf-8", "surrogateescape")
    rows = [row.split(f"{mark}:")[1:] for row in text.split(f"{mark}.")[:-1]]
    if any(len(row) != len(fields) for row in rows):
        raise TmuxError("tmux sent a list that cannot be read")
    return rows


def _lines(output: bytes) -> list[str]:
    lines = output.decode("utf-8", "surrogateescape").split("\n")
    return lines[:-1] if not lines[-1] else lines


def error_of(complaint: str, address: Address) -> Exception:
    """Return the error that a message of tmux stands for."""
    text = complaint.strip() or "tmux failed and did not say why"
    if text.startswith("error connecting to") and text.endswith("(Permission denied)"):
        return PermissionRefused(f"tmux: {text}")
    if text.startswith(_GONE):
        return TmuxGone(f"no tmux server answers on {address.path}", hint=f"tmux says: {text}")
    if text.startswith(_MISMATCH):
        return TmuxTooOld(f"the tmux server has another version: {text}", hint="restart the server")
    if text.startswith("can't find "):
        return TmuxTargetGone(f"tmux: {text}")
    return TmuxError(f"tmux: {text}")


def installed_version(env: Mapping[str, str] | None = None) -> str:
    """Return the version that `tmux -V` prints, such as `3.3a`. Raises if tmux is missing or too old."""
    done = run(["tmux", "-V"], surroundings(os.environ if env is None else env))
    text = done.output.decode(errors="replace").strip()
    check_version(text)
    return text.removeprefix("tmux ")


# ── a process ──


def run(
    words: Sequence[str], env: Mapping[str, str], *, stdin: bytes = b"", timeout: float | None = TIMEOUT
) -> TmuxResult:
    """Run a program to its end, with `stdin` as its input. It is killed after `timeout` seconds."""
    pipes = [os.pipe() for _ in range(3)]
    (stdin_read, stdin_write), (out_read, out_write), (err_read, err_write) = pipes
    actions = [(os.POSIX_SPAWN_DUP2, fd, to) for to, fd in enumerate((stdin_read, out_write, err_write))]
    try:
        pid = os.posix_spawnp(words[0], list(words), dict(env), file_actions=actions)
    except OSError as error:
        _close(fd for pair in pipes for fd in pair)
        if isinstance(error, FileNotFoundError):
            raise TmuxMissing("tmux not found", hint="install it, or check PATH") from error
        raise TmuxError(f"cannot run tmux: {error.strerror}") from error
    _close((stdin_read, out_write, err_write))
    pipes_io = _PipeExchange(stdin_write, {out_read: bytearray(), err_read: bytearray()}, stdin)
    in_time = pipes_io.finish(None if timeout is None else time.monotonic() + timeout)
    if not in_time:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not in_time:
        raise WaitTimeout(f"tmux did not answer within {timeout:g} seconds")
    output, complaint = pipes_io.outputs.values()
    return TmuxResult(code, bytes(output), complaint.decode("utf-8", "replace"))


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


class _PipeExchange:
    """Writes all of the input and reads all of both outputs, whichever is ready."""

    def __init__(self, writer: int, outputs: dict[int, bytearray], stdin: bytes) -> None:
        self.outputs = outputs
        self._writer = writer
        self._rest = memoryview(stdin)
        self._poll = select.poll()
        self._open = {*outputs, writer}
        os.set_blocking(writer, False)
        self._poll.register(writer, select.POLLOUT)
        for fd in outputs:
            self._poll.register(fd, select.POLLIN)

    def finish(self, deadline: float | None) -> bool:
        """Run until the other side has closed all pipes. Returns False if the deadline came first."""
        while self._open:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                _close(self._open)
                return False
            for fd, _ in self._poll.poll(None if left is None else left * 1000):
                self._write() if fd == self._writer else self._read(fd)
        return True

    def _write(self) -> None:
        try:
            if self._rest:
                self._rest = self._rest[os.write(self._writer, self._rest) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._rest = self._rest[:0]
        if not self._rest:
            self._forget(self._writer)

    def _read(self, fd: int) -> None:
        data = os.read(fd, 1 << 16)
        self.outputs[fd] += data
        if not data:
            self._forget(fd)

    def _forget(self, fd: int) -> None:
        self._poll.unregister(fd)
        self._open.discard(fd)
        os.close(fd)
