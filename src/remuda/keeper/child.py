"""The program in the session: its terminal, its input queue, its exit, and its certain end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections import deque
from collections.abc import Callable, Collection
from time import monotonic

from remuda.proctree import descendants, send_signal
from remuda.terminal.pty import READ_BYTES, Pty
from remuda.wire.frames import SHORT_BYTES

log = logging.getLogger("remuda.keeper.child")

# Input that waits for a program that does not read. Beyond it clients are no longer read from.
INPUT_HIGH_BYTES = 1 << 20
# After the program ended: how long its terminal may stay silent before its output counts as complete.
# Needed only when a descendant still holds the terminal open; otherwise its end is exact.
_DRAIN_SILENCE = 0.25
# … and how long one that prints on and on is listened to, in all.
_DRAIN_LIMIT = 3.0
# A terminal that nobody has open cannot be waited for; it is looked at.
_REOPEN_INTERVAL = 0.1
# After SIGTERM: how long before SIGHUP.
_BEFORE_HANGUP = 0.5
# After SIGKILL: how long to wait for the kernel.
_KILL_LIMIT = 5.0


class Child:
    """A running program. `on_output(data)` gets every byte it prints; `exited` and `hung_up` are its end.

    `strangers` are children that this process had before: they and theirs are not the program's.
    """

    def __init__(
        self,
        pty: Pty,
        on_output: Callable[[bytes], bool | None],
        *,
        kill_group: bool,
        strangers: Collection[int] = (),
    ) -> None:
        self._pty = pty
        self._on_output = on_output
        self._kill_group = kill_group
        self._strangers = strangers
        self._paused = False
        self._loop = asyncio.get_running_loop()
        self._input: deque[memoryview] = deque()
        self._input_bytes = 0
        self._input_drained: list[Callable[[], None]] = []
        self._reaped = asyncio.Event()
        self.pid = pty.pid
        self.exited: asyncio.Future[int] = self._loop.create_future()
        self.died_of: int | None = None
        """The signal that ended it, if one did."""
        self._kill_at = float("inf")
        self.hung_up = asyncio.Event()
        self._began = self.last_read = self._loop.time()
        self._loop.add_reader(pty.fd, self._readable)
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)
        self._reap()

    # ── output ──

    @property
    def has_printed(self) -> bool:
        return self.last_read != self._began

    def _readable(self) -> bool:
        """See `loop`: whether somebody waits for what comes next."""
        if self._pty.fd < 0:
            return False
        try:
            data: bytes | None = os.read(self._pty.fd, READ_BYTES)
        except OSError:
            data = b""  # what is wrong shows when it is tried again
        if not data or len(data) >= SHORT_BYTES:  # no echo
            data = self._pty.drain(data or b"")
        if data is None:
            self._loop.remove_reader(self._pty.fd)
            if self.exited.done():
                self.hung_up.set()
            else:  # nobody has it open; the program may open it again
                self._loop.call_later(_REOPEN_INTERVAL, self._look_again)
        elif data:
            hurried = self._on_output(data)
            self.last_read = monotonic()  # the loop's clock
            return bool(hurried)
        return False

    def _look_again(self) -> None:
        if self._pty.fd >= 0 and not self.hung_up.is_set() and not self._paused:
            self._loop.add_reader(self._pty.fd, self._readable)

    def pause_output(self) -> None:
        """Let the program wait with what it prints, until `resume_output`."""
        self._paused = True
        if self._pty.fd >= 0:
            self._loop.remove_reader(self._pty.fd)

    def resume_output(self) -> None:
        self._paused = False
        self._look_again()

    async def drained(self) -> None:
        """Returns when all that the exited program printed has been handed out.

        A descendant that goes on printing is no reason to stay.
        """
        deadline = self._loop.time() + _DRAIN_LIMIT
        while not self.hung_up.is_set():
            before = self.last_read
            try:
                await asyncio.wait_for(self.hung_up.wait(), _DRAIN_SILENCE)
            except TimeoutError:
                if self.last_read == before or self._loop.time() >= deadline:
                    self._readable()
                    return

    # ── input ──

    def write(self, data: bytes) -> bool:
        """All of it, in order, however slowly the program reads. Whether it has all of it now."""
        if not data or self._pty.fd < 0:
            return True
        if not self._input:
            try:
                taken = os.write(self._pty.fd, data)
            except OSError:
                taken = 0  # what is wrong shows when the rest is tried
            if taken == len(data):  # of a key, all
                return True
            data = data[taken:]
        self._input.append(memoryview(data))
        self._input_bytes += len(data)
        if len(self._input) == 1 and not self._take_input():
            self._loop.add_writer(self._pty.fd, self._writable)
        return not self._input

    @property
    def input_full(self) -> bool:
        return self._input_bytes > INPUT_HIGH_BYTES

    def has_read_all(self) -> bool:
        """Whether the program is known to have read all that was written."""
        try:
            return not self._input and self._pty.fd >= 0 and self._pty.unread_bytes() == 0
        except OSError:
            return False

    def when_input_drains(self, callback: Callable[[], None]) -> None:
        self._input_drained.append(callback)

    def _take_input(self) -> bool:
        """Hand the program what it takes now. Whether that was all."""
        try:
            while self._input:
                sent = self._pty.write(self._input[0])
                self._input_bytes -= sent
                if sent < len(self._input[0]):
                    self._input[0] = self._input[0][sent:]
                    return False
                self._input.popleft()
        except OSError as error:
            log.debug("input dropped: %s", error)
            self._input.clear()
            self._input_bytes = 0
        return True

    def _writable(self) -> None:
        if self._take_input():
            self._loop.remove_writer(self._pty.fd)
        if not self.input_full and self._input_drained:
            waiting, self._input_drained = self._input_drained, []
            for callback in waiting:
                callback()

    def resize(self, cols: int, rows: int) -> None:
        if self._pty.fd >= 0:
            self._pty.resize(cols, rows)

    # ── the end ──

    def _reap(self) -> None:
        """Collect everyone who died: our child, and orphans that we adopted."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == self.pid and not self.exited.done():
                self.died_of = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
                self.exited.set_result(exit_code(status))
                self._look_again()
        self._reaped.set()

    def signal(self, number: int) -> None:
        """One signal to everyone concerned."""
        for pid in self._concerned():
            send_signal(pid, number)

    def wake(self) -> None:
        """What a shell's `fg` does for a program that suspended itself. One that runs takes no notice.

        The kernel stops nobody here: there is no shell in this process session. The program may still wait.
        """
        if not self.exited.done():
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGCONT)

    def _concerned(self) -> list[int]:
        if self._kill_group:
            spared = {kin for one in self._strangers for kin in (one, *descendants(one))}
            return [pid for pid in descendants(os.getpid()) if pid not in spared]
        return [] if self.exited.done() else [self.pid]

    async def end(self, grace: float) -> None:
        """TERM, then KILL after `grace` seconds, until nobody concerned is left.

        Between the two a HUP, as a closing terminal sends it: interactive shells ignore TERM and obey HUP. It
        is not for those who were started since the TERM, as an agent's hooks for its own end are.
        """
        self.hasten(grace)
        asked = self._concerned()
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a stopped process takes its TERM only when it runs
        if await self._gone_before(self._loop.time() + _BEFORE_HANGUP):
            return
        for pid in (pid for pid in self._concerned() if pid in asked):
            send_signal(pid, signal.SIGHUP)
        if await self._gone_before(float("inf")):
            return
        log.warning("still running after %.1f s, killing: %s", grace, self._concerned())
        deadline = self._loop.time() + _KILL_LIMIT
        while self._loop.time() < deadline:
            self.signal(signal.SIGKILL)
            # Short: somebody may have forked between our look and our signal.
            self._kill_at = float("inf")
            if await self._gone_before(self._loop.time() + 0.1):
                return
        log.error("processes still running after SIGKILL: %s", self._concerned())

    def hasten(self, grace: float) -> None:
        """Let the KILL come in `grace` seconds, or earlier if that was said before."""
        self._kill_at = min(self._kill_at, self._loop.time() + grace)
        self._reaped.set()

    async def _gone_before(self, deadline: float) -> bool:
        """Whether nobody concerned is left before `deadline`, and before the time for the KILL."""
        while self._concerned():
            left = min(deadline, self._kill_at) - self._loop.time()
            if left <= 0:
                return False
            self._reaped.clear()
            # A grandchild's death is told to its parent, not to us; hence the second look.
            try:
                await asyncio.wait_for(self._reaped.wait(), min(left, 0.25))
            except TimeoutError:
                pass
        return True

    def close(self) -> None:
        if self._pty.fd >= 0:
            self._loop.remove_reader(self._pty.fd)
            self._loop.remove_writer(self._pty.fd)
            self._pty.close()
        self._loop.remove_signal_handler(signal.SIGCHLD)


def exit_code(wait_status: int) -> int:
    """Heimdall's number: the code, or 128 and the signal."""
    code = os.waitstatus_to_exitcode(wait_status)
    return 128 - code if code < 0 else code
