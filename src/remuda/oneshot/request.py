"""What a command line of `remuda print` asks for. Pure: words in, a request or an error out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from remuda.agents.claude.flags import split_arguments
from remuda.errors import InvalidOptions

from .flags import ALIASES, OWN, OWN_ALIASES, OWN_WITH_VALUE, Handling, handling

BACKENDS = ("terminal", "stream")
FORMATS = ("text", "json", "stream-json")
DEFAULT_TIMEOUT = 3600.0
DEFAULT_FIRST_OUTPUT_TIMEOUT = 90.0
DEFAULT_STOP_HOOK_TIMEOUT = 120.0


@dataclass(slots=True)
class Request:
    prompt_words: list[str] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    """Flags for the CLI, as they were given."""
    output_format: str = "text"
    input_format: str = "text"
    verbose: bool = False
    partial_messages: bool = False
    max_turns: int | None = None
    """0 is no limit, as with the CLI."""
    model: str | None = None
    backend: str = "terminal"
    input_file: str | None = None
    timeout: float | None = None
    first_output_timeout: float = DEFAULT_FIRST_OUTPUT_TIMEOUT
    stop_hook_timeout: float = DEFAULT_STOP_HOOK_TIMEOUT
    claude_binary: str | None = None
    config: str | None = None
    inherit_hooks: bool | None = None
    pretrust_cwd: bool = False
    show_child_output: bool = False
    ask: bool = False
    keep: bool = False
    trace: bool = False
    check: bool = False
    clean: bool = False
    """With `check`: remove what is left of dead calls."""
    wants: str | None = None
    """`help` or `version`: nothing else is to be done."""


def parse(words: Sequence[str]) -> Request:
    """Raises `InvalidOptions`."""
    request = Request()
    rest = list(_take_own(words, request))
    if request.backend not in BACKENDS:
        raise InvalidOptions(f"unknown backend {request.backend!r}", hint=f"use {' or '.join(BACKENDS)}")
    for flag, values in split_arguments([_known(word) for word in rest]):
        if flag is None:
            request.prompt_words += values
        else:
            _take(request, flag, values)
    _check(request)
    return request


# ── our own flags ──


def _take_own(words: Sequence[str], request: Request) -> Iterator[str]:
    """Takes ours out; what is left is for the CLI, with `--` and all behind it as it stands."""
    given = iter(words)
    for word in given:
        if word == "--":
            yield word
            yield from given
            return
        flag, equals, value = word.partition("=")
        flag = OWN_ALIASES.get(flag, flag)
        if flag not in OWN:
            yield word
        elif flag in OWN_WITH_VALUE:
            _set_value(request, flag, value if equals else _next(given, flag))
        elif equals:
            raise InvalidOptions(f"{flag} takes no value")
        else:
            _set(request, flag)


def _next(given: Iterator[str], flag: str) -> str:
    try:
        return next(given)
    except StopIteration:
        raise InvalidOptions(f"{flag} needs a value") from None


def _set(request: Request, flag: str) -> None:
    if flag == "--no-inherit-hooks":
        request.inherit_hooks = False
    else:
        setattr(request, flag[2:].replace("-", "_"), True)


def _set_value(request: Request, flag: str, value: str) -> None:
    name = flag[2:].replace("-", "_")
    setattr(request, name, seconds(flag, value) if name.endswith("timeout") else value)


def seconds(flag: str, text: str) -> float:
    try:
        given = float(text)
    except ValueError:
        given = -1.0
    if not 0 <= given < 1e9:
        raise InvalidOptions(f"{flag} {text!r} is not a number of seconds")
    return given


# ── the CLI's flags ──


def _known(word: str) -> str:
    """The flag's own name, where it is written as one of its others."""
    if not word.startswith("-"):
        return word
    flag, equals, value = word.partition("=")
    return f"{ALIASES.get(flag, flag)}{equals}{value}"


def _take(request: Request, word: str, values: list[str]) -> None:
    flag, equals, value = word.partition("=")
    values = [value, *values] if equals else values
    found = handling(flag, request.backend)
    if found is None:
        raise InvalidOptions(f"unknown option {flag}", hint="'remuda print --help' lists those there are")
    if found is Handling.REFUSED:
        raise InvalidOptions(f"{flag} makes no call that could be printed")
    if found is Handling.STREAM:
        raise InvalidOptions(f"{flag} is not for a terminal", hint="use it with --backend stream")
    if flag in _NAMED and not any(values):
        raise InvalidOptions(f"{flag} needs the conversation's id or title, as it does with claude -p")
    if flag in _CARRIED:
        _carry(request, flag, values)
    if found is Handling.PASSED and flag not in _FORMATS_OURS:
        request.passed += [word, *([] if equals else values)]
        if flag == "--model":
            request.model = values[0] if values else None


_NAMED = frozenset(["--resume", "--from-pr"])  # without a value they open a list to choose from
_FORMATS_OURS = frozenset(
    ["--print", "--output-format", "--help", "--version", "--include-partial-messages", "--verbose"]
)
_CARRIED = _FORMATS_OURS | frozenset(["--max-turns", "--input-format", "--permission-prompts"])


def _carry(request: Request, flag: str, values: list[str]) -> None:
    value = values[0] if values else ""
    if flag in ("--help", "--version"):
        request.wants = request.wants or flag[2:]
    elif flag == "--verbose":
        request.verbose = True
    elif flag == "--include-partial-messages":
        request.partial_messages = True
    elif flag == "--output-format":
        request.output_format = _one_of(flag, value, FORMATS)
    elif flag == "--input-format":
        request.input_format = _one_of(flag, value, ("text", "stream-json"))
    elif flag == "--max-turns":
        request.max_turns = _whole_number(flag, value)
    elif flag == "--permission-prompts" and value != "none" and request.backend == "terminal":
        raise InvalidOptions(
            "--permission-prompts host is not for a terminal", hint="use --ask, or --backend stream"
        )


def _one_of(flag: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise InvalidOptions(f"{flag} {value!r} is not one of {', '.join(choices)}")
    return value


def _whole_number(flag: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InvalidOptions(f"{flag} {text!r} is not a whole number")
    return int(text)


def _check(request: Request) -> None:
    if request.output_format == "stream-json" and not request.verbose:
        raise InvalidOptions("--output-format stream-json needs --verbose, as it does with claude -p")
    if request.partial_messages and request.output_format != "stream-json":
        raise InvalidOptions("--include-partial-messages is for --output-format stream-json")
    if request.clean and not request.check:
        raise InvalidOptions("--clean is for --check")
    if request.backend == "terminal" and request.input_format != "text":
        raise InvalidOptions("--input-format stream-json is not for a terminal", hint="use --backend stream")
    if request.backend == "stream" and (request.ask or request.keep):
        raise InvalidOptions(
            "--ask and --keep need a terminal to attach to", hint="leave --backend stream out"
        )
