"""Read what a feeder posts to `/inject` into a prompt and the options of its message. Pure.

text/plain              the prompt, without the newline at its end
{"prompt": …}           ours; also dedup, delay, ttl, from, max_attempts, literal
{"content": …}          claude-heartbeat's; also channel, author, ts, and ours
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from remuda.duration import LONGEST, parse_duration
from remuda.errors import InputError, InvalidOptions
from remuda.untrusted import BadJson, one_line, parse_json

from .stop_hook import MOST_ATTEMPTS

_CHAT = ("channel", "author", "ts")


class Injected(NamedTuple):
    """A prompt, and options of `Inbox.put`."""

    prompt: str
    options: dict[str, Any]


def read_injected(body: bytes, content_type: str, now: datetime) -> Injected:
    """Read a request. Raises `InputError`. `now` has the time zone in which chat lines are shown."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise InputError("the body is not valid UTF-8") from None
    if content_type.lower().startswith("text/"):
        return Injected(without_line_end(text), {})
    # Whatever the type says: many feeders post JSON without naming it.
    return _from_document(_parse(text), now)


def without_line_end(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r")


def _parse(text: str) -> dict[str, Any]:
    try:
        document = parse_json(text)
    except BadJson as error:
        raise InputError(f"the body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InputError("the body is not a JSON object")
    return document


def _from_document(document: dict[str, Any], now: datetime) -> Injected:
    chat = "content" in document
    if chat == ("prompt" in document):
        raise InputError("the body needs either 'prompt' or 'content'")
    fields = {"content", *_CHAT} if chat else {"prompt"}
    if unknown := sorted(set(document) - fields - set(_OPTIONS)):
        names = ", ".join(sorted(fields | set(_OPTIONS)))
        raise InputError(f"unknown field '{unknown[0]}'", hint=f"known: {names}")
    options = {}
    for field, (name, read) in _OPTIONS.items():
        if document.get(field) is not None:
            options[name] = read(field, document[field])
    prompt = chat_line(document, now) if chat else _text("prompt", document["prompt"])
    return Injected(prompt, options)


def chat_line(document: dict[str, Any], now: datetime) -> str:
    """Return `[9:05 AM] #channel author: content`, as claude-heartbeat shows it to its agent."""
    content = _text("content", document["content"])
    if not content.strip():
        raise InputError("the content is empty")
    at = _when(document.get("ts"), now)
    line = f"[{at.hour % 12 or 12}:{at.minute:02} {'AM' if at.hour < 12 else 'PM'}] "
    if channel := _label(document, "channel"):
        line += f"#{channel.removeprefix('#')} "
    if author := _label(document, "author"):
        line += f"{author}: "
    return line + content


def _label(document: dict[str, Any], field: str) -> str:
    """Return a name on one line: with a line end in it, it could look like a message of someone else."""
    return one_line(_text(field, document.get(field) or ""))


def _when(timestamp: object, now: datetime) -> datetime:
    """Return when it was said: a date as JavaScript writes it, or its milliseconds; else now."""
    if timestamp is None:
        return now
    try:
        if isinstance(timestamp, str):
            return datetime.fromisoformat(timestamp).astimezone(now.tzinfo)
        return datetime.fromtimestamp(_number("ts", timestamp) / 1000, now.tzinfo)
    except (ValueError, OverflowError, OSError):
        raise InputError("'ts' is not a time") from None


# ── fields ──


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InputError(f"'{field}' is not a string")
    return value


def _key(field: str, value: object) -> str:
    if not _text(field, value):
        raise InputError(f"'{field}' is empty")
    return str(value)


def _number(field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"'{field}' is not a number")
    return float(value)


def _time(field: str, value: object) -> float:
    if isinstance(value, str):
        try:
            seconds = parse_duration(value)
        except InvalidOptions as error:
            raise InputError(f"'{field}': {error}") from None
    else:
        seconds = _number(field, value)
    if seconds < 0:
        raise InputError(f"'{field}' is negative")
    if seconds >= LONGEST:
        raise InputError(f"'{field}' is too long", hint=f"use less than {LONGEST:.0f} seconds")
    return seconds


def _lifetime(field: str, value: object) -> float:
    if not (seconds := _time(field, value)):
        raise InputError(f"'{field}' must be more than zero")
    return seconds


def _count(field: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_ATTEMPTS:
        raise InputError(f"'{field}' is not a number of attempts")
    return value


def _flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"'{field}' is not true or false")
    return value


# No 'command': a request over a network never runs one.
_OPTIONS: dict[str, tuple[str, Callable[[str, object], Any]]] = {
    "dedup": ("dedup", _key),
    "delay": ("delay", _time),
    "ttl": ("ttl", _lifetime),
    "from": ("sender", _key),
    "max_attempts": ("max_attempts", _count),
    "literal": ("literal", _flag),
}
