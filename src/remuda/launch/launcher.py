"""One launched program, from its start to its end.

Whatever ends it (itself, a limit, the exit-signal file, a signal to us) is the one `Ending` of the launch:
the first to come. Nothing here polls: limits are timers, the file is watched, a death is a signal.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from remuda.errors import FolderUnusable
from remuda.keeper.child import Child
from remuda.keeper.logfile import PrintableFormatter
from remuda.keeper.watch import watch
from remuda.proctree import adopt_orphans, descendants
from remuda.tasks import TaskSet
from remuda.terminal.pty import Pty, get_size, spawn

from .launch_console import RESET, LaunchConsole, PacedOutput, is_ours

# ── what to do ──

COLS, ROWS = 200, 50
"""The size of the terminal when there is none to show the program on, as heartbeat-launch has it."""
HIGHEST_CODE = 123
"""The highest exit code that a program can end with: higher codes are ours."""
ECHO_GRACE = 20.0
"""Output within this many seconds of a prompt may be only its echo."""

IdleVerdict: TypeAlias = Literal["wait", "prompt", "give_up"]


@dataclass(frozen=True, slots=True)
class Plan:
    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    timeout: float = 3600.0
    """Seconds before it is killed; 0 for no limit."""
    exit_signal: Path | None = None
    """A file whose appearance ends the program."""
    idle_timeout: float = 0.0
    """Seconds of silence before it is prompted; 0 for never."""
    idle_prompt: str = "Continue"
    max_idle_retries: int = 3
    signal_code: int = HIGHEST_CODE
    """The exit code for a program that a signal ended."""


class IdleRule:
    """Prompt after `timeout` seconds of silence, and give up after `max_retries` prompts without effect.

    The count starts again when the program prints something that cannot be an echo of the last prompt. Times
    come from the caller.
    """

    def __init__(self, timeout: float, max_retries: int, now: float) -> None:
        self._timeout = timeout
        self._max_retries = max_retries
        self._heard = now
        self._prompted = float("-inf")
        self.retries = 0

    def heard(self, now: float) -> None:
        """Note that the program printed something."""
        self._heard = now
        if now - self._prompted >= ECHO_GRACE:
            self.retries = 0

    def due(self) -> float:
        """Return when to call `check` again, unless output comes before."""
        return max(self._heard, self._prompted) + self._timeout

    def check(self, now: float) -> IdleVerdict:
        if now < self.due():
            return "wait"
        if self.retries >= self._max_retries:
            return "give_up"
        self.retries += 1
        self._prompted = now
        return "prompt"


TIMED_OUT, IDLE_EXHAUSTED = 124, 125
# Between SIGTERM and SIGKILL, when the program is asked to end.
GRACE = 2.0
# After the end of the program: how long it is read from while others still hold its terminal, and how long
# after a forced end the output may take to reach the reader.
DRAIN_TIMEOUT = 2.0
# The agent takes the two Escapes for one key press each only with a pause after them.
ESCAPE_PAUSE = 0.05
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Ending(enum.Enum):
    EXITED = enum.auto()
    TIMED_OUT = enum.auto()
    SILENT = enum.auto()
    EXIT_FILE = enum.auto()
    SIGNALLED = enum.auto()


def launch(plan: Plan, tell: Callable[[str], None]) -> int:
    """Run `plan` to its end and return heartbeat-launch's exit code; `tell` gets lines for the user.

    Takes over the process: its signals, its standard input and output, its orphans. Raises what `spawn` does.
    """
    _fill_standard_descriptors()
    logging.getLogger("remuda.keeper").setLevel(logging.ERROR)  # a KILL after the grace is expected
    if logging.lastResort is not None:  # it prints on the user's terminal
        logging.lastResort.setFormatter(PrintableFormatter())
    adopt_orphans()
    return asyncio.run(_Launch(plan, tell).run())


def _fill_standard_descriptors() -> None:
    """Open the null device for closed streams: else the terminal would get their number, and the program its
    own output as input.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(fd)


