"""Dead letters, and the messages that they become when they are put back. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from remuda.errors import InputError, InvalidOptions, MessageNotFound
from remuda.untrusted import dump_json

from . import stop_hook
from .message import DEFAULT_MAX_BYTES, Message, make_message
from .stop_hook import Entry, Key

Letter = dict[str, Any]


def entry_of(letter: Letter, key: Key) -> Entry:
    return Entry(int(stop_hook.number(letter.get("start_offset"))), 0, str(letter.get("raw_line")), key)


def choose(letters: list[Letter], wanted: str | None, key: Key) -> list[Letter]:
    """Those that can be put back: all, or the one whose entry or message id this is."""
    chosen = letters if wanted is None else [find(letters, wanted, lambda one: _names(one, key))]
    whole = [one for one in chosen if _is_whole(entry_of(one, key))]
    if wanted is not None and not whole:
        why = entry_of(chosen[0], key).broken or "its prompt is empty"
        raise InputError(f"dead letter '{wanted}' cannot be redriven: {why}", hint="send its prompt again")
    return whole


T = TypeVar("T")


def find(letters: list[T], wanted: str, names: Callable[[T], set[str]]) -> T:
    """The one of that name, or the only one with a name that begins so.

    Raises `MessageNotFound`, and `InvalidOptions` when it is the beginning of several.
    """
    exact = [one for one in letters if wanted in names(one)]
    near = exact or [one for one in letters if any(name.startswith(wanted) for name in names(one))]
    if not near or not wanted:
        raise MessageNotFound(f"dead letter '{wanted}' not found", hint="'remuda inbox dead' lists them")
    if len(near) > 1 and not exact:
        raise InvalidOptions(f"'{wanted}' matches {len(near)} dead letters", hint="give more of the id")
    return near[0]


def _is_whole(entry: Entry) -> bool:
    return not entry.broken and bool(entry.text.strip())


def again(letter: Letter, key: Key) -> Message:
    """The message of a dead letter, with an id that is the same whenever it is asked for."""
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
