"""`remuda run` from its words to its exit code: warm if a pool is served, else cold.

Nothing here imports click, which takes longer to load than a warm agent takes to answer.

| code | when |
| --- | --- |
| 0 | answered |
| 1 | the agent reported an error; the reader of standard output is gone |
| 2 | options that cannot be honoured; the agent crashed or did not start; the answer cannot be printed |
| 3 | no pool is served there, with --no-fallback |
| 4 | the prompt is empty or cannot be sent; the path is not a socket |
| 8 | the pool is served by another user |
| 9 | the server of the pool is broken: it sent garbage or nothing, hung up, or has another version |
| 124 | --timeout; no worker was free or started in time |
| 130 | SIGINT, SIGTERM or SIGHUP |

A cold run has the codes of `remuda print`: 0, 1, 2, 4, 124, 130.
"""

from __future__ import annotations

import os
import sys
import time

from remuda.errors import (
    EXIT_CODES,
    InputError,
    Interrupted,
    InvalidOptions,
    PoolNotServed,
    RemudaError,
)
from remuda.oneshot.output import (
    OutputLost,
    ReaderGone,
    Signalled,
    drop,
    ignore_signals,
    raise_signals,
    say,
    write,
)
from remuda.pool.pool_connection import SILENCE_TIMEOUT, PoolConnection, default_socket, one_line_error
from remuda.pool.protocol import Message
from remuda.pool.request_builder import run_message
from remuda.untrusted import show_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from remuda.boss.fleet_requests import FleetRequest

    Flags = dict[str, Any]
    """The options of a command line, by their flags."""

# ── the command line ──


BACKENDS = ("terminal", "stream", "print")
PERMISSIONS = ("deny", "allow")
DEFAULT_TIMEOUT = 300.0

# flag: (kind, name of its value, help). Kinds: flag, text, many, seconds, or the choices.
OPTIONS: dict[str, tuple[str | tuple[str, ...], str, str]] = {
    "--socket": ("text", "PATH", "Socket of the pool.  [default: pool.sock under $REMUDA_HOME]"),
    "--fleet": ("flag", "", "Run on any host of the fleet with a free agent; --cwd is a folder there."),
    "--no-fallback": ("flag", "", "Fail if no pool is served, instead of running cold."),
    "--backend": (BACKENDS, "", "Require this backend."),
    "--model": ("text", "NAME", "Model to use."),
    "--allowed-tools": ("many", "TOOLS", "Allow these tools without a permission request; repeatable."),
    "--disallowed-tools": ("many", "TOOLS", "Remove these tools; repeatable."),
    "--permission-mode": ("text", "MODE", "Permission mode of the agent."),
    "--permissions": (
        PERMISSIONS,
        "",
        "Allow or deny all permission requests.  [default: as the pool was started]",
    ),
    "--system-prompt": ("text", "TEXT", "Replace the system prompt of the agent."),
    "--append-system-prompt": ("text", "TEXT", "Append TEXT to the system prompt of the agent."),
    "--settings": ("text", "FILE|JSON", "Add settings for the agent."),
    "--setting-sources": ("text", "LIST", "Read only these settings files: user, project, local."),
    "--mcp-config": ("many", "FILE|JSON", "Add MCP servers; repeatable."),
    "--add-dir": ("many", "FOLDER", "Let the agent use FOLDER too; repeatable."),
    "--arg": ("many", "FLAG", "Pass any other flag to the agent, as in --arg=--effort=low; repeatable."),
    "--env": ("many", "NAME[=VALUE]", "Set a variable, or remove it (NAME alone); repeatable."),
    "--cwd": ("text", "FOLDER", "Run the agent in FOLDER.  [default: the current folder]"),
    "--timeout": ("seconds", "TIME", "Fail after TIME (90, 45m, 2h30m).  [default: 300]"),
    "--request-id": ("text", "ID", "Use ID as the id of the request."),
    "--stream": ("flag", "", "Print the answer as it arrives."),
    "--json": ("flag", "", "Print the result as JSON; with --stream, one event per line."),
    "--server-timeout": (
        "seconds",
        "TIME",
        "Fail if the server sends nothing for TIME.  [default: 20]",
    ),
    "--demo": ("flag", "", "Use the scripted agent: no account, no network."),
    "--claude-binary": ("text", "PATH", "Run the agent at PATH; a pool must use the same program."),
}
ALIASES = {
    "-m": "--model",
    "--allowedTools": "--allowed-tools",
    "--disallowedTools": "--disallowed-tools",
    "--add-dirs": "--add-dir",
}
PROFILE = {
    "--model": "model",
    "--allowed-tools": "allowed_tools",
    "--disallowed-tools": "disallowed_tools",
    "--permission-mode": "permission_mode",
    "--system-prompt": "system_prompt",
    "--append-system-prompt": "append_system_prompt",
    "--settings": "settings",
    "--setting-sources": "setting_sources",
    "--mcp-config": "mcp_config",
    "--add-dir": "add_dirs",
    "--arg": "extra_args",
}
"""The flags that become options of the profile, and their names there."""


