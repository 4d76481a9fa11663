"""A message as our own writers put it into an inbox: one line of JSON, made and checked here.

The writer adds its mark (see `writer`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from json.encoder import encode_basestring_ascii as quoted
from os import urandom
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar

from remuda.arguments import check_flag, check_options
from remuda.duration import LONGEST, as_seconds
from remuda.errors import InputError, InvalidOptions, MessageNotFound
from remuda.untrusted import dump_json

from . import stop_hook
from .stop_hook import MOST_ATTEMPTS, MOST_URGENT, Entry, HookInbox, InboxKey, is_id, read_clock

_VERSION = 1
DEFAULT_MAX_BYTES = 10 << 20


class PutOptions(TypedDict, total=False):
    """Options of `Inbox.put` and `Session.send`. TIME is a number of seconds, or a string such as "2h30m"."""

    delay: float | str
    """Deliver it after this TIME. Later messages may pass it."""
    ttl: float | str
    """Bounce it if it was not delivered within this TIME. 0 for no limit."""
    dedup: str | None
    """Accept one message with this key a day; a second one gets the id of the first."""
    sender: str | None
    """A name for the line in `outbox.jsonl` that reports a bounce."""
    max_attempts: int | None
    """Attempts before it is dead-lettered. Default: 10."""
    command: bool
    """Run the text as a command of the agent (`/compact`), not as a prompt."""
    literal: bool
    """Refuse the prompt if the agent would read an `@file` in it."""
    priority: int
    """Higher goes first, in an inbox that allows it (see `Inbox.allow_priority`)."""
    message_id: str | None
    """The id of the message. Default: a new one."""
    now: float | None
    """When the message was sent, in seconds since the epoch. Default: now."""


class Message(NamedTuple):
    """A message that is ready to be put."""

    id: str
    sent_at: float
    line: bytes
    dedup: str | None = None
    priority: int = 0


def make_message(
    prompt: str,
    *,
    delay: float | str = 0.0,
    ttl: float | str = 0.0,
    dedup: str | None = None,
    sender: str | None = None,
    max_attempts: int | None = None,
    command: bool = False,
    literal: bool = False,
    priority: int = 0,
    message_id: str | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    now: float | None = None,
) -> Message:
    """Make a message. The options are those of `PutOptions`; `now` is the time of sending.

    Raises `InputError` for a prompt that no agent could take, `InvalidOptions` for an option out of bounds.
    """
    check_prompt(prompt, max_bytes)
    delay, ttl = _as_seconds("delay", delay), _as_seconds("ttl", ttl)
    if max_attempts is not None:
        _check_number("max_attempts", max_attempts, 1, MOST_ATTEMPTS, whole=True)
    _check_number("priority", priority, -MOST_URGENT, MOST_URGENT, whole=True)
    if now is not None:
        _check_number("now", now, 0, 1e12)
    dedup, sender = _whole_text("dedup", dedup), _whole_text("sender", sender)
    check_flag("command", command)
    check_flag("literal", literal)
    if message_id is not None and not is_id(message_id):
        raise InvalidOptions(
            f"message_id {message_id!r:.80} is not an id", hint="use letters, digits, '.', '_' and '-'"
        )
    at, more = _milliseconds(time.time() if now is None else now), ""
    if delay or ttl or max_attempts:
        at, more = _limits(at, delay, ttl, max_attempts, on_clock=now is None)
    if dedup or sender or command or literal or priority:
        more += _fields(
            {"dedup": dedup, "from": sender, "command": command, "literal": literal, "priority": priority}
        )
    return _message(prompt, at, message_id or new_id(at), more, dedup, priority)


def plain_message(prompt: str, max_bytes: int = DEFAULT_MAX_BYTES) -> Message:
    """Make a message without options, as most are: a put should not spend time on options that it does not
    have.
    """
    check_prompt(prompt, max_bytes)
    at = _milliseconds(time.time())
    return _message(prompt, at, new_id(at))


def _message(
    prompt: str, at: float, name: str, more: str = "", dedup: str | None = None, priority: int = 0
) -> Message:
    # Without `json.dumps`: that would be a good part of what a put costs besides its fsync.
    head = f'{{"remuda": {_VERSION}, "id": {quoted(name)}, "at": {at!r}, "prompt": '
    return Message(name, at, f"{head}{quoted(prompt)}{more}}}\n".encode(), dedup, priority)


def _limits(
    at: float, delay: float, ttl: float, max_attempts: int | None, *, on_clock: bool
) -> tuple[float, str]:
    """Return the time of sending, and the fields for delay, time to live and attempts.

    Times are seconds since the epoch. The fields include the time on the monotonic clock.
    """
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
    """Round a time down to what is written, so that durations count from exactly that time."""
    return int(at * 1000) / 1000


def _fields(some: dict[str, Any]) -> str:
    return "".join(f", {quoted(name)}: {dump_json(value)}" for name, value in some.items() if value)


def check_put_options(options: PutOptions) -> None:
    """Raise `InvalidOptions` for a keyword that `Inbox.put` does not have."""
    check_options(options, PutOptions.__annotations__, "message")


def _as_seconds(name: str, value: float | str) -> float:
    """Return a TIME in seconds."""
    if isinstance(value, str):
        value = as_seconds(name, value)
    _check_number(name, value, 0, LONGEST)
    return value


def _check_number(name: str, value: object, least: float, most: float, *, whole: bool = False) -> None:
    """Check the bounds. NaN is not between any."""
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
        what = "an integer" if whole else "a number of seconds"
        raise InvalidOptions(f"{name} is {_shown(value)}", hint=f"use {what} from {least:.0f} to {most:.0f}")


def _shown(value: object) -> str:
    try:
        return f"{value!r:.40}"
    except ValueError:  # an integer of thousands of digits
        return "too large"


def _whole_text(name: str, value: str | None) -> str | None:
    """Return it with an escape for each half of a surrogate pair: a reader of the file would replace that."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidOptions(f"{name} is {_shown(value)}", hint="use a string")
    return value.encode("utf-8", "backslashreplace").decode()


