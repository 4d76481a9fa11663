"""What a command line of `remuda print` asks for. Pure: words in, a request or an error out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from remuda.agents.claude.flags import MANY_VALUES, ONE_VALUE, takes
from remuda.errors import InvalidOptions

from .flags import ALIASES, OURS_ALWAYS, OWN, OWN_ALIASES, OWN_WITH_VALUE, Handling, handling

BACKENDS = ("terminal", "stream")
FORMATS = ("text", "json", "stream-json")
DEFAULT_TIMEOUT = 3600.0
DEFAULT_FIRST_OUTPUT_TIMEOUT = 90.0
DEFAULT_STOP_HOOK_TIMEOUT = 120.0


class Request:
    """All that can be asked for, as it mostly is; made by name."""

    prompt_words: list[str]
    passed: list[str]
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
    pool: str | None = None
    """Through the pool that is served there, or, where it is empty, where pools are served."""
    chose_backend: bool = False
    wants: str | None = None
    """`help` or `version`: nothing else is to be done."""

    @property
    def reads_messages(self) -> bool:
        """Whether messages come on standard input, for as long as the caller likes, in place of a prompt."""
        return self.input_format == "stream-json" and self.input_file is None

    def __init__(self, **given: Any) -> None:
        self.prompt_words, self.passed = [], []
        for name, value in given.items():
            if name not in self.__annotations__:
                raise TypeError(f"there is no {name!r} in a request")
            setattr(self, name, value)


def parse(words: Sequence[str]) -> Request:
    """Raises `InvalidOptions`."""
    request = Request()
    given = list(_walk(words))
    for one in given:
        if one.flag in OWN:
            _take_own(request, one)
    if request.backend not in BACKENDS:
        raise InvalidOptions(f"unknown backend {request.backend!r}", hint=f"use {' or '.join(BACKENDS)}")
    for one in given:
        if one.flag is None:
            request.prompt_words += one.values
        elif one.flag not in OWN:
            _take(request, one.flag, one)
    _check(request)
    return request


class Given(NamedTuple):
    """A flag by its own name, with its values; without a flag, a word of the prompt."""

    flag: str | None
    values: list[str]
    joined: bool = False
    """It was written as `--flag=value`."""


def _walk(words: Sequence[str]) -> Iterator[Given]:
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word == "--":
            yield from (Given(None, [rest]) for rest in words[position:])
            return
        if not word.startswith("-") or word == "-":
            yield Given(None, [word])
            continue
        name, equals, value = word.partition("=")
        flag = OWN_ALIASES.get(name) or ALIASES.get(name, name)
        values = [value] if equals else []
        while not equals and position < len(words) and _belongs(flag, len(values), words[position]):
            values.append(words[position])
            position += 1
        yield Given(flag, values, bool(equals))


def _belongs(flag: str, have: int, word: str) -> bool:
    return have == 0 if flag in OWN_WITH_VALUE else takes(flag, have, word)


def _needed(flag: str, values: list[str]) -> list[str]:
    if not values and flag in OWN_WITH_VALUE | ONE_VALUE | MANY_VALUES:
        raise InvalidOptions(f"{flag} needs a value")
    return values


# ── our own flags ──


def _take_own(request: Request, given: Given) -> None:
    flag = str(given.flag)
    values = _needed(flag, given.values)
    if flag == "--pool":
        request.pool = values[0] if values else ""
    elif flag in OWN_WITH_VALUE:
        request.chose_backend = request.chose_backend or flag == "--backend"
        _set_value(request, flag, values[0])
    elif values:
        raise InvalidOptions(f"{flag} takes no value")
    else:
        _set(request, flag)


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


def _take(request: Request, flag: str, given: Given) -> None:
    found = handling(flag, request.backend)
    if found is None:
        raise InvalidOptions(f"unknown option {flag}", hint="'remuda print --help' lists those there are")
    if found is Handling.REFUSED:
        raise InvalidOptions(f"{flag} makes no call that could be printed")
    if found is Handling.STREAM:
        raise InvalidOptions(f"{flag} is not for a terminal", hint="use it with --backend stream")
    values = _needed(flag, given.values)
    if flag in _NAMED and not any(values):
        raise InvalidOptions(f"{flag} needs the conversation's id or title, as it does with claude -p")
    if flag in _CARRIED:
        _carry(request, flag, values)
    if found is Handling.PASSED:
        request.passed += [f"{flag}={values[0]}"] if given.joined else [flag, *values]
        if flag == "--model":
            request.model = values[0] if values else None


_NAMED = frozenset(["--resume", "--from-pr"])  # without a value they open a list to choose from
_CARRIED = OURS_ALWAYS | frozenset(["--max-turns", "--input-format", "--permission-prompts"])


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
    if request.input_format != "text" and request.output_format != "stream-json":
        raise InvalidOptions(
            "--input-format stream-json needs --output-format stream-json, as it does with claude -p"
        )
    if request.backend == "stream" and (request.ask or request.keep):
        raise InvalidOptions(
            "--ask and --keep need a terminal to attach to", hint="leave --backend stream out"
        )
