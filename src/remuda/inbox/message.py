"""A message as our own writers put it into an inbox: one line of JSON, made here and checked here."""

from __future__ import annotations

import json
import time
from json.encoder import encode_basestring_ascii as quoted
from os import urandom
from typing import Any, NamedTuple

from remuda.errors import InputError

from .stop_hook import read_clock

_VERSION = 1
DEFAULT_MAX_BYTES = 10 << 20


class Message(NamedTuple):
    """One that is ready to be put."""

    id: str
    sent_at: float
    line: bytes
    dedup: str | None = None
    priority: int = 0


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
    """Raises `InputError` for what no agent could be given.

    `command`: the sender means it as a command of the agent's (`/compact`), not as a prompt. `literal`: no
    `@file` in it is to be read by the agent. `priority`: higher goes first, where its owner allows that.
    """
    check_prompt(prompt, max_bytes)
    at, more = _milliseconds(time.time() if now is None else now), ""
    if delay or ttl or max_attempts:
        at, more = _limits(at, delay, ttl, max_attempts, on_clock=now is None)
    if dedup or sender or command or literal or priority:
        more += _fields(
            {"dedup": dedup, "from": sender, "command": command, "literal": literal, "priority": priority}
        )
    return _message(prompt, at, message_id or new_id(at), more, dedup, priority)


def plain_message(prompt: str, max_bytes: int = DEFAULT_MAX_BYTES) -> Message:
    """One for which nothing is asked, as most are: a put shall not spend its time on what could be."""
    check_prompt(prompt, max_bytes)
    at = _milliseconds(time.time())
    return _message(prompt, at, new_id(at))


def _message(
    prompt: str, at: float, name: str, more: str = "", dedup: str | None = None, priority: int = 0
) -> Message:
    # By hand: a put is an fsync and little else, and of that little `json.dumps` would be a good part.
    head = f'{{"remuda": {_VERSION}, "id": {quoted(name)}, "at": {at!r}, "prompt": '
    return Message(name, at, f"{head}{quoted(prompt)}{more}}}\n".encode(), dedup, priority)


def _limits(at: float, delay: float, ttl: float, max_attempts: int, *, on_clock: bool) -> tuple[float, str]:
    """When it was sent, and what it asks of time and tries. Times are seconds since the epoch.

    With them goes the time on the clock that nobody sets.
    """
    if delay < 0 or ttl < 0 or max_attempts < 0:
        raise InputError("a delay, a time to live and a number of attempts cannot be negative")
    clock = read_clock() if on_clock and (delay or ttl) else None
    at = at if clock is None else _milliseconds(clock.wall)
    fields = {
        "not_before": round(at + delay, 3) if delay else None,
        "expires": round(at + ttl, 3) if ttl else None,
        "max_attempts": max_attempts,
        "clock": [clock.ticks, clock.boot] if clock is not None and clock.boot else None,
    }
    return at, _fields(fields)


def _milliseconds(at: float) -> float:
    """As it is written: what is counted from it shall not begin a part of one earlier."""
    return int(at * 1000) / 1000


def _fields(some: dict[str, Any]) -> str:
    return "".join(f", {quoted(name)}: {json.dumps(value)}" for name, value in some.items() if value)


def check_prompt(prompt: str, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
    if not prompt.strip():
        raise InputError("the prompt is empty")
    if "\0" in prompt:
        raise InputError("the prompt holds a NUL byte, which no terminal can carry")
    try:
        size = len(prompt) if prompt.isascii() else len(prompt.encode())
    except UnicodeEncodeError:
        raise InputError("the prompt is not valid UTF-8") from None
    if size > max_bytes:
        raise InputError(
            f"the prompt has {size} bytes, more than {max_bytes}", hint="put it into a file and name that"
        )


def new_id(at: float) -> str:
    """Sorts by time, and is unlikely to be anybody else's."""
    return f"m{int(at * 1000):x}-{urandom(5).hex()}"
