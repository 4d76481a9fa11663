"""Carry out one call, from its request to its exit code."""

from __future__ import annotations

import os
import time
from functools import cached_property

from remuda.agents import DEFAULT_AGENT, find_agent, find_headless, find_stream
from remuda.errors import (
    EXIT_CODES,
    CommandNotFound,
    InputError,
    InternalError,
    Interrupted,
    InvalidOptions,
    RemudaError,
    unusable,
)

from .call_input import apply_defaults, load_defaults, read_prompt
from .output import (
    OutputLost,
    PrintProgram,
    ReaderGone,
    Signalled,
    SignalsHeld,
    drop,
    ignore_signals,
    raise_signals,
    say,
    warn,
)
from .print_request import PrintRequest

TYPE_CHECKING = False  # as type checkers read it; importing `typing` takes 2 ms
if TYPE_CHECKING:
    from collections.abc import Callable

    from remuda.agents.headless import Headless

    from .emitter import Emitter
    from .print_session import CallSession
    from .stream_call import StreamCall

    ThroughPool = Callable[["PrintRequest", str, "TraceClock", "DeferredOutput"], int | None]

_SUBTYPES = {"TIMEOUT": "timeout", "INTERRUPTED": "interrupted", "AGENT_REFUSED": "assistant_error"}


class TraceClock:
    """Milliseconds since the start, and the lines of `--trace`."""

    def __init__(self, *, shown: bool) -> None:
        self._began = time.monotonic()
        self._shown = shown

    @property
    def milliseconds(self) -> int:
        return round((time.monotonic() - self._began) * 1000)

    def note(self, text: str) -> None:
        if self._shown:
            say(f"[{PrintProgram.name} {self.milliseconds}ms] {text}\n")


class DeferredOutput:
    """Loads the emitter when it is first used: the agent starts before that."""

    def __init__(self, request: PrintRequest) -> None:
        self._request = request

    @cached_property
    def emitter(self) -> Emitter:
        from .emitter import Emitter

        return Emitter(self._request)


def run(
    request: PrintRequest, output: DeferredOutput | None = None, through_pool: ThroughPool | None = None
) -> int:
    """Carry out and print a call. Return the exit code.

    `through_pool` carries out a request for a pool. It returns None if no pool is served there.
    """
    try:
        raise_signals()
        try:
            return _printed(request, output or DeferredOutput(request), through_pool)
        finally:
            ignore_signals()
    except Signalled as signalled:  # while an error was printed, or just after that
        ignore_signals()
        warn(str(signalled))
        return EXIT_CODES["INTERRUPTED"]


def _printed(request: PrintRequest, output: DeferredOutput, through_pool: ThroughPool | None) -> int:
    try:
        return _carry_out(request, output, through_pool)
    except OutputLost as error:
        drop()
        if isinstance(error, ReaderGone):
            return EXIT_CODES["FAILED"]
        warn(str(error))
        return EXIT_CODES["INVALID_OPTIONS"]


def _carry_out(request: PrintRequest, output: DeferredOutput, through_pool: ThroughPool | None) -> int:
    clock = TraceClock(shown=request.trace)
    try:
        if request.wants == "version" or request.check:
            from .check import check, show_version

            return show_version(request) if request.wants else check(request)
        prompt = _prepare(request, clock)
        if request.pool is not None and through_pool is not None:
            code = through_pool(request, prompt, clock, output)
            if code is not None:
                return code
        return _call(request, prompt, clock, output)
    except OutputLost:
        raise
    except Signalled as signalled:
        ignore_signals()
        return _failed(Interrupted(str(signalled)), request, clock, output)
    except RemudaError as error:
        return _failed(error, request, clock, output)
    except Exception as error:  # noqa: BLE001  # a bug of ours, or a machine out of resources: one end for both
        if request.trace:
            import traceback

            say(traceback.format_exc())
        failure = InternalError(f"{type(error).__name__}: {error}")
        if isinstance(error, OSError):
            known = unusable(error)
            failure = InternalError(known.message, hint=known.hint)
        return _failed(failure, request, clock, output)


def _prepare(request: PrintRequest, clock: TraceClock) -> str:
    """Do everything that comes before the agent. Return the prompt."""
    check_home()
    check_folder()
    defaults = load_defaults(request.config, os.environ)
    if defaults.source is not None:
        clock.note(f"read defaults from {defaults.source}")
    apply_defaults(request, defaults)
    clock.note("reading the prompt")
    prompt = "" if request.reads_messages else read_prompt(request)
    if request.pretrust_cwd and find_headless(request.agent).pretrust(os.environ, os.getcwd(), warn):
        clock.note("marked this folder as trusted")
    return prompt


def check_home() -> None:
    """Raise `InvalidOptions` if HOME cannot be used: everything that the agent reads and writes is there."""
    home = os.environ.get("HOME", "")
    if not home:
        raise InvalidOptions(
            "HOME is not set", hint="set it; the agent keeps its settings and conversations there"
        )
    if not os.path.isdir(home):
        raise InvalidOptions(f"HOME is {home}, which is not a folder")
    if not os.access(home, os.W_OK | os.X_OK):
        raise InvalidOptions(f"HOME is {home}, which is not writable")


