"""Lease a message as an argument of the agent that is about to be started: exact, and no key is typed."""

from __future__ import annotations

from typing import Any

from remuda.agents.prompting import PromptProtocol
from remuda.errors import InputError
from remuda.inbox.consumer import Consumer, Leased

from .turn import Turn


def lease_argument(
    consumer: Consumer, prompts: PromptProtocol, **facts: Any
) -> tuple[Leased, Turn, str] | None:
    """Return the next message with its turn and the argument; None if none is due, or it must be typed."""
    entry = consumer.peek()
    if entry is None or not _fits(entry, prompts):
        return None
    leased = consumer.lease("argument", **facts)
    if leased is None:
        return None
    carried = prompts.argument(leased.text, command=leased.command)
    assert carried is not None
    return leased, Turn(leased.text, carried, prompts, command=leased.command), carried.data.decode()


def _fits(entry: Leased, prompts: PromptProtocol) -> bool:
    try:
        prompts.check(entry.text, command=entry.command, literal=entry.literal)
    except InputError:  # reported when its turn comes
        return False
    return prompts.argument(entry.text, command=entry.command) is not None
