"""What a pool tells those who listen, and how it is told."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from remuda.errors import InvalidOptions

from .policy import Reason
from .types import BackendName, Usage

LOG = logging.getLogger("remuda.pool")
LOG.addHandler(logging.NullHandler())  # a library prints nothing unasked

EventName = Literal["session.spawned", "session.evicted", "request.done", "request.error"]


@dataclass(frozen=True, slots=True)
class SessionSpawned:
    """A worker has started and is ready."""

    session_id: str
    backend: BackendName
    profile: str
    """Key of its profile: the same for workers that can serve the same requests."""
    name: ClassVar[EventName] = "session.spawned"


@dataclass(frozen=True, slots=True)
class SessionEvicted:
    """A worker was ended, or exited on its own."""

    session_id: str
    reason: Reason
    detail: str | None = None
    name: ClassVar[EventName] = "session.evicted"


@dataclass(frozen=True, slots=True)
class RequestDone:
    """A request was answered."""

    request_id: str
    session_id: str
    duration: float
    usage: Usage | None = None
    name: ClassVar[EventName] = "request.done"


@dataclass(frozen=True, slots=True)
class RequestError:
    """A request failed. `code` is that of its error."""

    request_id: str
    code: str
    name: ClassVar[EventName] = "request.error"


Event = SessionSpawned | SessionEvicted | RequestDone | RequestError
Listener = Callable[[Any], object]

NAMES: tuple[EventName, ...] = ("session.spawned", "session.evicted", "request.done", "request.error")


class Listeners:
    """Who wants to hear of what. Called one after the other, in the loop of the pool."""

    def __init__(self) -> None:
        self._by_name: dict[EventName, list[Listener]] = {name: [] for name in NAMES}

    def add(self, name: EventName, listener: Listener) -> None:
        if inspect.iscoroutinefunction(listener) or not callable(listener):
            raise InvalidOptions(f"the listener for {name} must be a plain function, not async")
        self._of(name).append(listener)

    def remove(self, name: EventName, listener: Listener) -> None:
        """One that is not there is no error."""
        if listener in self._of(name):
            self._of(name).remove(listener)

    def tell(self, event: Event) -> None:
        for listener in list(self._by_name[event.name]):
            try:
                listener(event)
            except Exception:
                LOG.exception("the listener for %s failed", event.name)

    def _of(self, name: EventName) -> list[Listener]:
        if name not in self._by_name:
            raise InvalidOptions(f"unknown event {name!r}", hint=f"known events: {', '.join(NAMES)}")
        return self._by_name[name]
