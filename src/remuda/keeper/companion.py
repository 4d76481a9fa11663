"""The process that serves an agent's calls: started before the agent, again when it died, ended with it.

It is a child of the keeper. On Linux the kernel ends it with its keeper, also with one that is killed: a
server that went on alone would hold the session's name, and run turns that no one follows. Its output is
read, so that it never has to wait for us. The end of it is kept for the message of a failed start.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from remuda.agents.base import CallTransport, LaunchContext
from remuda.agents.prompting import CallAddress
from remuda.errors import SpawnFailed
from remuda.frozen import replaced
from remuda.proctree import is_alive, send_signal, start_ticks
from remuda.readable import is_readable
from remuda.terminal.pty import check_folder, resolve_program

from .begin import write_private

_PR_SET_PDEATHSIG = 1
_OUTPUT_BYTES = 65536
_LOOK_INTERVAL = 0.05
_SHOWN_CHARACTERS = 400


class CompanionProcess:
    """`env` is added to the environment of each process that is started."""

    def __init__(self, transport: CallTransport, context: LaunchContext, env: Mapping[str, str]) -> None:
        self._transport = transport
        self._context = context
        self._env = env
        self._output = b""
        self.fd = -1
        """Where its output is read; -1 at the end of the output."""
        self.pid = 0
        """0 for an agent that serves calls itself."""
        self.started = ""
        """When it started, by the system's count."""

    def start(self) -> CallAddress:
        """Start it, and wait until it listens. Raises `SpawnFailed` and what keeps it from running."""
        self.spawn()
        deadline = time.monotonic() + self._transport.start_timeout
        try:
            while (address := self.poll()) is None:
                if time.monotonic() >= deadline:
                    raise self.too_late()
                if self.fd < 0 or is_readable(self.fd, _LOOK_INTERVAL):
                    time.sleep(_LOOK_INTERVAL / 5)
        except BaseException:
            self.kill()
            raise
        return address

    def spawn(self) -> None:
        """Start it, where the agent looks for it. Call it in the main thread: with that the kernel ends it.

        Does nothing for an agent that serves calls itself.
        """
        companion = self._transport.companion(self._context)
        if companion is None:
            return
        for path, content in companion.files.items():
            write_private(path, content)
        check_folder(self._context.cwd)
        program = resolve_program(companion.argv[0], companion.env, self._context.cwd)
        self.close()
        reading, writing = os.pipe()
        try:
            self.pid = subprocess.Popen(
                companion.argv,
                executable=program,
                cwd=self._context.cwd,
                env={**companion.env, **self._env},
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                start_new_session=True,
                preexec_fn=_die_with_parent(),
            ).pid
        except OSError as error:
            os.close(reading)
            raise SpawnFailed(f"{companion.argv[0]} could not be started: {error.strerror}") from error
        finally:
            os.close(writing)
        os.set_blocking(reading, False)
        self.fd, self._output = reading, b""
        self.started = start_ticks(self.pid) or ""

    def poll(self) -> CallAddress | None:
        """Return its address once it listens. Raises `SpawnFailed` if it has ended.

        One that ended for a reason that passes is started again, as often as the caller's time allows.
        """
        self.read()
        url = self._transport.find_address(self._context, self._output.decode(errors="replace"))
        if url is not None:
            address = CallAddress(url, self._context.call_secret)
            self._context = replaced(self._context, call=address)
            return address
        if self.pid and not self.is_alive():
            self.read()
            if self._transport.may_start_again(self._output.decode(errors="replace")):
                self.spawn()
                return None
            raise SpawnFailed(f"the agent's server ended while it started{self._last_words()}")
        return None

    def too_late(self) -> SpawnFailed:
        seconds = self._transport.start_timeout
        return SpawnFailed(f"the agent's server was not ready after {seconds:g} s{self._last_words()}")

    def _last_words(self) -> str:
        lines = self._output.decode(errors="replace").strip().splitlines()
        return f": {lines[-1][:_SHOWN_CHARACTERS]}" if lines else ""

    def read(self) -> None:
        """Read what it has printed, and keep the end of it."""
        try:
            while self.fd >= 0 and (data := os.read(self.fd, _OUTPUT_BYTES)):
                self._output = (self._output + data)[-_OUTPUT_BYTES:]
        except BlockingIOError:
            return
        self.close()

    def is_alive(self) -> bool:
        return self.pid > 0 and is_alive(self.pid) and (start_ticks(self.pid) or "") == self.started

    def terminate(self) -> None:
        if self.is_alive():
            send_signal(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        if self.is_alive():
            send_signal(self.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _die_with_parent() -> Callable[[], None] | None:
    """Return what a child calls before it becomes another program; None where the system has no such call."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return ask
