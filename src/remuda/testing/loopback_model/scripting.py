"""Decides what the model says to a request: a queue, rules, and a handler behind them."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import TypeAlias

from ..script import Reply, reply_to
from .log import Predicate
from .request import Request

Handler: TypeAlias = Callable[[Request, int], Reply]


def default_handler(request: Request, n: int) -> Reply:
    """The brain of :mod:`remuda.testing.script`; on the side it has nothing to say."""
    return reply_to(request.said, n) if request.is_main else Reply.of("ok")


class Scripting:
    """Safe between threads: the test scripts, the server asks."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._lock = threading.Lock()
        self._queue: deque[Handler] = deque()
        self._rules: list[tuple[Predicate, Handler]] = []
        self._replies: Counter[str] = Counter()

    def enqueue(self, answer: Reply | Handler) -> None:
        with self._lock:
            self._queue.append(_handler(answer))

    def add_rule(self, matches: Predicate, answer: Reply | Handler) -> None:
        with self._lock:
            self._rules.insert(0, (matches, _handler(answer)))

    def fallback(self, request: Request, n: int) -> Reply:
        """What would be said without a queue and rules."""
        return self._handler(request, n)

    def decide(self, request: Request) -> Reply:
        """The reply, by the first of these: the queue (main requests only), the newest rule, the handler."""
        with self._lock:
            n = self._replies[request.session_id] + 1
            answer = self._choose(request)
        return answer(request, n)

    def given(self, request: Request) -> None:
        """A reply is sent whole. Only such count, so that an agent's retries do not shift the numbers."""
        if request.is_main:
            with self._lock:
                self._replies[request.session_id] += 1

    def _choose(self, request: Request) -> Handler:
        if request.is_main and self._queue:
            return self._queue.popleft()
        return next((handler for matches, handler in self._rules if matches(request)), self._handler)


def _handler(answer: Reply | Handler) -> Handler:
    return (lambda _request, _n: answer) if isinstance(answer, Reply) else answer
