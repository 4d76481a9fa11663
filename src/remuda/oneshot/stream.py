"""The stream backend: the CLI's own `-p` with its stream of messages. Nothing to attach to, and nothing lost.

The prompt goes through standard input, which carries every byte; messages there are the CLI's to read, as
they come. The CLI dies with us, whatever kills us.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from remuda.agents.claude.environment import clean_environment
from remuda.errors import AgentRefused, CallFailed, WaitTimeout
from remuda.proctree import adopt_orphans, descendants, send_signal, with_variable
from remuda.untrusted import parse_json

from .guard import MARK, Guard
from .hang import StreamState
from .output import say
from .request import DEFAULT_TIMEOUT, Request

Message = dict[str, Any]
_GRACE = 1.8
_LONGEST_WAIT = 60.0
_PR_SET_PDEATHSIG = 1
_READ_BYTES = 1 << 16


class StreamCall:
    """`on_message` gets every message as it comes, the result too."""

    def __init__(
        self,
        request: Request,
        prompt: str,
        command: Sequence[str],
        note: Callable[[str], None],
        on_message: Callable[[Message], None],
    ) -> None:
        self._request = request
        self._prompt = prompt
        self._is_live = request.reads_messages
        self._note = note
        self._on_message = on_message
        self._argv = [
            *command,
            "-p",
            "--output-format",
            "stream-json",
            "--verbose",
            *_extra(request),
            *request.passed,
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._name = f"{os.getpid()}-{os.urandom(6).hex()}"
        self._begun = time.monotonic()
        self._exit_fd = -1
        self._adopts = False
        self._strangers: list[int] = []
        self._state = StreamState()
        self._timeout = DEFAULT_TIMEOUT if request.timeout is None else request.timeout

    def run(self) -> Message:
        """The result message. Raises `WaitTimeout`, `CallFailed`, and `FileNotFoundError` of the binary."""
        # A shell may have started some of its own before it became us: `remuda print … > >(tee log)`.
        self._strangers = descendants(os.getpid())
        self._adopts = adopt_orphans()
        parent = os.getpid()
        self._process = subprocess.Popen(
            self._argv,
            stdin=None if self._is_live else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**clean_environment(os.environ), MARK: self._name},
            preexec_fn=(lambda: _die_with(parent)) if sys.platform.startswith("linux") else None,
        )
        self._guard = self._make_guard(self._process)
        self._exit_fd = _exit_descriptor(self._process)
        self._note(f"started pid {self._process.pid}")
        result: Message | None = None
        heard = False
        for message in self._messages():
            if message.get("type") == "result":
                result = message
                self._check_refused(message, heard=heard)
            heard = True
            self._state.take(message)
            self._on_message(message)
        code = self._wait()
        if result is None and self._is_live and code == 0:  # its input ended before there was a message
            return {}
        if result is None:
            if not heard and code > 0 and self._stderr.strip():
                raise AgentRefused(self._complaint())
            how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
            raise CallFailed(f"the agent exited with {how} and without a result: {self._complaint()}")
        say(self._stderr.decode(errors="replace"))
        return result

    def _make_guard(self, process: subprocess.Popen[bytes]) -> Guard:
        assert process.stdout is not None
        assert process.stderr is not None
        output = process.stdout.fileno(), process.stderr.fileno()
        return Guard(self._name, process.pid, output)

    def _check_refused(self, result: Message, *, heard: bool) -> None:
        """An error before anything else. Only where it prints its stream does the CLI make a result of it."""
        errors = result.get("errors")
        if not heard and errors and self._request.output_format != "stream-json":
            raise AgentRefused(str(errors[0]))

    def _wait(self) -> int:
        """It has closed what it prints to, and has a moment to end."""
        assert self._process is not None
        while True:
            try:
                return self._process.wait(self._patience(heard=True))
            except subprocess.TimeoutExpired:
                self._check_time(heard=True)

    def _complaint(self) -> str:
        return self._stderr.decode(errors="replace").strip().rpartition("\n")[2] or "it printed no error"

    # ── talking ──

    def _messages(self) -> Iterator[Message]:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._stderr = b""
        pending, rest = memoryview(self._prompt.encode()), b""
        for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
            os.set_blocking(pipe.fileno(), False)
        reading = {process.stdout.fileno(), process.stderr.fileno()}
        first = True
        while reading:
            self._check_time(heard=not first)
            writing = [process.stdin.fileno()] if process.stdin and not process.stdin.closed else []
            # What it started may hold its pipes open when it has ended itself.
            alive = [self._exit_fd] if self._exit_fd >= 0 else []
            ready, writable, _ = select.select(
                [*reading, *alive], writing, [], self._patience(heard=not first)
            )
            if writable:
                pending = self._write(process, pending)
            if ready == alive != []:
                break
            for fd in (fd for fd in ready if fd in reading):
                data = _read(fd)
                if data is None:
                    continue
                if not data:
                    reading.discard(fd)
                elif fd == process.stderr.fileno():
                    self._stderr = (self._stderr + data)[-_READ_BYTES:]
                else:
                    first = False
                    *lines, rest = (rest + data).split(b"\n")
                    yield from _parsed(lines)
        yield from _parsed([rest])

    @staticmethod
    def _write(process: subprocess.Popen[bytes], pending: memoryview) -> memoryview:
        assert process.stdin is not None
        try:
            pending = pending[os.write(process.stdin.fileno(), pending[:_READ_BYTES]) :]
        except BlockingIOError:
            return pending
        except BrokenPipeError:
            pending = pending[:0]
        if not pending:
            process.stdin.close()
        return pending

    # ── time ──

    def _limits(self, *, heard: bool) -> dict[str, float]:
        limits = {"--timeout: not finished": self._timeout}
        if not heard and not self._is_live:  # nothing comes before a message does
            limits["--first-output-timeout: no output"] = self._request.first_output_timeout
            if self._request.output_format == "stream-json":
                limits["--stream-json-timeout: no message"] = self._request.stream_json_timeout
        return {what: limit for what, limit in limits.items() if limit}

    def _patience(self, *, heard: bool) -> float:
        limit = min(self._limits(heard=heard).values(), default=_LONGEST_WAIT)
        return min(_LONGEST_WAIT, max(0.0, self._begun + limit - time.monotonic()))

    def _check_time(self, *, heard: bool) -> None:
        for what, limit in self._limits(heard=heard).items():
            if time.monotonic() >= self._begun + limit:
                raise WaitTimeout(f"{what} after {limit:g} s: {self._state.why()}")

    def close(self) -> None:
        """Ends the CLI and all that it started, and nothing else; at most a little longer than the grace."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGHUP)  # at a TERM it waits for its tool for a while
            try:
                process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._exit_fd >= 0:
            os.close(self._exit_fd)
        if self._guard is not None:
            self._guard.dismiss()
        for pid in self._left():
            send_signal(pid, signal.SIGKILL)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()

    def _left(self) -> Iterator[int]:
        """What the CLI started; not the children that this process had before, nor theirs."""
        spared = {kin for one in self._strangers for kin in (one, *descendants(one))}
        yield from (pid for pid in descendants(os.getpid()) if pid not in spared)
        if not self._adopts:  # then orphans are told by their environment
            yield from with_variable(MARK, self._name)


def _exit_descriptor(process: subprocess.Popen[bytes]) -> int:
    """What can be read when it has ended."""
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(process.pid)
    ended, told = os.pipe()

    def wait() -> None:
        process.wait()
        os.close(told)

    threading.Thread(target=wait, daemon=True).start()
    return ended


def _extra(request: Request) -> list[str]:
    partial = ["--include-partial-messages"] if request.partial_messages else []
    return [*partial, *(["--setting-sources="] if request.inherit_hooks is False else [])]


def _read(fd: int) -> bytes | None:
    """None when there is nothing now, empty at the end."""
    try:
        return os.read(fd, _READ_BYTES)
    except BlockingIOError:
        return None


def _parsed(lines: list[bytes]) -> Iterator[Message]:
    for line in lines:
        try:
            message = parse_json(line)
        except ValueError:
            continue
        if isinstance(message, dict):
            yield message


def _die_with(parent: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGHUP)
    if os.getppid() != parent:  # it was gone before we asked
        os._exit(1)
