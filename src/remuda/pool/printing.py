"""`remuda print --pool` and `remuda ask`: a request to a served pool, printed as `remuda print` prints.

With `--pool`, options that no pool supports are refused before the pool is asked, whether or not one is
served. `ask` runs those cold instead, and also what the pool itself refuses: `InvalidOptions` is raised
before an agent gets the prompt, so nothing runs twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping

from remuda.agents import DEFAULT_AGENT, find_headless, find_warm
from remuda.errors import (
    EXIT_CODES,
    AgentError,
    InvalidOptions,
    PoolExhausted,
    PoolNotServed,
    RemudaError,
    SpawnTimeout,
    WaitTimeout,
)
from remuda.oneshot.output import warn
from remuda.oneshot.print_request import (
    DEFAULT_FIRST_OUTPUT_TIMEOUT,
    DEFAULT_STOP_HOOK_TIMEOUT,
    DEFAULT_TIMEOUT,
)
from remuda.oneshot.print_request import PrintRequest as Request
from remuda.oneshot.run import DeferredOutput, TraceClock

from .pool_connection import PoolConnection, default_socket, one_line_error
from .protocol import Message
from .request_builder import run_message

TYPE_CHECKING = False  # as type checkers read it; importing `typing` takes 2 ms
if TYPE_CHECKING:
    from typing import Any

_NO_LIMIT = 1e8
_ANSWER_GRACE = 30.0
_REMOVE_IT = "remove it, or remove --pool"


def through_pool(request: Request, prompt: str, clock: TraceClock, output: DeferredOutput) -> int | None:
    """Return the exit code, or None to run cold: no pool is served, or for `ask` it cannot do this.

    Nothing was begun then.
    """
    if not request.prefers_pool:
        return _run_in_pool(request, prompt, clock, output)
    backend = request.backend
    try:
        return _run_in_pool(request, prompt, clock, output)
    except InvalidOptions as error:
        clock.note(f"running cold: {error}")
        request.backend = backend
        return None


def _run_in_pool(request: Request, prompt: str, clock: TraceClock, output: DeferredOutput) -> int | None:
    options = pool_options(request)
    timeout = DEFAULT_TIMEOUT if request.timeout is None else request.timeout or _NO_LIMIT
    message = run_message(
        prompt,
        {**options, "timeout": timeout},
        cwd=os.getcwd(),
        environ=os.environ,
        stream=request.partial_messages,
        raw=request.output_format != "text",
        permissions="deny",
        requires=_requires(request),
    )
    try:
        with PoolConnection(os.path.expanduser(request.pool or default_socket())) as connection:
            connection.ask(message)
            clock.note(f"sent to the pool (pid {connection.greeting.get('pid')})")
            if (agent := connection.greeting.get("agent", request.agent)) != request.agent:
                other = "use --cold" if request.prefers_pool else "remove --pool"
                warn(f"the agent of the pool answers: {agent}; {other} to ask {request.agent}")
            connection.deadline = time.monotonic() + timeout + _ANSWER_GRACE
            request.backend = str(connection.greeting.get("backend"))  # an error names the backend too
            return ReplyPrinter(request, output, request.backend).follow(connection)
    except PoolNotServed as error:
        if request.prefers_pool:
            clock.note(f"running cold: {error.message}")
        else:
            warn(f"{error.message}; running cold")
        return None


# ── the request ──


def pool_options(request: Request) -> dict[str, Any]:
    """Return the options for `Client.run`. Raises `InvalidOptions`."""
    for complaint, hint in _unusable(request):
        raise InvalidOptions(f"{complaint} with --pool", hint=hint)
    agent = find_warm(request.agent)
    options, rest = agent.split_options(request.passed)
    if request.inherit_hooks is False:
        options.setdefault("setting_sources", "")
    if rest:
        from .options import PartialProfile

        for refusal in agent.refusals(PartialProfile(extra_args=tuple(rest))):
            raise InvalidOptions(refusal, hint=_REMOVE_IT)
    return {**options, "extra_args": rest}


def _unusable(request: Request) -> Iterator[tuple[str, str]]:
    if request.keep:
        yield "--keep cannot be used", "the workers of a pool keep running anyway; remove one of the two"
    if request.ask:
        yield "--ask cannot be used", "no one attaches to a worker of a pool; remove one of the two"
    if request.max_turns is not None:
        yield "--max-turns cannot be used", "use --timeout, or remove --pool"
    if request.input_format != "text":
        yield "--input-format stream-json cannot be used", "a request to a pool is one prompt"
    if request.show_child_output:
        yield "--show-child-output cannot be used", _REMOVE_IT
    if request.first_output_timeout != DEFAULT_FIRST_OUTPUT_TIMEOUT:
        yield "--first-output-timeout cannot be used", "use --timeout"
    if request.stream_json_timeout:
        yield "--stream-json-timeout cannot be used", "use --timeout"
    if request.stop_hook_timeout != DEFAULT_STOP_HOOK_TIMEOUT:
        yield "--stop-hook-timeout cannot be used", "use --timeout"


def _requires(request: Request) -> dict[str, str]:
    required = {}
    if request.chose_backend:
        required["backend"] = request.backend
    if request.agent != DEFAULT_AGENT:
        required["agent"] = request.agent
    if request.claude_binary is not None:
        required["claude_binary"] = os.path.abspath(request.claude_binary)
    return required


# ── the answer ──


class ReplyPrinter:
    """Prints the messages of the pool as `remuda print` prints those of an agent."""

    def __init__(self, request: Request, output: DeferredOutput, backend: str) -> None:
        self._request, self._output, self._backend = request, output, backend
        self._result: dict[str, Any] | None = None
        self._results = 0
        self._early: list[str] = []
        """Text from the terminal backend, whose messages come only after the turn."""

    def follow(self, connection: PoolConnection) -> int:
        """Print everything and return the exit code. Raises errors that are not the agent's."""
        for message in connection.messages():
            match message["type"]:
                case "raw":
                    self._take(message["message"])
                case "token" if self._backend == "terminal":
                    self._early.append(message["text"])
                case "done":
                    return self._done(message["result"])
                case "error":
                    return self._failed(one_line_error(message))
        raise AssertionError("the protocol allows no end without a last message")

    def _take(self, message: Message) -> None:
        if not self._is_wanted(message):
            return
        if message.get("type") == "result":
            message = self._result = self._counted(message)
            if self._backend == "terminal":
                return
        self._output.emitter.message(message)
        if self._early and message.get("subtype") == "init":
            self._print_early(message.get("session_id"))

    def _print_early(self, session_id: str | None) -> None:
        text_message = find_headless(self._request.agent).text_message
        for text in self._early:
            self._output.emitter.message(text_message(text, session_id))

    def _counted(self, message: Message) -> Message:
        """Number the results of this request only, not all answers of the process."""
        index, self._results = self._results, self._results + 1
        return {**message, "result_index": index} if "result_index" in message else message

    def _is_wanted(self, message: Mapping[str, Any]) -> bool:
        """A pool also sends partial messages, which only some output formats print."""
        partial = message.get("type") == "stream_event" or message.get("subtype") == "status"
        return self._request.partial_messages or not partial

    def _done(self, result: Mapping[str, Any]) -> int:
        if self._request.output_format == "text":
            self._output.emitter.result({"type": "result", "result": result["text"]})
            return EXIT_CODES["OK"]
        return self._end()

    def _end(self) -> int:
        if self._result is None:
            raise RemudaError("the pool returned no result to print")
        if self._backend == "terminal":
            self._output.emitter.terminal_result(self._result)
        else:
            self._output.emitter.stream_end()
        return EXIT_CODES["FAILED"] if self._result.get("is_error") else EXIT_CODES["OK"]

    def _failed(self, error: RemudaError) -> int:
        if isinstance(error, AgentError):
            if self._request.output_format == "text":
                self._output.emitter.result({"type": "result", "result": error.message})
                return EXIT_CODES["FAILED"]
            if self._result is not None:
                return self._end()
        if isinstance(error, PoolExhausted | SpawnTimeout):
            raise WaitTimeout(error.message, hint=error.hint)
        raise error
