"""The stream backend: the agent's own headless mode with its stream of messages. Nothing to attach to.

The prompt goes through standard input, which carries every byte. With messages on standard input the agent
reads them itself, as they come. A supervisor ends the agent with us, whatever kills us.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence

from remuda.errors import AgentRefused, CallFailed, WaitTimeout
from remuda.supervised.child_process import SelectLoop, SupervisedProcess

from .output import say
from .print_request import DEFAULT_TIMEOUT, PrintRequest

TYPE_CHECKING = False  # as type checkers read it; importing `typing` takes 2 ms
if TYPE_CHECKING:
    from typing import Any

    from remuda.agents.base import StreamTransport

    Message = dict[str, Any]

_GRACE = 1.8
_LONGEST_WAIT = 60.0
_CLOSE_TIMEOUT = _GRACE + 1.0
_ERROR_BYTES = 1 << 16
_KILLED = 128


class StreamCall:
    """`on_message` gets every message as it comes, the result too."""

    def __init__(
        self,
        transport: StreamTransport,
        request: PrintRequest,
        prompt: str,
        command: Sequence[str],
        note: Callable[[str], None],
        on_message: Callable[[Message], None],
    ) -> None:
        self._transport = transport
        self._request = request
        self._prompt = prompt
        self._is_live = request.reads_messages
        self._note = note
        self._on_message = on_message
        arguments = transport.arguments(
            request.passed,
            inherit_hooks=request.inherit_hooks is not False,
            partial=request.partial_messages,
        )
        self._argv = [*command, *arguments]
        self._loop = SelectLoop()
        self._process = SupervisedProcess(
            self._take_output, self._end, self._take_errors, waits_for_exit=True
        )
        self._reader = transport.message_reader()
        self._messages: list[Message] = []
        self._errors = b""
        self._has_output = False
        self._begun = time.monotonic()
        self._timeout = DEFAULT_TIMEOUT if request.timeout is None else request.timeout

    def run(self) -> Message:
        """Return the result message. Raises `WaitTimeout`, `AgentRefused`, `CallFailed` and `SpawnFailed`."""
        self._process.start(
            self._argv,
            None,
            self._transport.environment(os.environ),
            self._loop,
            end_signal=signal.SIGHUP,  # at a SIGTERM the CLI waits for its tool for a while
            grace=_GRACE,
            inherit_input=self._is_live,
            forks=True,
        )
        self._note(f"started pid {self._process.pid}")
        self._process.write(self._prompt.encode())
        self._process.close_input()
        result: Message | None = None
        is_first = True
        for message in self._follow():
            if message.get("type") == "result":
                result = message
                self._check_refused(message, is_first=is_first)
            is_first = False
            self._on_message(message)
        code = self._process.returncode or 0
        if result is None and self._is_live and code == 0:  # its input ended before there was a message
            return {}
        if result is None:
            raise self._failure(code, is_first=is_first)
        say(self._errors.decode(errors="replace"))
        return result

    def _check_refused(self, result: Message, *, is_first: bool) -> None:
        """Raise an error that came before all else. The CLI prints it as a result only in stream-json."""
        errors = result.get("errors")
        if is_first and errors and self._request.output_format != "stream-json":
            raise AgentRefused(str(errors[0]))

    def _failure(self, code: int, *, is_first: bool) -> AgentRefused | CallFailed:
        text = self._errors.decode(errors="replace").strip()
        complaint = text.rpartition("\n")[2] or "it printed no error"
        killed_by = _signal_name(code)
        if is_first and code > 0 and not killed_by and text:
            return AgentRefused(complaint)
        how = killed_by or f"exit code {code}"
        return CallFailed(f"the agent exited with {how} and without a result: {complaint}")

    # ── output ──

    def _follow(self) -> Iterator[Message]:
        while not self._process.ended or self._messages:
            messages, self._messages = self._messages, []
            yield from messages
            if not self._process.ended:
                self._check_time()
                self._loop.run_once(self._time_left())

    def _take_output(self, data: bytes) -> None:
        self._has_output = True
        self._messages += self._reader.feed(data)

    def _take_errors(self, data: bytes) -> None:
        self._errors = (self._errors + data)[-_ERROR_BYTES:]

    def _end(self) -> None:
        self._messages += self._reader.close()

    # ── time ──

    def _limits(self) -> dict[str, float]:
        limits = {"--timeout: not finished": self._timeout}
        if (
            not self._has_output and not self._is_live
        ):  # no output comes before the first message on standard input
            limits["--first-output-timeout: no output"] = self._request.first_output_timeout
            if self._request.output_format == "stream-json":
                limits["--stream-json-timeout: no message"] = self._request.stream_json_timeout
        return {what: limit for what, limit in limits.items() if limit}

    def _time_left(self) -> float:
        limit = min(self._limits().values(), default=_LONGEST_WAIT)
        return min(_LONGEST_WAIT, max(0.0, self._begun + limit - time.monotonic()))

    def _check_time(self) -> None:
        for what, limit in self._limits().items():
            if time.monotonic() >= self._begun + limit:
                raise WaitTimeout(f"{what} after {limit:g} s: {self._reader.why()}")

    def close(self) -> None:
        """End the agent and everything it started. Takes at most a little longer than the grace."""
        self._process.close_in(self._loop, _CLOSE_TIMEOUT)


def _signal_name(code: int) -> str:
    """Return the signal that ended a program with this exit code; empty if none did."""
    number = -code if code < 0 else code - _KILLED
    return signal.Signals(number).name if number in signal.valid_signals() else ""
