"""How Claude Code is spoken to, and what it says of a turn: hooks and transcript as signals. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from remuda.agents.speech import (
    Carried,
    Choice,
    CommandRun,
    CommandUnknown,
    Composer,
    Failed,
    Failure,
    Interrupted,
    Launched,
    Past,
    Recorded,
    Refused,
    Said,
    Signal,
    Stopped,
    Submitted,
    Task,
    WrittenDown,
)
from remuda.digest import sha256
from remuda.duration import clamp_seconds

from . import prompt as prompts
from .answers import TASK_NOTICE as _NOTICE
from .files import config_folder
from .limit import reset_in_words, reset_of
from .order import in_order
from .screen import open_dialog, read_composer, read_trust_choice

_FINAL = ("end_turn", "stop_sequence", "max_tokens", "refusal")
_INTERRUPTED = "[Request interrupted by user"
# At its beginning only: a prompt may quote one.
_COMMAND_NAME = re.compile(
    r"\s*(?:<command-message>[^<]*</command-message>\s*)?<command-name>/?([^<]+)</command-name>"
)
# What a command printed, as `/compact` of 2.1.315 and before; later versions have a `system` record for it.
_COMMAND_OUTPUT = re.compile(r"\s*<local-command-std(out|err)>.*</local-command-std\1>\s*", re.DOTALL)
# What it tells itself when a usage limit is over (2.1.325).
_CONTINUES = "Your claude.ai usage limit has reset. Continue the task"
_TASK_ID = re.compile(r"<task-id>([^<]+)</task-id>")
_UNKNOWN_COMMAND = re.compile(r"Unknown command: /?(\S+)")
_WAIT = re.compile(
    r"(?:try again|retry|resets?|wait)\D{0,20}(\d+)\s*"
    r"(s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?)\b",
    re.IGNORECASE,
)
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_FAILURES = {
    "rate_limit": Failure.RATE_LIMITED,
    "overloaded": Failure.OVERLOADED,
    "server_error": Failure.OVERLOADED,
    "authentication_failed": Failure.AUTHENTICATION,
    "billing_error": Failure.AUTHENTICATION,
    "oauth_org_not_allowed": Failure.AUTHENTICATION,
    "invalid_request": Failure.INVALID,
    "model_not_found": Failure.INVALID,
}
_SYSTEM: dict[str, Signal] = {"local_command": CommandRun(""), "turn_duration": WrittenDown()}
# A record may be dated a moment before we wrote that it was handed over.
_CLOCK_SLACK = 2.0


class ClaudeSpeech:
    stash = b"\x13"
    enter = b"\r"
    interrupt = b"\x1b"
    wipe = b"\x1b"  # not Ctrl-C: a second one ends the agent, whatever was typed between the two
    max_argument_bytes = prompts.MAX_ARGUMENT_BYTES

    def check(self, prompt: str, *, command: bool, literal: bool) -> None:
        prompts.check(prompt, command=command, literal=literal)

    def paste(self, prompt: str, *, command: bool) -> Carried:
        return prompts.paste(prompt, command=command)

    def argument(self, prompt: str, *, command: bool) -> Carried | None:
        return prompts.argument(prompt, command=command)

    def same(self, reported: str, prompt: str) -> bool:
        return prompts.same(reported, prompt)

    def holds(self, reported: str, prompt: str) -> bool:
        return prompts.holds(reported, prompt)

    def composer(self, lines: Sequence[str], styled: Callable[[int], bytes]) -> Composer:
        return read_composer(lines, styled)

    def dialog(self, lines: Sequence[str]) -> str | None:
        return open_dialog(lines)

    def trust_choice(self, lines: Sequence[str]) -> Choice | None:
        return read_trust_choice(lines)

    # ── hooks ──

    def hook_signal(self, payload: Mapping[str, Any]) -> Signal | None:
        event = payload.get("hook_event_name")
        prompt_id = _text(payload, "prompt_id")
        if event == "UserPromptSubmit":
            prompt = str(payload.get("prompt", ""))
            notice = prompt.startswith(_NOTICE)
            ends = frozenset(_TASK_ID.findall(prompt) if notice else ())
            return Submitted(prompt, prompt_id, notice, ends, prompt.startswith(_CONTINUES))
        if event == "Stop":
            return Stopped(
                str(payload.get("last_assistant_message") or ""),
                prompt_id,
                tuple(_running(payload.get("background_tasks"))),
                _text(payload, "session_id"),
            )
        if event == "StopFailure":
            text = str(payload.get("last_assistant_message") or payload.get("error") or "")
            return Failed(_failure(payload.get("error"), text), text, prompt_id, _delay(text))
        if event == "PostToolUse" and not payload.get("agent_id"):
            return _launched(payload.get("tool_response"))
        if event == "SessionStart" and payload.get("source") == "clear":
            return CommandRun("clear", confirmed=True, conversation=_text(payload, "session_id"))
        return None

    # ── transcript ──

    def record_signal(self, record: Mapping[str, Any]) -> Signal | None:
        if record.get("isSidechain") or record.get("isMeta"):
            return None
        kind = record.get("type")
        if kind == "assistant":
            return _assistant(record)
        if kind == "system":
            return _refused(record) or _unknown(record) or _SYSTEM.get(str(record.get("subtype")))
        # What it sums itself up with, to go on with the same turn, is nobody's prompt.
        if kind != "user" or _is_tool_result(record) or record.get("isCompactSummary"):
            return None
        text = _content(record)
        if text.startswith(_INTERRUPTED):
            return Interrupted(_text(record, "promptId"))
        if found := _COMMAND_NAME.match(text):
            return CommandRun(found[1], finished=False)
        if _COMMAND_OUTPUT.fullmatch(text):
            return CommandRun("")
        return Recorded(text, _text(record, "promptId"), _text(record, "sessionId"))

    def past(self, records: Iterable[Mapping[str, Any]], prompt: str, since: float) -> Past:
        past = Past()
        for record in in_order(records):
            if record.get("isSidechain"):
                continue
            if not past.submitted:
                past = self._begun(record, prompt, since)
            elif self._is_next_prompt(record):
                break
            else:
                past = _went_on(past, record)
        return past

    def _is_next_prompt(self, record: Mapping[str, Any]) -> bool:
        """Somebody's next prompt: what is said from here on answers that. A notice to itself is none."""
        signal = self.record_signal(record)
        return isinstance(signal, Recorded) and not signal.prompt.startswith(_NOTICE)

    def _begun(self, record: Mapping[str, Any], prompt: str, since: float) -> Past:
        signal = self.record_signal(record)
        if (
            isinstance(signal, Recorded)
            and self.same(signal.prompt, prompt)
            and _epoch(record) >= since - _CLOCK_SLACK
        ):
            return Past(submitted=True, prompt_id=signal.prompt_id)
        return Past()

    # ── the account ──

    def limited_for(self, text: str, now: float) -> float | None:
        reset = reset_in_words(text, now)
        # Its seconds are not told: it ends with that minute.
        return None if reset is None else reset + 60.0 - now

    def account(self, env: Mapping[str, str]) -> str:
        """Home, service and the credential's source; a secret goes in as its digest only."""
        source = next((f"{name}={env[name]}" for name in _CREDENTIALS if env.get(name)), "file")
        base = env.get("ANTHROPIC_BASE_URL", "")
        return sha256(f"{config_folder(env)}\0{base}\0{source}".encode())[:24]


