"""The entries of an inbox: those that wait, and dead letters with the messages that they become again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

from remuda.errors import InputError, InvalidOptions, MessageNotFound
from remuda.untrusted import dump_json

from . import stop_hook
from .message import DEFAULT_MAX_BYTES, Message, make_message
from .stop_hook import Entry, Inbox, Key

Letter = dict[str, Any]
TakenBack = Literal["dropped", "in flight", "unknown"]


# ── waiting ──


def waiting_entries(inbox: Inbox) -> Iterator[Entry]:
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


def take_back(inbox: Inbox, message: str, reason: str) -> TakenBack:
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


def entry_of(letter: Letter, key: Key) -> Entry:
    return Entry(int(stop_hook.number(letter.get("start_offset"))), 0, str(letter.get("raw_line")), key)


def choose_letters(letters: list[Letter], letter_id: str | None, key: Key) -> list[Letter]:
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


def redriven_message(letter: Letter, key: Key) -> Message:
    """Return the message of a dead letter. Its id is the same each time."""
    entry = entry_of(letter, key)
    sender = entry.fields.get("from")
    return make_message(
        entry.text,
        sender=sender if isinstance(sender, str) else None,
        max_attempts=entry.max_attempts() if "max_attempts" in entry.fields else 0,
        command=bool(entry.fields.get("command")),
        literal=bool(entry.fields.get("literal")),
        max_bytes=max(DEFAULT_MAX_BYTES, 4 * len(entry.text)),
        message_id=f"r{stop_hook.digest(dump_json(dict(sorted(letter.items()))))[:20]}",
    )


def _names(letter: Letter, key: Key) -> set[str]:
    return {str(letter.get("entry_id")), entry_of(letter, key).id}
