"""The command line of `remuda print`. Pure: words in, a request or an error out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from remuda.agents import DEFAULT_AGENT, PLAIN_AGENTS, find_headless, find_stream, is_agent
from remuda.agents.headless import Handling, PrintFlags
from remuda.errors import InvalidOptions
from remuda.frozen import frozen

TYPE_CHECKING = False  # as type checkers read it; importing `typing` takes 2 ms
if TYPE_CHECKING:
    from typing import Any

BACKENDS = ("terminal", "stream")
FORMATS = ("text", "json", "stream-json")
DEFAULT_TIMEOUT = 3600.0
DEFAULT_FIRST_OUTPUT_TIMEOUT = 90.0
DEFAULT_STOP_HOOK_TIMEOUT = 120.0


def _flags(names: str) -> frozenset[str]:
    return frozenset(names.split())


OWN_WITH_VALUE = _flags(
    """
    --backend --claude-binary --config --first-output-timeout --input-file --pool-socket
    --stop-hook-timeout --stream-json-timeout --timeout
    """
)
OWN = OWN_WITH_VALUE | _flags(
    """
    --ask --check --clean --cold --demo --keep --no-inherit-hooks --pool --pretrust-cwd
    --show-child-output --trace
    """
)
"""Flags of `print` that the agent does not have."""
OWN_ALIASES = {"-f": "--input-file", "--show-child-stderr": "--show-child-output"}


class PrintRequest:
    """All options of a call, with their defaults. Made by name."""

    prompt_words: list[str]
    passed: list[str]
    """Flags for the agent, as they were given."""
    output_format: str = "text"
    input_format: str = "text"
    verbose: bool = False
    partial_messages: bool = False
    max_turns: int | None = None
    """0 for no limit, as in `claude -p`."""
    model: str | None = None
    backend: str = "terminal"
    input_file: str | None = None
    timeout: float | None = None
    first_output_timeout: float = DEFAULT_FIRST_OUTPUT_TIMEOUT
    stop_hook_timeout: float = DEFAULT_STOP_HOOK_TIMEOUT
    stream_json_timeout: float = 0.0
    """For the first message with `--output-format stream-json`."""
    claude_binary: str | None = None
    agent: str = DEFAULT_AGENT
    demo: bool = False
    """Use the scripted agent, which needs no account."""
    config: str | None = None
    inherit_hooks: bool | None = None
    pretrust_cwd: bool = False
    show_child_output: bool = False
    ask: bool = False
    keep: bool = False
    trace: bool = False
    check: bool = False
    clean: bool = False
    """With `check`: remove what killed calls left."""
    pool: str | None = None
    """The socket of the pool to use; empty for the default one."""
    cold: bool = False
    """For `remuda ask`: use no pool."""
    prefers_pool: bool = False
    """Use a pool if one is served and can carry it out; else run cold without a warning."""
    chose_backend: bool = False
    wants: str | None = None
    """`help` or `version`: do nothing else."""

    @property
    def reads_messages(self) -> bool:
        """Whether messages come on standard input in place of a prompt, until the caller closes it."""
        return self.input_format == "stream-json" and self.input_file is None

    def use_stream(self) -> None:
        """Change to the stream backend: the terminal was only the default, and cannot carry this out."""
        self.backend = "stream"
        if self.max_turns is not None:
            self.passed += ["--max-turns", str(self.max_turns)]

    def __init__(self, **options: Any) -> None:
        self.prompt_words, self.passed = [], []
        for name, value in options.items():
            if name not in self.__annotations__:
                raise TypeError(f"a request has no field {name!r}")
            setattr(self, name, value)
        if self.demo:
            self.agent = "demo"


def parse(words: Sequence[str], *, ask: bool = False) -> PrintRequest:
    """Read the words of `remuda print`, or of `remuda ask`. Raises `InvalidOptions`."""
    request = PrintRequest()
    flags, arguments = _choose_agent(request, words)
    for argument in arguments:
        if argument.flag in OWN:
            _take_own(request, argument, flags)
    if request.backend not in BACKENDS:
        raise InvalidOptions(f"unknown backend {request.backend!r}", hint=f"use {' or '.join(BACKENDS)}")
    for argument in arguments:
        if argument.flag is None:
            request.prompt_words += argument.values
        elif argument.flag not in OWN:
            _take(request, argument.flag, argument, flags)
    _check(request)
    _choose_pool(request, ask=ask)
    return request


def _choose_agent(request: PrintRequest, words: Sequence[str]) -> tuple[PrintFlags, list[Argument]]:
    """Return the flags of the agent that `--agent` names, and the words as that agent splits them.

    Claude Code has a flag of that name. So a name that is not an agent's goes to the default agent.
    """
    flags = find_headless(DEFAULT_AGENT).print_flags
    arguments = list(_split(words, flags))
    named = [one.values[0] for one in arguments if one.flag == "--agent" and one.values]
    agent = next((name for name in named if name not in PLAIN_AGENTS and is_agent(name)), None)
    if agent is None:
        return flags, arguments
    request.agent = agent
    if agent != DEFAULT_AGENT:
        flags = find_headless(agent).print_flags
        arguments = list(_split(words, flags, OWN_WITH_VALUE | {"--agent"}))
    choice = next(one for one in arguments if one.flag == "--agent" and one.values == [agent])
    arguments.remove(choice)
    return flags, arguments


def _choose_pool(request: PrintRequest, *, ask: bool) -> None:
    if request.cold and not ask:
        raise InvalidOptions("--cold needs 'remuda ask'", hint="'remuda print' runs cold without it")
    if request.cold and request.pool is not None:
        raise InvalidOptions("--cold and --pool cannot be combined")
    if ask and not request.cold and request.pool is None:
        request.pool, request.prefers_pool = "", True


@frozen
class Argument:
    """A flag by its full name, with its values; without a flag, a word of the prompt."""

    flag: str | None
    values: list[str]
    joined: bool = False
    """It was written as `--flag=value`."""


def _split(
    words: Sequence[str], flags: PrintFlags, own: frozenset[str] = OWN_WITH_VALUE
) -> Iterator[Argument]:
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if word == "--":
            yield from (Argument(None, [rest]) for rest in words[position:])
            return
        if not word.startswith("-") or word == "-":
            yield Argument(None, [word])
            continue
        name, equals, value = word.partition("=")
        flag = OWN_ALIASES.get(name) or flags.aliases.get(name, name)
        values = [value] if equals else []
        while not equals and position < len(words):
            word, have = words[position], len(values)
            if not (have == 0 if flag in own else flags.takes(flag, have, word)):
                break
            values.append(word)
            position += 1
        yield Argument(flag, values, bool(equals))


def _needed(flag: str, values: list[str], flags: PrintFlags) -> list[str]:
    if not values and (flag in OWN_WITH_VALUE or flag in flags.needs_value):
        raise InvalidOptions(f"{flag} needs a value")
    return values


# ── our own flags ──


def _take_own(request: PrintRequest, argument: Argument, flags: PrintFlags) -> None:
    flag = str(argument.flag)
    values = _needed(flag, argument.values, flags)
    if flag in ("--pool", "--pool-socket"):
        request.pool = values[0] if values else ""
    elif flag in OWN_WITH_VALUE:
        request.chose_backend = request.chose_backend or flag == "--backend"
        _set_value(request, flag, values[0])
    elif values:
        raise InvalidOptions(f"{flag} takes no value")
    else:
        _set(request, flag)


def _set(request: PrintRequest, flag: str) -> None:
    if flag == "--no-inherit-hooks":
        request.inherit_hooks = False
    elif flag == "--demo":
        request.demo, request.agent = True, "demo"
    else:
        setattr(request, flag[2:].replace("-", "_"), True)


def _set_value(request: PrintRequest, flag: str, value: str) -> None:
    name = flag[2:].replace("-", "_")
    setattr(request, name, seconds(flag, value) if name.endswith("timeout") else value)


def seconds(flag: str, text: str) -> float:
    """Return the seconds of a TIME. Raises `InvalidOptions`, with the flag."""
    from remuda.duration import parse_time

    try:
        return parse_time(text)
    except InvalidOptions as error:
        raise InvalidOptions(f"{flag}: {error.message}", hint=error.hint) from None


# ── the agent's flags ──


def _take(request: PrintRequest, flag: str, argument: Argument, flags: PrintFlags) -> None:
    handling = flags.handling(flag, request.backend)
    if handling is None:
        from remuda.names import did_you_mean

        known = [*flags.terminal, *OWN, *flags.aliases, *OWN_ALIASES]
        raise InvalidOptions(
            f"unknown option {flag}", hint=did_you_mean(flag, known) or "--help lists all options"
        )
    if handling is Handling.REFUSED:
        raise InvalidOptions(f"{flag} does not work in a one-shot run")
    if handling is Handling.STREAM:
        raise InvalidOptions(f"{flag} does not work on the terminal backend", hint="add --backend stream")
    values = _needed(flag, argument.values, flags)
    if flag in _NAMED and not any(values):
        raise InvalidOptions(f"{flag} needs the id or title of a conversation")
    if flag in flags.ours or flag in _CARRIED:
        _carry(request, flag, values)
    if handling is Handling.PASSED:
        request.passed += [f"{flag}={values[0]}"] if argument.joined else [flag, *values]
        if flag == "--model":
            request.model = values[0] if values else None


_NAMED = frozenset(["--resume", "--from-pr"])  # without a value they open a list to choose from
_CARRIED = frozenset(["--max-turns", "--input-format", "--permission-prompts"])


def _carry(request: PrintRequest, flag: str, values: list[str]) -> None:
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
            "--permission-prompts host does not work on the terminal backend",
            hint="use --ask, or add --backend stream",
        )


def _one_of(flag: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise InvalidOptions(f"{flag} {value!r} is not one of {', '.join(choices)}")
    return value


def _whole_number(flag: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidOptions(f"{flag} {text[:40]!r} is not an integer")
    return int(text)


def _check(request: PrintRequest) -> None:
    if request.output_format == "stream-json" and not request.verbose:
        raise InvalidOptions("--output-format stream-json needs --verbose, as in claude -p")
    if request.partial_messages and request.output_format != "stream-json":
        raise InvalidOptions("--include-partial-messages needs --output-format stream-json")
    if request.backend == "stream":
        find_stream(request.agent)
    if request.demo and request.claude_binary is not None:
        raise InvalidOptions("--demo and --claude-binary cannot be combined")
    if request.clean and not request.check:
        raise InvalidOptions("--clean needs --check")
    if request.backend == "terminal" and request.input_format != "text":
        raise InvalidOptions(
            "--input-format stream-json does not work on the terminal backend", hint="add --backend stream"
        )
    if request.input_format != "text" and request.output_format != "stream-json":
        raise InvalidOptions("--input-format stream-json needs --output-format stream-json, as in claude -p")
    if request.backend == "stream" and (request.ask or request.keep):
        raise InvalidOptions(
            "--ask and --keep do not work on the stream backend", hint="remove --backend stream"
        )
