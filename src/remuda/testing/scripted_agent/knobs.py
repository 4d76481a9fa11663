"""The ``MOCK_*`` variables: ways to misbehave, or to hurry, that the real program shows only by chance.

A switch is on with any value but the empty one and ``0``. The names are those that users of the mock of
claude-print know; the last group is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
    unknown_probe: bool = False  # MOCK_UNKNOWN_PROBE: a sequence nobody knows, before the device query
    record_args: str = ""  # MOCK_RECORD_ARGS: a file that gets the arguments, each ended by NUL
    stop_before_inject: bool = False  # MOCK_STOP_BEFORE_INJECT: a Stop before there was any prompt
    # Turns.
    response: str | None = None  # MOCK_RESPONSE: the text of every answer
    turns: int = 1  # MOCK_TURNS: that many answers of the model to one prompt
    exit_before_stop: bool = False  # MOCK_EXIT_BEFORE_STOP: dies when Stop would fire
    delay_stop: float = 0.0  # MOCK_DELAY_STOP: milliseconds before Stop
    extra_stops: int = 0  # MOCK_EXTRA_STOPS: so many more Stops after it
    omit: frozenset[str] = field(default_factory=frozenset)  # MOCK_OMIT_*: keys missing in the Stop payload
    # The transcript.
    delay_jsonl: float = 0.0  # MOCK_DELAY_JSONL: milliseconds until the last answer is in it
    writes_transcript: bool = True  # MOCK_WRITE_DERIVED_JSONL: 0 keeps the file away
    is_error: bool = False  # MOCK_IS_ERROR: a result record with is_error
    unknown_event_type: bool = False  # MOCK_UNKNOWN_EVENT_TYPE: a record of a type nobody knows
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
        """The knobs that these variables turn; a number that is none counts as absent."""
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
