"""Dead letters, and the messages that they become when they are put back. Pure."""

from __future__ import annotations

import json
from typing import Any

from remuda.errors import InputError, MessageNotFound

from . import stop_hook
from .message import DEFAULT_MAX_BYTES, Message, make_message
from .stop_hook import Entry


def entry_of(letter: dict[str, Any]) -> Entry:
    return Entry(int(stop_hook.number(letter.get("start_offset"))), 0, str(letter.get("raw_line")))


def choose(letters: list[dict[str, Any]], wanted: str | None) -> list[dict[str, Any]]:
    """Those that can be put back: all, or the one whose entry or message id this is."""
    chosen = [one for one in letters if wanted is None or wanted in _names(one)]
    if wanted is not None and not chosen:
        raise MessageNotFound(f"there is no dead letter '{wanted}'", hint="'remuda inbox dead' lists them")
    whole = [one for one in chosen if not entry_of(one).broken]
    if wanted is not None and not whole:
        raise InputError(f"the dead letter '{wanted}' was cut short", hint="send its prompt again")
    return whole


def again(letter: dict[str, Any]) -> Message:
    """The message of a dead letter, with an id that is the same whenever it is asked for."""
    entry = entry_of(letter)
    return make_message(
        entry.text,
        sender=entry.fields.get("from"),
        max_attempts=int(stop_hook.number(entry.fields.get("max_attempts"))),
        command=bool(entry.fields.get("command")),
        literal=bool(entry.fields.get("literal")),
        max_bytes=max(DEFAULT_MAX_BYTES, 4 * len(entry.text)),
        message_id=f"r{stop_hook.digest(json.dumps(letter, sort_keys=True))[:20]}",
    )


def _names(letter: dict[str, Any]) -> set[str]:
    return {str(letter.get("entry_id")), entry_of(letter).id}