_CREDENTIALS = ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN")


def _went_on(past: Past, record: Mapping[str, Any]) -> Past:
    """What the next record adds to a turn that is known to have begun."""
    kind = record.get("type")
    if kind == "assistant":
        if _is_final(record):
            return Past(True, True, _content(record), past.prompt_id, past.interrupted)
        return past
    if kind == "user" and not past.answered and _content(record).startswith(_INTERRUPTED):
        return Past(True, False, past.text, past.prompt_id, True)
    return past


def _is_final(record: Mapping[str, Any]) -> bool:
    """Whether it ends a turn, and is the model's own: of an answer that a resumed conversation lacks, the CLI
    writes "No response requested." itself."""
    message = record.get("message")
    if not isinstance(message, dict) or record.get("isApiErrorMessage"):
        return False
    return message.get("model") != "<synthetic>" and message.get("stop_reason") in _FINAL


def _unknown(record: Mapping[str, Any]) -> CommandUnknown | None:
    found = _UNKNOWN_COMMAND.match(str(record.get("content", "")))
    return CommandUnknown(found[1]) if found and record.get("subtype") == "informational" else None


def _refused(record: Mapping[str, Any]) -> Refused | None:
    told = record.get("promptSubmitEnding")
    ending = told.get("ending") if isinstance(told, dict) else None
    if not isinstance(ending, dict) or ending.get("kind") != "blocked_by_hook":
        return None
    return Refused(str(ending.get("reason") or ""))


def _assistant(record: Mapping[str, Any]) -> Signal | None:
    message = record.get("message")
    if not isinstance(message, dict):
        return None
    if record.get("isApiErrorMessage"):
        text = _content(record)
        kind = _failure(record.get("error"), text)
        return Failed(kind, text, None, _left(record) or _delay(text))
    usage, number = message.get("usage"), message.get("id")
    if not number:
        return None
    return Said(str(number), usage if isinstance(usage, dict) else {}, _content(record), _is_final(record))


def _failure(name: object, text: str) -> Failure:
    known = _FAILURES.get(str(name))
    if known is not None:
        return known
    found = re.search(r"API Error: (\d{3})", text)
    status = int(found[1]) if found else 0
    if status == 429:
        return Failure.RATE_LIMITED
    if status in (401, 403):
        return Failure.AUTHENTICATION
    if status >= 500:
        return Failure.OVERLOADED
    return Failure.INVALID if 400 <= status < 500 and status not in (408, 409) else Failure.OTHER


def _delay(text: str) -> float | None:
    found = _WAIT.search(text)
    return clamp_seconds(float(found[1]) * _SECONDS[found[2][0].lower()]) if found else None


def _left(record: Mapping[str, Any]) -> float | None:
    """How long a limit lasts from the moment in which it was met."""
    reset, met = reset_of(record), _epoch(record)
    return clamp_seconds(reset - met) if reset is not None and met and reset > met else None


def _launched(response: object) -> Launched | None:
    """An agent of its own. It may be done before the turn stops, and wakes it all the same."""
    if not isinstance(response, dict) or not response.get("isAsync") or not response.get("agentId"):
        return None
    return Launched(str(response["agentId"]))


def _running(tasks: object) -> Iterable[Task]:
    for task in tasks if isinstance(tasks, list) else []:
        if isinstance(task, dict):
            kind = str(task.get("type", "task"))
            yield Task(str(task.get("id")), kind, "shell" in kind or "bash" in kind)


def _text(document: Mapping[str, Any], key: str) -> str | None:
    value = document.get(key)
    return value if isinstance(value, str) else None


def _is_tool_result(record: Mapping[str, Any]) -> bool:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and any(
        isinstance(block, dict) and block.get("type") == "tool_result" for block in content
    )


def _content(record: Mapping[str, Any]) -> str:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(block["text"]) for block in blocks if isinstance(block, dict) and "text" in block)


def _epoch(record: Mapping[str, Any]) -> float:
    try:
        return datetime.fromisoformat(str(record.get("timestamp"))).timestamp()
    except (ValueError, OverflowError):
        return 0.0
