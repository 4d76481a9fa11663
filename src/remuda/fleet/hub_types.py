"""What comes from the hub. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import NamedTuple


class Taken(NamedTuple):
    """A message that the hub handed out. It must be settled by one of the three calls."""

    subject: str
    data: bytes
    headers: Mapping[str, str]
    stored_at: float
    """By the hub's clock."""
    ack: Callable[[], Awaitable[None]]
    """The host has it on its disk."""
    refuse: Callable[[], Awaitable[None]]
    """It will never be taken."""
    later: Callable[[float], Awaitable[None]]
    """Hand it out again after this many seconds."""
    attempt: int
    """How often the hub has handed it out."""
    token: str
    """For `settle`, with another connection."""
    sequence: int
    """Its place in the stream."""
    delivery: int
    """Its number among the messages of this queue: a gap is something that another connection got."""


class QueueState(NamedTuple):
    """How many messages of a queue were handed out, are not settled, and were never handed out."""

    delivered: int
    unsettled: int
    pending: int


class Stored(NamedTuple):
    """The last value of a subject. `data` is empty if it was removed."""

    subject: str
    data: bytes
    at: float
    """By the hub's clock."""
    revision: int


class HubRequest(NamedTuple):
    subject: str
    data: bytes
    reply: str
    headers: Mapping[str, str]
    answer: Callable[[bytes], Awaitable[None]]


class Outdated(Exception):
    """Another value was stored first."""


def moment(text: str) -> float:
    """Read a date of the server, which has nanoseconds; 0 if it is none."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    try:
        return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")
    except ValueError:
        return 0.0


def stored_value(headers: Mapping[str, str], data: bytes) -> Stored | None:
    """Read an answer with a stored value; None if there is none."""
    subject, revision = headers.get("Nats-Subject"), headers.get("Nats-Sequence")
    if subject is None or revision is None:
        return None
    gone = "KV-Operation" in headers or "Nats-Marker-Reason" in headers
    return Stored(subject, b"" if gone else data, moment(headers.get("Nats-Time-Stamp", "")), int(revision))
