"""The command line: the flags of the real program that matter here; its other flags are taken and ignored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from . import VERSION

MODES = ("acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "plan")
DEFAULT_MODEL = "claude-opus-5-5"
_MODEL_NAMES = {"opus": "claude-opus-5-5", "sonnet": "claude-sonnet-5-5", "haiku": "claude-haiku-5-5"}
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)

_SHORT = {
    "-c": "--continue",
    "-n": "--name",
    "-p": "--print",
    "-r": "--resume",
    "-v": "--version",
    "-h": "--help",
}
_ALIASES = {"--allowed-tools": "--allowedTools", "--disallowed-tools": "--disallowedTools"}
_ONE_VALUE = frozenset(
    (
        *(
            "--settings",
            "--setting-sources",
            "--session-id",
            "--model",
            "--permission-mode",
            "--name",
            "--agent",
        ),
        *("--agents", "--effort", "--append-system-prompt", "--append-system-prompt-file", "--system-prompt"),
        *("--system-prompt-file", "--fallback-model", "--input-format", "--output-format", "--max-turns"),
        *("--max-budget-usd", "--json-schema", "--permission-prompt-tool", "--permission-prompts"),
        *("--plugin-dir", "--debug-file", "--input-file"),
    )
)
# These take everything up to the next flag, a prompt too if it stands there. So does the real program.
_MANY_VALUES = frozenset(
    ["--allowedTools", "--disallowedTools", "--tools", "--add-dir", "--mcp-config", "--betas", "--file"]
)
_OPTIONAL_VALUE = frozenset(["--resume", "--debug", "--worktree", "--from-pr", "--remote-control"])

USAGE = f"""\
usage: python -m remuda.testing.scripted_agent [flags] [PROMPT]

Plays Claude Code {VERSION}, with made-up answers and no network: its terminal interface, and with -p its
print mode, also as a stream of messages.

  --settings FILE|JSON        hooks and permissions, added to those of the settings files
  --setting-sources LIST      which settings files count: user, project, local
  --session-id UUID           the conversation's id
  --resume [ID], --continue   go on with a conversation; --fork-session under a new id
  --permission-mode MODE      {", ".join(MODES)} (manual is default)
  --allowedTools, --disallowedTools, --dangerously-skip-permissions
  --model, --name, --bare, --safe-mode, --version
  -p, --input-format text|stream-json, --output-format text|json|stream-json, --include-partial-messages,
  --permission-prompt-tool stdio

Prompts that do something: RUNBASH cmd, TOOL {{json}}, SLOW secs, THINK secs, err 529. The MOCK_* variables
that make it misbehave are listed in the documentation of remuda.testing.
"""


class UsageError(Exception):
    """The command line cannot be used; the message is for stderr, the code for exit."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


@dataclass(slots=True)
class Options:
    """The flags that matter here."""

    prompt: str | None = None
    settings: str | None = None
    setting_sources: tuple[str, ...] = ("user", "project", "local")
    session_id: str | None = None
    resume: str | None = None
    continues: bool = False
    fork: bool = False
    model: str = DEFAULT_MODEL
    mode: str | None = None
    name: str | None = None
    hooks_off: bool = False
    skips_permissions: bool = False
    allowed_tools: list[str] = field(default_factory=list)
    disallowed_tools: list[str] = field(default_factory=list)
    prints: bool = False
    input_format: str = "text"
    output_format: str = "text"
    partial: bool = False
    asks_stdio: bool = False
    shows_version: bool = False
    shows_help: bool = False


def parse(arguments: Sequence[str]) -> Options:
    """The options of these arguments, without the program's name; UsageError when they break the rules."""
    options = Options()
    rest = list(arguments)
    words: list[str] = []
    while rest:
        word = rest.pop(0)
        if word == "--":
            words += rest
            break
        if word.startswith("-") and len(word) > 1:
            flag, equals, given = word.partition("=")
            flag = _SHORT.get(flag, flag)
            _apply(options, flag, _values(flag, given if equals else None, rest))
        else:
            words.append(word)
    options.prompt = words[0] if words else None
    return options


def _values(flag: str, given: str | None, rest: list[str]) -> list[str]:
    if given is not None:
        return [given]
    if flag in _ONE_VALUE:
        if not rest:
            raise UsageError(f"error: option '{flag} <value>' argument missing")
        return [rest.pop(0)]
    limit = len(rest) if _ALIASES.get(flag, flag) in _MANY_VALUES else 1 if flag in _OPTIONAL_VALUE else 0
    values: list[str] = []
    while rest and len(values) < limit and not rest[0].startswith("-"):
        values.append(rest.pop(0))
    return values


def _apply(options: Options, flag: str, values: list[str]) -> None:  # noqa: C901  # a table, one line per flag
    value = values[0] if values else ""
    match _ALIASES.get(flag, flag):
        case "--settings":
            options.settings = value
        case "--setting-sources":
            options.setting_sources = tuple(name.strip() for name in value.split(",") if name.strip())
        case "--session-id":
            options.session_id = _session_id(value)
        case "--resume":
            options.resume = value
        case "--continue":
            options.continues = True
        case "--fork-session":
            options.fork = True
        case "--model":
            options.model = _MODEL_NAMES.get(value, value)
        case "--permission-mode":
            options.mode = _mode(value)
        case "--name":
            options.name = value
        case "--bare" | "--safe-mode":
            options.hooks_off = True
        case "--dangerously-skip-permissions":
            options.skips_permissions = True
        case "--allowedTools":
            options.allowed_tools += _rules(values)
        case "--disallowedTools":
            options.disallowed_tools += _rules(values)
        case "--print":
            options.prints = True
        case "--input-format":
            options.input_format = value
        case "--output-format":
            options.output_format = value
        case "--include-partial-messages":
            options.partial = True
        case "--permission-prompt-tool":
            options.asks_stdio = value == "stdio"
        case "--version":
            options.shows_version = True
        case "--help":
            options.shows_help = True


def _session_id(value: str) -> str:
    if not _UUID.fullmatch(value):
        raise UsageError("Error: Invalid session ID. Must be a valid UUID.")
    return value


def _mode(value: str) -> str:
    mode = "default" if value == "manual" else value
    if mode not in MODES:
        allowed = ", ".join((*MODES, "manual"))
        raise UsageError(
            f"error: option '--permission-mode <mode>' argument '{value}' is invalid."
            f" Allowed choices are {allowed}."
        )
    return mode


def _rules(values: list[str]) -> list[str]:
    """Rules come one per argument or parted by commas and blanks, which may also stand inside parentheses."""
    return [rule for value in values for rule in re.findall(r"[^\s,(]+(?:\([^)]*\))?", value)]
