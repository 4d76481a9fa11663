"""A message as our own writers put it into an inbox: one line of JSON, made here and checked here."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Any

from remuda.errors import InputError

from .stop_hook import Clock, read_clock

ENVELOPE_VERSION = 1
DEFAULT_MAX_BYTES = 10 << 20


@dataclass(frozen=True, slots=True)
class Message:
    """What a sender asks for. Times are seconds since the epoch; 0 means none."""

    prompt: str
    id: str
    sent_at: float
    not_before: float = 0.0
    expires: float = 0.0
    dedup: str | None = None
    sender: str | None = None
    max_attempts: int = 0
    command: bool = False
    """The sender means it as a command of the agent's (`/compact`), not as a prompt."""
    literal: bool = False
    """No `@file` in it is to be read by the agent."""
    priority: int = 0
    """Higher goes first, in an inbox whose owner allows that."""
    clock: tuple[float, str] | None = None
    """When it was sent on the clock that nobody sets, for what has a delay or a time to live."""

    def line(self) -> bytes:
        document: dict[str, Any] = {
            "remuda": ENVELOPE_VERSION,
            "id": self.id,
            "at": self.sent_at,
            "prompt": self.prompt,
        }
        optional = {
            "not_before": self.not_before,
            "expires": self.expires,
            "dedup": self.dedup,
            "from": self.sender,
            "max_attempts": self.max_attempts,
            "command": self.command,
            "literal": self.literal,
            "priority": self.priority,
            "clock": self.clock,
        }
        document |= {key: value for key, value in optional.items() if value}
        return json.dumps(document).encode() + b"\n"


def make_message(
    prompt: str,
    *,
    delay: float = 0.0,
    ttl: float = 0.0,
    dedup: str | None = None,
    sender: str | None = None,
    max_attempts: int = 0,
    command: bool = False,
    literal: bool = False,
    priority: int = 0,
    message_id: str | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    now: float | None = None,
) -> Message:
    """Raises `InputError` for what no agent could be given."""
    check_prompt(prompt, max_bytes)
    if delay < 0 or ttl < 0 or max_attempts < 0:
        raise InputError("a delay, a time to live and a number of attempts cannot be negative")
    read = read_clock() if now is None else Clock(now, 0.0, "")
    at = read.wall
    return Message(
        prompt=prompt,
        id=message_id or new_id(at),
        sent_at=round(at, 3),
        not_before=round(at + delay, 3) if delay else 0.0,
        expires=round(at + ttl, 3) if ttl else 0.0,
        dedup=dedup,
        sender=sender,
        max_attempts=max_attempts,
        command=command,
        literal=literal,
        priority=priority,
        clock=(read.ticks, read.boot) if read.boot and (delay or ttl) else None,
    )


def check_prompt(prompt: str, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
    if not prompt.strip():
        raise InputError("the prompt is empty")
    if "\0" in prompt:
        raise InputError("the prompt holds a NUL byte, which no terminal can carry")
    try:
        size = len(prompt.encode())
    except UnicodeEncodeError:
        raise InputError("the prompt is not valid UTF-8") from None
    if size > max_bytes:
        raise InputError(
            f"the prompt has {size} bytes, more than {max_bytes}", hint="put it into a file and name that"
        )


def new_id(at: float) -> str:
    """Sorts by time, and is unlikely to be anybody else's."""
    return f"m{int(at * 1000):x}-{secrets.token_hex(5)}"
