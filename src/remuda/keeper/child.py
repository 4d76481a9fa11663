"""The program in the session: its terminal, its input queue, its exit, and its guaranteed end."""

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

# Input that waits for a program that does not read. Above this, we stop reading from clients.
INPUT_HIGH_BYTES = 1 << 20
# After the program ended: how long its terminal may stay silent before its output counts as complete.
# Needed only when a descendant still holds the terminal open; otherwise its end is exact.
_DRAIN_SILENCE = 0.25
# … and for how long in all we read from a descendant that keeps printing.
_DRAIN_LIMIT = 3.0
# A terminal that no process has open cannot be waited for, so it is polled.
_REOPEN_INTERVAL = 0.1
# After SIGTERM: how long before SIGHUP.
_BEFORE_HANGUP = 0.5
# After SIGKILL: how long to wait for the kernel.
_KILL_LIMIT = 5.0


class Child:
    """A running program. `on_output(data)` gets every byte it prints; `exited` and `hung_up` are its end.

    `strangers` are children that this process had before: they and their descendants do not belong to the
    program.
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
        self.on_reaped: Callable[[], None] | None = None
        """Called when any process of the session has ended, as far as that is reported."""
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
        """Read output. Returns whether someone waits for what comes next (see `loop`)."""
        if self._pty.fd < 0:
            return False
        try:
            data: bytes | None = os.read(self._pty.fd, READ_BYTES)
        except OSError:
            data = b""  # an error comes again with the next read
        if not data or len(data) >= SHORT_BYTES:  # no echo
            data = self._pty.drain(data or b"")
        if data is None:
            self._loop.remove_reader(self._pty.fd)
            if self.exited.done():
                self.hung_up.set()
            else:  # no process has it open; the program may open it again
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
        """Make the program wait when it prints, until `resume_output`."""
        self._paused = True
        if self._pty.fd >= 0:
            self._loop.remove_reader(self._pty.fd)

    def resume_output(self) -> None:
        self._paused = False
        self._look_again()

    async def drained(self) -> None:
        """Return when all output of the exited program has been handed out.

        A descendant that goes on printing does not keep us here.
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
        """Write all data, however slowly the program reads. Returns whether it has taken everything now."""
        if not data or self._pty.fd < 0:
            return True
        if not self._input:
            try:
                taken = os.write(self._pty.fd, data)
            except OSError:
                taken = 0  # an error comes again with the rest
            if taken == len(data):  # complete, if it is a key
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
        """Return whether the program is known to have read everything written."""
        try:
            return not self._input and self._pty.fd >= 0 and self._pty.unread_bytes() == 0
        except OSError:
            return False

    def when_input_drains(self, callback: Callable[[], None]) -> None:
        self._input_drained.append(callback)

    def _take_input(self) -> bool:
        """Write what the program takes now. Returns whether that was all."""
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
        """Reap all dead children: our child, and orphans that we adopted."""
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
        if self.on_reaped is not None:
            self.on_reaped()

    def signal(self, signal_number: int) -> None:
        """Send one signal to all processes of the session."""
        for pid in self._concerned():
            send_signal(pid, signal_number)

    def wake(self) -> None:
        """Continue a program that suspended itself, as a shell's `fg` does. A running program ignores it.

        The kernel stops no process here: this process session has no shell. The program may still wait.
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
        """Send TERM, then KILL after `grace` seconds, until none of the processes is left.

        Between the two comes a HUP, as a closing terminal sends it: interactive shells ignore TERM and obey
        HUP. Processes that started after the TERM do not get it, such as the hooks that an agent runs at its
        end.
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
            # Short: a process may have forked between our scan and our signal.
            self._kill_at = float("inf")
            if await self._gone_before(self._loop.time() + 0.1):
                return
        log.error("processes still running after SIGKILL: %s", self._concerned())

    def hasten(self, grace: float) -> None:
        """Send the KILL in `grace` seconds, or at the earlier time that was set before."""
        self._kill_at = min(self._kill_at, self._loop.time() + grace)
        self._reaped.set()

    async def _gone_before(self, deadline: float) -> bool:
        """Return whether all processes are gone before `deadline`, and before the time for the KILL."""
        while self._concerned():
            left = min(deadline, self._kill_at) - self._loop.time()
            if left <= 0:
                return False
            self._reaped.clear()
            # The kernel reports a grandchild's death to its parent, not to us; so we scan again.
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


_PASTE_END = b"\x1b[201~"


_FOCUS_REPORTS = (b"\x1b[I", b"\x1b[O")
"""What a terminal sends when its window is entered or left: no one has typed."""


class Keyboard:
    """What users type into a session: passed on at once, except while a message is being delivered."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._held: list[bytes] | None = None
        self._holders: set[str] = set()
        self.typed_at = float("-inf")
        """When a user's keys last came or went to the program, on the loop's clock."""
        self.typed_text = False
        """Whether the last keys were text, which a program draws where it takes text."""
        self.on_held: Callable[[], None] | None = None
        """Called when keys come that are kept: the session may be asleep."""

    def connect(self, child: Child) -> None:
        """Type into another program from now on."""
        self._child = child

    def type(self, data: bytes) -> bool:
        """Type. Returns whether the program has taken it already."""
        taken = False
        if self._held is None:
            taken = self._child.write(data)
        else:
            self._held.append(data)
            if self.on_held is not None and data not in _FOCUS_REPORTS:
                self.on_held()
        self.typed_at = monotonic()
        # Cheap, because it runs for each key: what has an escape sequence is text only if it is a paste.
        is_plain = b"\x1f" < data[-1:] != b"\x7f" and b"\x1b" not in data
        self.typed_text = is_plain or data.endswith(_PASTE_END)
        return taken

    def hold(self, holder: str = "delivery") -> None:
        """Keep what is typed from here on, until all who hold it release it."""
        self._holders.add(holder)
        if self._held is None:
            self._held = []

    def drop(self) -> None:
        """Forget what was kept: it was meant for another screen."""
        if self._held is not None:
            self._held.clear()

    def release(self, holder: str = "delivery") -> None:
        """Pass on what was kept, in its order."""
        self._holders.discard(holder)
        if self._holders:
            return
        held, self._held = self._held, None
        for data in held or ():
            self._child.write(data)
            self.typed_at = monotonic()


def exit_code(wait_status: int) -> int:
    """Return Heimdall's number: the exit code, or 128 plus the signal."""
    code = os.waitstatus_to_exitcode(wait_status)
    return 128 - code if code < 0 else code
