"""The command line: the flags of the real program that matter here; its other flags are taken and ignored."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import VERSION

# ── the MOCK_* variables ──

# A switch is on with any value but the empty one and ``0``. The names are those that users of the mock of
# claude-print know; the last group is ours.

# The Stop payload's keys that can be left out, by the end of the variable's name.
_OMITTABLE = {
    "TRANSCRIPT_PATH": "transcript_path",
    "LAST_MESSAGE": "last_assistant_message",
    "SESSION_ID": "session_id",
    "CWD": "cwd",
}


@dataclass(frozen=True, slots=True)
class Knobs:
    """One run's deviations. The defaults are: none."""

    # The trust dialog.
    trust_dialog: bool | None = None  # MOCK_TRUST_DIALOG: ask in any case (1), never (0)
    trust_wording: str = ""  # MOCK_TRUST_WORDING: alternate | unresolvable | old
    trust_from_claude_json: bool = False  # a missing .claude.json means untrusted, as for the real program
    # Start.
    silent: bool = False  # MOCK_SILENT: not one byte of output
    unknown_probe: bool = False  # MOCK_UNKNOWN_PROBE: an unknown sequence, before the device query
    record_args: str = ""  # MOCK_RECORD_ARGS: a file that gets the arguments, each ended by NUL
    stop_before_inject: bool = False  # MOCK_STOP_BEFORE_INJECT: a Stop before there was any prompt
    # Turns.
    response: str | None = None  # MOCK_RESPONSE: the text of every answer
    turns: int = 1  # MOCK_TURNS: that many answers of the model to one prompt
    exit_before_stop: bool = False  # MOCK_EXIT_BEFORE_STOP: dies when Stop would fire
    delay_stop: float = 0.0  # MOCK_DELAY_STOP: milliseconds before Stop
    extra_stops: int = 0  # MOCK_EXTRA_STOPS: the number of further Stops after it
    omit: frozenset[str] = field(default_factory=frozenset)  # MOCK_OMIT_*: keys missing in the Stop payload
    # The transcript.
    delay_jsonl: float = 0.0  # MOCK_DELAY_JSONL: milliseconds until the last answer is in it
    writes_transcript: bool = True  # MOCK_WRITE_DERIVED_JSONL: 0 keeps the file away
    is_error: bool = False  # MOCK_IS_ERROR: a result record with is_error
    unknown_event_type: bool = False  # MOCK_UNKNOWN_EVENT_TYPE: a record of an unknown type
    unknown_usage_fields: bool = False  # MOCK_UNKNOWN_USAGE_FIELDS: more fields in usage
    # Ours.
    time_scale: float = 1.0  # MOCK_TIME_SCALE: factor for retries and notifications
    dialog_guard: float = 0.12  # MOCK_DIALOG_GUARD: milliseconds in which a new dialog drops all keys
    auto_mode_dialog: bool = False  # MOCK_AUTO_MODE_DIALOG: auto mode cannot check, and asks without a hook
    # Print mode.
    die_on: str = ""  # MOCK_DIE_ON: dies in the turn whose prompt holds this text
    die_code: int = 1  # MOCK_DIE_CODE: with this exit code
    die_saying: str = ""  # MOCK_DIE_SAYING: and these last words on stderr
    die_torn: bool = False  # MOCK_DIE_TORN: in the middle of a line
    delay_start: float = 0.0  # MOCK_DELAY_START: milliseconds before it reads anything
    delay_clear: float = 0.0  # MOCK_DELAY_CLEAR: milliseconds that /clear takes
    ignore_interrupt: bool = False  # MOCK_IGNORE_INTERRUPT: says yes to an interrupt and goes on
    ignore_term: bool = False  # MOCK_IGNORE_TERM: SIGTERM does nothing
    keep_conversation: bool = False  # MOCK_KEEP_CONVERSATION: /clear forgets nothing
    is_stray: bool = False  # MOCK_IS_STRAY: begins a turn of its own after a /clear

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Knobs:
        """Return the knobs that these variables turn; an invalid number counts as absent."""
        mock = {name[5:]: value for name, value in environ.items() if name.startswith("MOCK_")}

        def on(name: str) -> bool:
            return mock.get(name, "") not in ("", "0")

        def number(name: str, default: float) -> float:
            try:
                return float(mock[name])
            except (KeyError, ValueError):
                return default

        values: dict[str, Any] = {
            "trust_dialog": on("TRUST_DIALOG") if "TRUST_DIALOG" in mock else None,
            "trust_wording": mock.get("TRUST_WORDING", ""),
            "record_args": mock.get("RECORD_ARGS", ""),
            "response": mock.get("RESPONSE"),
            "turns": max(1, int(number("TURNS", 1))),
            "delay_stop": number("DELAY_STOP", 0) / 1000,
            "extra_stops": int(number("EXTRA_STOPS", 0)),
            "omit": frozenset(key for name, key in _OMITTABLE.items() if on(f"OMIT_{name}")),
            "delay_jsonl": number("DELAY_JSONL", 0) / 1000,
            "writes_transcript": mock.get("WRITE_DERIVED_JSONL") != "0",
            "time_scale": number("TIME_SCALE", 1),
            "dialog_guard": number("DIALOG_GUARD", 120) / 1000,
            "die_on": mock.get("DIE_ON", ""),
            "die_code": int(number("DIE_CODE", 1)),
            "die_saying": mock.get("DIE_SAYING", ""),
            "delay_start": number("DELAY_START", 0) / 1000,
            "delay_clear": number("DELAY_CLEAR", 0) / 1000,
        }
        switches = (
            "trust_from_claude_json silent unknown_probe stop_before_inject exit_before_stop"
            " is_error unknown_event_type unknown_usage_fields auto_mode_dialog"
            " die_torn ignore_interrupt ignore_term keep_conversation is_stray"
        )
        values |= {name: on(name.upper()) for name in switches.split()}
        return cls(**values)


