"""All that was asked of the model, readable from any thread, and a wait for what is still to come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeAlias

from .http1 import Incoming
from .request import Outcome, Request, parse_body

Predicate: TypeAlias = Callable[[Request], bool]


def matching(wanted: Predicate | str) -> Predicate:
    """A string stands for the main requests whose prompt contains it."""
    if isinstance(wanted, str):
        return lambda request: request.is_main and wanted in request.prompt
    return wanted


class RequestLog:
    """Grows only; a request in it changes once more, when it is answered."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._requests: list[Request] = []

    def requests(self) -> list[Request]:
        with self._changed:
            return list(self._requests)

    def add(self, incoming: Incoming) -> Request:
        with self._changed:
            request = Request(
                number=len(self._requests) + 1,
                method=incoming.method,
                path=incoming.path,
                headers=incoming.headers,
                raw=incoming.body,
                body=parse_body(incoming.body),
                received=time.monotonic(),
            )
            self._requests.append(request)
            self._changed.notify_all()
        return request

    def close(self, request: Request, outcome: Outcome) -> None:
        """Note how a request ended."""
        with self._changed:
            request.answered = time.monotonic()
            request.outcome = outcome
            self._changed.notify_all()

    def wait_for(self, wanted: Predicate | str, timeout: float, count: int) -> Request:
        matches = matching(wanted)
        with self._changed:
            if self._changed.wait_for(lambda: len(self._matching(matches)) >= count, timeout):
                return self._matching(matches)[count - 1]
            seen = "\n  ".join(str(request) for request in self._requests) or "nothing"
        what = repr(wanted) if isinstance(wanted, str) else "the request waited for"
        raise TimeoutError(f"{what} (x{count}) did not come within {timeout:g} s. Seen:\n  {seen}")

    def _matching(self, matches: Predicate) -> list[Request]:
        return [request for request in self._requests if matches(request)]
