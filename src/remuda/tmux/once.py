"""A tmux that is run for one command, or for several in a row. Blocking; 2 ms each.

Nobody sees it: it attaches to nothing. It never starts a server: some commands would (list-keys, for one), so
that it first looks whether one is there.
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
from .protocol import arguments_of

TIMEOUT: Final = 5.0
"""tmux answers in a millisecond; one that does not in this time is stuck."""

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


class Done(NamedTuple):
    code: int
    output: bytes
    complaint: str


class Tmux:
    """One server, asked by blocking calls."""

    def __init__(self, address: Address, env: Mapping[str, str] | None = None) -> None:
        self.address = address
        self._env = surroundings(os.environ if env is None else env)

    def command(self, *words: str, timeout: float | None = TIMEOUT) -> list[str]:
        """What a command prints, line by line; and behind it what a hook of the user's on it prints."""
        return _lines(self.output(words, timeout=timeout))

    def output(self, *commands: Sequence[str], stdin: bytes = b"", timeout: float | None = TIMEOUT) -> bytes:
        """What these commands print, as it is. The first that fails ends them all."""
        words = ["tmux", "-u", "-S", self.address.path, *arguments_of(*commands)]
        _knock(self.address)
        done = run(words, self._env, stdin=stdin, timeout=timeout)
        if done.code != 0:
            raise error_of(done.complaint, self.address)
        return done.output

    def rows(self, *words: str, fields: Sequence[str], timeout: float | None = TIMEOUT) -> list[list[str]]:
        """A command that lists, with these formats for each thing it lists.

        What stands between the values cannot be guessed, so that no title and no folder's name, with whatever
        characters, is taken for the next value or the next thing; nor is what a hook prints.
        """
        return self.tables((words, fields), timeout=timeout)[0]

    def tables(
        self, *requests: tuple[Sequence[str], Sequence[str]], timeout: float | None = TIMEOUT
    ) -> list[list[list[str]]]:
        """The rows of several commands at once."""
        marked = [(words, fields, new_mark()) for words, fields in requests]
        commands = [[*words, "-F", row_format(fields, mark)] for words, fields, mark in marked]
        output = self.output(*commands, timeout=timeout)
        return [cut_rows(output, fields, mark) for _, fields, mark in marked]


def _knock(address: Address) -> None:
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
    """The error that tmux's own words mean."""
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
    """What `tmux -V` says, `3.3a`. Raises if there is none, or an old one."""
    done = run(["tmux", "-V"], surroundings(os.environ if env is None else env))
    text = done.output.decode(errors="replace").strip()
    check_version(text)
    return text.removeprefix("tmux ")


# ── a process ──


def run(
    words: Sequence[str], env: Mapping[str, str], *, stdin: bytes = b"", timeout: float | None = TIMEOUT
) -> Done:
    """Run it to its end. What it wants to read is given from memory; it is killed when its time is over."""
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
    talk = _Talk(stdin_write, {out_read: bytearray(), err_read: bytearray()}, stdin)
    in_time = talk.finish(None if timeout is None else time.monotonic() + timeout)
    if not in_time:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not in_time:
        raise WaitTimeout(f"tmux did not answer within {timeout:g} seconds")
    output, complaint = talk.heard.values()
    return Done(code, bytes(output), complaint.decode("utf-8", "replace"))


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


class _Talk:
    """Writes all of one thing and reads all of two, whichever can go on."""

    def __init__(self, writer: int, heard: dict[int, bytearray], stdin: bytes) -> None:
        self.heard = heard
        self._writer = writer
        self._rest = memoryview(stdin)
        self._poll = select.poll()
        self._open = {*heard, writer}
        os.set_blocking(writer, False)
        self._poll.register(writer, select.POLLOUT)
        for fd in heard:
            self._poll.register(fd, select.POLLIN)

    def finish(self, deadline: float | None) -> bool:
        """Until the other side has closed all. False if the deadline came first."""
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
        self.heard[fd] += data
        if not data:
            self._forget(fd)

    def _forget(self, fd: int) -> None:
        self._poll.unregister(fd)
        self._open.discard(fd)
        os.close(fd)