class _Launch:
    def __init__(self, plan: Plan, tell: Callable[[str], None]) -> None:
        self._plan = plan
        self._tell = tell
        self._raw = False
        self._number = 0
        self._timers: list[asyncio.TimerHandle] = []
        self._tasks = TaskSet()

    async def run(self) -> int:
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[Ending] = self._loop.create_future()
        self._hurried = asyncio.Event()
        """Set when there is no more time to wait for the reader of the output."""
        self._remove_stale_signal()
        with contextlib.ExitStack() as stack:
            self._catch_signals()
            watched = is_ours()
            strangers = frozenset(descendants(os.getpid()))
            pty = self._spawn(watched)
            self._child = Child(pty, self._printed, kill_group=True, strangers=strangers)
            stack.callback(self._child.close)
            self._output = PacedOutput(
                1, self._child.pause_output, self._child.resume_output, self._output_lost
            )
            stack.callback(self._output.close)
            if watched:
                stack.enter_context(LaunchConsole(self._child))
                self._raw = True
            self._watch_for_the_end(stack)
            ending = await self._over
            await self._end(ending)
            forced = ending is not Ending.EXITED
            await self._flush(forced)
            if forced and os.isatty(1):
                self._output.write(RESET)
                await self._flushed()
        self._raw = False
        return self._code(ending)

    # ── the beginning ──

    def _remove_stale_signal(self) -> None:
        path = self._plan.exit_signal
        if path is None:
            return
        try:
            path.unlink(missing_ok=True)
        except NotADirectoryError:
            pass
        except OSError as error:
            raise FolderUnusable(f"cannot remove the old exit signal {path}: {error.strerror}") from error

    def _catch_signals(self) -> None:
        for one in _ENDING_SIGNALS:
            # `nohup`, and shells for jobs in the background, ignore some: they stay ignored.
            if signal.getsignal(one) is not signal.SIG_IGN:
                self._loop.add_signal_handler(one, self._signalled, one)

    def _spawn(self, watched: bool) -> Pty:
        cols, rows = get_size(1) if watched else (COLS, ROWS)
        plan = self._plan
        return spawn(plan.argv, cwd=plan.cwd, env=plan.env, cols=cols or COLS, rows=rows or ROWS)

    def _watch_for_the_end(self, stack: contextlib.ExitStack) -> None:
        self._child.exited.add_done_callback(lambda _: self._finish(Ending.EXITED))
        if self._plan.timeout:
            self._at(self._loop.time() + self._plan.timeout, self._timed_out)
        if self._plan.exit_signal is not None:
            stack.callback(watch(self._plan.exit_signal, self._look_for_signal).close)
        self._idle: IdleRule | None = None
        if self._plan.idle_timeout:
            self._idle = IdleRule(self._plan.idle_timeout, self._plan.max_idle_retries, self._loop.time())
            self._at(self._idle.due(), self._look_for_silence)
        stack.callback(self._stop_waiting)

    def _at(self, when: float, action: Callable[[], None]) -> None:
        self._timers = [one for one in self._timers if one.when() > self._loop.time()]
        self._timers.append(self._loop.call_at(when, action))

    def _stop_waiting(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._tasks.cancel()

    # ── while it runs ──

    def _printed(self, data: bytes) -> None:
        self._output.write(data)
        if self._idle is not None:
            self._idle.heard(self._loop.time())

    def _output_lost(self, error: OSError) -> None:
        if isinstance(error, BrokenPipeError):  # as a program ends that writes to a closed pipe
            self._signalled(signal.SIGPIPE)
        else:  # the work goes on with a full disk
            self._note(f"the output cannot be written ({error.strerror}); going on without it")

    def _look_for_silence(self) -> None:
        if self._idle is None or self._over.done():
            return
        if self._output.is_full:  # it may print, but its output is not read
            self._idle.heard(self._loop.time())
        verdict = self._idle.check(self._loop.time())
        if verdict == "give_up":
            self._finish(Ending.SILENT)
            return
        if verdict == "prompt":
            self._note(f"no output; sending prompt {self._idle.retries} of {self._plan.max_idle_retries}")
            self._tasks.start(self._prompt())
        self._at(self._idle.due(), self._look_for_silence)

    async def _prompt(self) -> None:
        self._child.write(b"\x1b\x1b")
        await asyncio.sleep(ESCAPE_PAUSE)
        self._child.write(self._plan.idle_prompt.encode() + b"\r")

    def _look_for_signal(self) -> None:
        if self._plan.exit_signal is not None and self._plan.exit_signal.exists():
            self._finish(Ending.EXIT_FILE)

    def _timed_out(self) -> None:
        if self._over.done():
            self._hurried.set()
        self._finish(Ending.TIMED_OUT)

    def _signalled(self, signal_number: signal.Signals) -> None:
        if self._over.done():
            self._hurried.set()
            self._child.hasten(0.0)
            return
        self._number = signal_number
        self._finish(Ending.SIGNALLED)

    def _finish(self, ending: Ending) -> None:
        if not self._over.done():
            self._over.set_result(ending)

    # ── the end ──

    async def _end(self, ending: Ending) -> None:
        match ending:
            case Ending.EXITED:
                return
            case Ending.TIMED_OUT:
                self._note(f"timeout after {self._plan.timeout:g}s; killing it and every process it started")
            case Ending.SILENT:
                self._note(f"still no output after {self._plan.max_idle_retries} prompts; killing it")
            case Ending.EXIT_FILE:
                self._note(f"exit signal {self._plan.exit_signal} found; ending it")
            case Ending.SIGNALLED:
                self._note(f"{signal.Signals(self._number).name}; ending it and every process it started")
        asked = ending in (Ending.EXIT_FILE, Ending.SIGNALLED)
        await self._child.end(GRACE if asked else 0.0)
        if ending is Ending.EXIT_FILE and self._plan.exit_signal is not None:
            self._plan.exit_signal.unlink(missing_ok=True)

    async def _flush(self, forced: bool) -> None:
        """Wait until the reader has all output, however slow it is, unless we are in a hurry."""
        if forced:
            self._at(self._loop.time() + DRAIN_TIMEOUT, self._hurried.set)
        left = DRAIN_TIMEOUT
        while left > 0 and not self._child.hung_up.is_set():
            await self._flushed()
            began = self._loop.time()
            try:
                await asyncio.wait_for(self._child.drained(), left)
            except TimeoutError:
                break
            if not self._output.is_full:
                break
            left -= self._loop.time() - began
        await self._flushed()

    async def _flushed(self) -> None:
        waits = [self._loop.create_task(one.wait()) for one in (self._output.flushed, self._hurried)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for one in waits:
            one.cancel()

    def _code(self, ending: Ending) -> int:
        match ending:
            case Ending.EXITED:
                if self._child.died_of is not None:
                    return self._plan.signal_code
                return min(self._child.exited.result(), HIGHEST_CODE)
            case Ending.TIMED_OUT:
                return TIMED_OUT
            case Ending.SILENT:
                return IDLE_EXHAUSTED
            case Ending.EXIT_FILE:
                return 0
            case Ending.SIGNALLED:
                return 128 + self._number

    def _note(self, line: str) -> None:
        self._tell(f"{line}\r" if self._raw else line)