def parse(words: Sequence[str]) -> tuple[str | None, Flags]:
    """Return the prompt and the options by flag. The prompt is None if help is wanted.

    Raises `InvalidOptions`, or `InputError` for more than one prompt.
    """
    flags: Flags = {}
    prompts: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            prompts += rest
            break
        if word in ("-h", "--help"):
            return None, flags
        if word == "-" or not word.startswith("-"):
            prompts.append(word)
        else:
            _take(flags, word, rest)
    if "--demo" in flags and "--claude-binary" in flags:
        raise InvalidOptions("--demo and --claude-binary cannot be combined")
    if len(prompts) > 1:
        raise InputError(
            f"more than one prompt: {prompts[1][:40]!r} is the second", hint="put the prompt in quotes"
        )
    return (prompts or ["-"])[0], flags


def _take(flags: Flags, word: str, rest: list[str]) -> None:
    flag, equals, value = word.partition("=")
    flag = ALIASES.get(flag, flag)
    if flag not in OPTIONS:
        from remuda.names import did_you_mean

        hint = did_you_mean(flag, [*OPTIONS, *ALIASES]) or "'remuda run --help' lists all options"
        raise InvalidOptions(f"unknown option {flag}", hint=hint)
    kind = OPTIONS[flag][0]
    if kind == "flag":
        if equals:
            raise InvalidOptions(f"{flag} takes no value")
        flags[flag] = True
        return
    if not equals:
        if not rest:
            raise InvalidOptions(f"{flag} needs a value")
        value = rest.pop(0)
    if kind == "many":
        flags.setdefault(flag, []).append(value)
    else:
        flags[flag] = _seconds(flag, value) if kind == "seconds" else _checked(flag, value, kind)


def _checked(flag: str, value: str, kind: str | tuple[str, ...]) -> str:
    if isinstance(kind, tuple) and value not in kind:
        raise InvalidOptions(f"{flag} {value!r} is not one of {', '.join(kind)}")
    return value


def _seconds(flag: str, text: str) -> float:
    from remuda.oneshot.print_request import seconds

    span = seconds(flag, text)
    if not span:
        raise InvalidOptions(f"{flag} must be more than 0")
    return span


def variables(words: Sequence[str]) -> dict[str, str | None]:
    """Parse the values of `--env`: NAME=VALUE sets a variable, NAME removes it."""
    values: dict[str, str | None] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name:
            raise InvalidOptions(f"--env {word!r} has no variable name", hint="write NAME=VALUE or NAME")
        values[name] = value if equals else None
    return values


# ── one request ──


_OWN_EXIT = {
    "AGENT_ERROR": EXIT_CODES["FAILED"],
    "POOL_NOT_SERVED": EXIT_CODES["NO_SESSION"],
    "PERMISSION_REFUSED": EXIT_CODES["REFUSED"],
}
_KEPT = frozenset(
    EXIT_CODES[name] for name in ("INVALID_OPTIONS", "INVALID_INPUT", "PROTOCOL", "TIMEOUT", "INTERRUPTED")
)
_ANSWER_GRACE = 30.0
"""Seconds that the answer may take longer than the timeout, which the server enforces."""


def main(words: Sequence[str]) -> int | None:
    """Run the command line. Return the exit code; None if help is wanted."""
    try:
        word, flags = parse(words)
        if word is None:
            return None
        return _run(word, flags)
    except RemudaError as error:
        _complain(str(error))
        return exit_code(error)
    except Signalled as signalled:  # just after the result was known
        ignore_signals()
        _complain(str(signalled))
        return EXIT_CODES["INTERRUPTED"]


def exit_code(error: RemudaError) -> int:
    other = error.exit_code if error.exit_code in _KEPT else EXIT_CODES["INVALID_OPTIONS"]
    return _OWN_EXIT.get(error.code, other)


def _run(word: str, flags: Flags) -> int:
    raise_signals()
    try:
        return _interruptible(word, flags)
    except OutputLost as error:
        drop()
        if isinstance(error, ReaderGone):
            return EXIT_CODES["FAILED"]
        _complain(str(error))
        return EXIT_CODES["INVALID_OPTIONS"]
    finally:
        ignore_signals()


def _interruptible(word: str, flags: Flags) -> int:
    try:
        prompt = _read_prompt(word, flags.get("--timeout", DEFAULT_TIMEOUT))
        if "--fleet" in flags:
            return _anywhere(prompt, flags)
        try:
            return _warm(prompt, flags)
        except PoolNotServed as error:
            if "--no-fallback" in flags:
                raise
            _complain(f"{error.message}; running cold")
        from .run_cold import run_cold

        return run_cold(prompt, flags)
    except Signalled as signalled:
        ignore_signals()
        return Printer(flags).failed(Interrupted(str(signalled)))


