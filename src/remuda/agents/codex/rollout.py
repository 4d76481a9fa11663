"""The file of a conversation (`rollout-*.jsonl`), as events and for `print`. Pure.

A turn begins with `task_started` and ends with `task_complete` or `turn_aborted`. A failed turn ends with an
`error`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from remuda.agents.prompting import Past
from remuda.untrusted import as_object, as_objects

Record = Mapping[str, Any]
# The clock of the file and ours are one, but the date of a record may be cut to milliseconds.
_UNCLEAR_SECONDS = 0.01


def payload_of(record: Record) -> dict[str, Any]:
    return as_object(record.get("payload"))


def date_of(record: Record) -> float | None:
    """Return the date of a record in seconds since the epoch."""
    try:
        return datetime.fromisoformat(str(record.get("timestamp"))).timestamp()
    except ValueError:
        return None


def prompt_of(payload: Record) -> str | None:
    """Return the prompt that a record has; None for any other record."""
    item = as_object(payload.get("item"))
    if payload.get("type") != "item_completed" or item.get("type") != "UserMessage":
        return None
    return "".join(str(one.get("text", "")) for one in as_objects(item.get("content")))


def read_past(records: Iterable[Record], prompt: str, since: float) -> Past:
    """Return what became of `prompt`, handed over at `since` or later."""
    turn: object = None
    for record in records:
        payload, at = payload_of(record), date_of(record)
        kind = payload.get("type")
        if (
            turn is None
            and prompt_of(payload) == prompt
            and at is not None
            and at >= since - _UNCLEAR_SECONDS
        ):
            turn = payload.get("turn_id")
        elif turn is not None and payload.get("turn_id") == turn:
            if kind == "task_complete" and not payload.get("error"):
                return Past(True, True, str(payload.get("last_agent_message") or ""), str(turn))
            if kind == "turn_aborted":
                return Past(True, prompt_id=str(turn), interrupted=True)
    return Past() if turn is None else Past(True, prompt_id=str(turn))