# ── flags ──

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
        *("--settings", "--setting-sources", "--session-id", "--model", "--permission-mode", "--name"),
        *("--agent", "--agents", "--effort", "--append-system-prompt", "--append-system-prompt-file"),
        *("--system-prompt", "--system-prompt-file", "--fallback-model", "--input-format", "--output-format"),
        *("--max-turns", "--max-budget-usd", "--json-schema", "--permission-prompt-tool"),
        *("--permission-prompts", "--plugin-dir", "--debug-file", "--input-file"),
    )
)
# These take everything up to the next flag, a prompt too if it is there. So does the real program.
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
class AgentFlags:
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


def parse(arguments: Sequence[str]) -> AgentFlags:
    """Parse arguments, without the program's name. Raises UsageError if they break the rules."""
    options = AgentFlags()
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


_SWITCHES = {
    "--continue": "continues",
    "--fork-session": "fork",
    "--bare": "hooks_off",
    "--safe-mode": "hooks_off",
    "--dangerously-skip-permissions": "skips_permissions",
    "--print": "prints",
    "--include-partial-messages": "partial",
    "--version": "shows_version",
    "--help": "shows_help",
}
_TEXTS = ("--settings", "--resume", "--name", "--input-format", "--output-format")


def _apply(options: AgentFlags, flag: str, values: list[str]) -> None:
    value = values[0] if values else ""
    match _ALIASES.get(flag, flag):
        case switch if switch in _SWITCHES:
            setattr(options, _SWITCHES[switch], True)
        case text if text in _TEXTS:
            setattr(options, text[2:].replace("-", "_"), value)
        case "--setting-sources":
            options.setting_sources = tuple(name.strip() for name in value.split(",") if name.strip())
        case "--session-id":
            options.session_id = _session_id(value)
        case "--model":
            options.model = _MODEL_NAMES.get(value, value)
        case "--permission-mode":
            options.mode = _mode(value)
        case "--allowedTools":
            options.allowed_tools += _rules(values)
        case "--disallowedTools":
            options.disallowed_tools += _rules(values)
        case "--permission-prompt-tool":
            options.asks_stdio = value == "stdio"


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
    """Rules come one per argument or parted by commas and blanks, which may also be inside parentheses."""
    return [rule for value in values for rule in re.findall(r"[^\s,(]+(?:\([^)]*\))?", value)]