def _read_prompt(word: str, timeout: float) -> str:
    if word != "-":
        text = word
    elif sys.stdin is None or sys.stdin.isatty():
        raise InputError("the prompt is empty", hint="pass it as an argument or on standard input")
    else:
        from remuda.oneshot.call_input import read_to_end

        data = read_to_end(sys.stdin.fileno(), time.monotonic() + timeout)
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise InputError(f"standard input is not valid UTF-8 (byte {error.start})") from None
    if not text.strip():
        raise InputError("the prompt is empty", hint="pass it as an argument or on standard input")
    return text


# ── warm ──


def _warm(prompt: str, flags: Flags) -> int:
    """Ask the pool. Raises `PoolNotServed` if nothing was started."""
    timeout = flags.get("--timeout", DEFAULT_TIMEOUT)
    message = run_message(
        prompt,
        {**profile_options(flags), "timeout": timeout, "request_id": flags.get("--request-id")},
        cwd=_current_folder(),
        environ=os.environ,
        stream="--stream" in flags,
        permissions=flags.get("--permissions"),
        requires=_requires(flags),
    )
    path = flags.get("--socket") or default_socket()
    silence = flags.get("--server-timeout", SILENCE_TIMEOUT)
    with PoolConnection(os.path.expanduser(path), silence_timeout=silence) as line:
        line.ask(message)
        line.deadline = time.monotonic() + timeout + _ANSWER_GRACE
        return _follow(line, Printer(flags))


def _anywhere(prompt: str, flags: Flags) -> int:
    """Run it on another machine. Nothing runs here if that is not possible."""
    from remuda.boss.fleet_requests import FleetRequest

    request = FleetRequest(
        prompt,
        profile_options(flags),
        timeout=flags.get("--timeout", DEFAULT_TIMEOUT),
        stream="--stream" in flags,
        permissions=flags.get("--permissions"),
        requires=_requires(flags),
    )
    try:
        return _follow(request, Printer(flags))
    except (Signalled, OutputLost):
        ignore_signals()
        request.cancel()
        raise


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise InvalidOptions(
            "the current folder no longer exists", hint="change to another folder"
        ) from error


def profile_options(flags: Flags) -> dict[str, Any]:
    options = {name: flags.get(flag) for flag, name in PROFILE.items()}
    return {**options, "cwd": flags.get("--cwd"), "env": variables(flags.get("--env", []))}


def _requires(flags: Flags) -> dict[str, str]:
    required = {}
    if "--backend" in flags:
        required["backend"] = flags["--backend"]
    if "--demo" in flags:
        required["agent"] = "demo"
    if "--claude-binary" in flags:
        required["claude_binary"] = os.path.abspath(os.path.expanduser(flags["--claude-binary"]))
    return required


def _follow(line: PoolConnection | FleetRequest, printer: Printer) -> int:
    while (message := line.next())["type"] != "done":
        if message["type"] == "error":
            return printer.failed(one_line_error(message))
        if message["type"] == "retry":
            lost = message.get("lost")
            why = f"{lost} was lost" if lost else "a host met a rate limit"
            _complain(f"{why}; attempt {message.get('attempt')} runs elsewhere")
        printer.event(message)
    result = message["result"]
    if message.get("more") and printer.wants_usage and isinstance(line, PoolConnection):
        result["usage"] = _usage(line)
    printer.done(result)
    return EXIT_CODES["OK"]


def _usage(line: PoolConnection) -> Message | None:
    """Return the usage, which comes after the answer; None if the server is lost or a signal comes first."""
    try:
        return line.next().get("usage")
    except (RemudaError, Signalled):
        return None


# ── printing ──


class Printer:
    """Prints text or JSON; at the end, or as it arrives."""

    def __init__(self, flags: Flags) -> None:
        self._json, self._stream = "--json" in flags, "--stream" in flags
        self._last = "\n"

    @property
    def wants_usage(self) -> bool:
        return self._json

    def event(self, message: Message) -> None:
        if not self._stream:
            return
        if self._json:
            self._document(message)
        elif message["type"] == "token" and message["text"]:
            self._last = message["text"][-1]
            write(message["text"])

    def done(self, result: Message, *, cold: bool = False) -> None:
        if self._json:
            document = {**result, "cold": cold}
            self._document({"type": "done", "result": document} if self._stream else document)
        elif self._stream and self._last != "\n":
            write("\n")
        elif not self._stream:
            text = str(result["text"])
            write(text if text.endswith("\n") else f"{text}\n")

    def failed(self, error: RemudaError) -> int:
        if self._json:
            fields = {"code": error.code, "message": error.message, "hint": error.hint}
            self._document({"type": "error", **fields} if self._stream else {"error": fields})
        else:
            if self._stream and self._last != "\n":
                write("\n")
            _complain(str(error))
        return exit_code(error)

    @staticmethod
    def _document(document: Message) -> None:
        write(show_json(document) + "\n")


def _complain(text: str) -> None:
    say(f"remuda: {text}\n")