def check_prompt(prompt: str, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
    if not isinstance(prompt, str):
        raise InputError(f"the prompt is {_shown(prompt)}", hint="use a string")
    if not prompt.strip():
        raise InputError("the prompt is empty")
    if "\0" in prompt:
        raise InputError("the prompt contains a NUL byte, which a terminal cannot carry")
    try:
        size = len(prompt) if prompt.isascii() else len(prompt.encode())
    except UnicodeEncodeError:
        raise InputError("the prompt is not valid UTF-8") from None
    if size > max_bytes:
        raise InputError(
            f"the prompt has {size} bytes, more than {max_bytes}",
            hint="put the text into a file and name the file in the prompt",
        )


def new_id(at: float) -> str:
    """Return an id that sorts by time, and is unlikely to be used by anyone else."""
    return f"m{int(at * 1000):x}-{urandom(5).hex()}"


# ── entries ──

Letter = dict[str, Any]
TakenBack = Literal["dropped", "in flight", "unknown"]


# ── waiting ──


def waiting_entries(inbox: HookInbox) -> Iterator[Entry]:
    """Yield the entries that are not acknowledged, in order, with the one in flight.

    The inbox is open and locked.
    """
    if inbox.reader is None:
        return
    for one in inbox.queue.held:
        entry, _ = inbox.reader.next(int(one["start"]))
        if entry is not None:
            yield entry
    position = inbox.queue.frontier
    while True:
        entry, position = inbox.reader.next(position)
        if entry is None:
            return
        yield entry


def take_back(inbox: HookInbox, message: str, reason: str) -> TakenBack:
    """Drop a waiting message. One that is in flight stays."""
    entry = next((one for one in waiting_entries(inbox) if one.id == message), None)
    if entry is None:
        return "unknown"
    flight = inbox.in_flight()
    if flight is not None and entry.start == int(flight["start_offset"]):
        return "in flight"
    inbox.take_back(entry, reason)
    return "dropped"


# ── dead letters ──


def entry_of(letter: Letter, key: InboxKey) -> Entry:
    return Entry(int(stop_hook.number(letter.get("start_offset"))), 0, str(letter.get("raw_line")), key)


def choose_letters(letters: list[Letter], letter_id: str | None, key: InboxKey) -> list[Letter]:
    """Return the letters that can be put back: all, or the one with this entry or message id."""
    chosen = letters if letter_id is None else [find_letter(letters, letter_id, lambda one: _names(one, key))]
    whole = [one for one in chosen if _is_whole(entry_of(one, key))]
    if letter_id is not None and not whole:
        why = entry_of(chosen[0], key).broken or "its prompt is empty"
        raise InputError(f"dead letter '{letter_id}' cannot be redriven: {why}", hint="send its prompt again")
    return whole


T = TypeVar("T")


def find_letter(letters: list[T], prefix: str, names: Callable[[T], set[str]]) -> T:
    """Return the one with that name, or the only one with a name that begins with it.

    Raises `MessageNotFound`, and `InvalidOptions` if several begin with it.
    """
    exact = [one for one in letters if prefix in names(one)]
    near = exact or [one for one in letters if any(name.startswith(prefix) for name in names(one))]
    if not near or not prefix:
        raise MessageNotFound(f"dead letter '{prefix}' not found", hint="'remuda inbox dead' lists them")
    if len(near) > 1 and not exact:
        raise InvalidOptions(f"'{prefix}' matches {len(near)} dead letters", hint="give more of the id")
    return near[0]


def _is_whole(entry: Entry) -> bool:
    return not entry.broken and bool(entry.text.strip())


def redriven_message(letter: Letter, key: InboxKey) -> Message:
    """Return the message of a dead letter. Its id is the same each time."""
    entry = entry_of(letter, key)
    sender = entry.fields.get("from")
    return make_message(
        entry.text,
        sender=sender if isinstance(sender, str) else None,
        max_attempts=entry.max_attempts() if "max_attempts" in entry.fields else None,
        command=bool(entry.fields.get("command")),
        literal=bool(entry.fields.get("literal")),
        max_bytes=max(DEFAULT_MAX_BYTES, 4 * len(entry.text)),
        message_id=f"r{stop_hook.digest(dump_json(dict(sorted(letter.items()))))[:20]}",
    )


def _names(letter: Letter, key: InboxKey) -> set[str]:
    return {str(letter.get("entry_id")), entry_of(letter, key).id}