def check_folder() -> None:
    """Raise `InvalidOptions` if the current folder is gone."""
    try:
        os.getcwd()
    except OSError as error:
        raise InvalidOptions(
            "the current folder no longer exists", hint="change to another folder"
        ) from error


def _call(request: PrintRequest, prompt: str, clock: TraceClock, output: DeferredOutput) -> int:
    # Each backend loads what it needs: a call is short.
    command = find_command(request)
    headless = find_headless(request.agent)
    if request.backend == "terminal" and not (request.chose_backend or request.ask or request.keep):
        _choose_backend(request, prompt, headless)
    if request.backend == "stream":
        from .stream_call import StreamCall

        emitter, stream = output.emitter, find_stream(request.agent)
        return _stream(StreamCall(stream, request, prompt, command, clock.note, emitter.message), emitter)
    from .print_session import CallSession

    session = CallSession(request, prompt, command, agent=request.agent)
    try:
        session.begin()
        clock.note(f"session {session.name} begun")
        return _follow(session, request, clock, output.emitter)
    finally:
        with SignalsHeld():
            session.close()


def _choose_backend(request: PrintRequest, prompt: str, headless: Headless) -> None:
    """Use the stream backend for a control character: no terminal can carry it, a stream every byte.

    Some agents print without a terminal only.
    """
    if getattr(headless, "default_backend", "terminal") == "stream":  # others may not know such a name
        request.use_stream()
        return
    if headless.stream is not None and (control := headless.find_control(prompt)) is not None:
        warn(
            f"the prompt contains U+{ord(control[1]):04X} at position {control[0]}, "
            "which a terminal cannot take; using --backend stream"
        )
        request.use_stream()


def _follow(session: CallSession, request: PrintRequest, clock: TraceClock, emitter: Emitter) -> int:
    from .leftovers import sweep
    from .terminal_call import TerminalCall

    call = TerminalCall(session, request, clock.note, emitter.emit if emitter.wants_messages else None)
    sweep(session.paths.folder)
    printed = False
    try:
        ended = call.run()
        clock.note("ended")
        result = call.turn.result(ended, clock.milliseconds, "terminal")
        if request.keep:
            result["session"] = session.name
        emitter.terminal_result(result)
        if request.output_format != "text":
            for reason in result.get("degraded", []):
                warn(reason)
        ignore_signals()
        printed = True
    except (RemudaError, Signalled) as error:
        if request.show_child_output and not isinstance(error, InvalidOptions):
            _show_output(call.last_output(), str(error).partition(":")[0])
        raise
    finally:
        emitter.agent_version = call.turn.facts.version
        with SignalsHeld():
            call.close(in_order=printed)
        if request.keep and call.is_up():
            warn(f"the session is still running: remuda attach {session.name}")
    return EXIT_CODES["FAILED"] if ended.is_error else EXIT_CODES["OK"]


def _show_output(text: str, why: str) -> None:
    warn(f"----- the agent's terminal ({why}) -----")
    if text:
        say(f"{text}\n")
    warn("----- end of the agent's terminal -----")


def _stream(call: StreamCall, emitter: Emitter) -> int:
    try:
        result = call.run()
        emitter.stream_end()
        ignore_signals()
    finally:
        with SignalsHeld():
            call.close()
    return EXIT_CODES["FAILED"] if result.get("is_error") else EXIT_CODES["OK"]


def find_command(request: PrintRequest) -> list[str]:
    """Return the words that start the agent. Raises `CommandNotFound`."""
    return [find_binary(request), *find_agent(request.agent).default_argv[1:]]


def find_binary(request: PrintRequest) -> str:
    """Return the path of the agent's program. Raises `CommandNotFound`."""
    named = request.claude_binary or find_agent(request.agent).default_argv[0]
    path = _which(named)
    if path is None:
        hint = find_headless(request.agent).install_hint
        if request.agent == DEFAULT_AGENT:
            hint += ", or pass --claude-binary PATH; --demo needs neither"
        raise CommandNotFound(f"cannot find {named}", hint=hint)
    return os.path.abspath(path)


def _which(name: str) -> str | None:
    """Do what `shutil.which` does. Its module is slow to load."""
    folders = [""] if os.path.dirname(name) else os.environ.get("PATH", os.defpath).split(os.pathsep)
    for path in (os.path.join(folder, name) for folder in folders):
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def _failed(error: RemudaError, request: PrintRequest, clock: TraceClock, output: DeferredOutput) -> int:
    if isinstance(error, (InputError, InvalidOptions)):
        warn(str(error))
        return EXIT_CODES["INVALID_INPUT"] if isinstance(error, InputError) else EXIT_CODES["INVALID_OPTIONS"]
    subtype = _SUBTYPES.get(error.code, "internal_error")
    output.emitter.error(
        {
            "type": "result",
            "subtype": subtype,
            "is_error": True,
            "error_message": str(error),
            "duration_ms": clock.milliseconds,
            "backend": request.backend,
            "error_code": error.code,
        }
    )
    return error.exit_code if error.code in _SUBTYPES else 2
