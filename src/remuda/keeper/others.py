"""Agents that ours starts beside itself: they have its hooks, and are not it, or are what it goes on as.

Its view of agents begins an empty conversation anew in another process, and one more in reserve: both say
that they start. Which of them is ours now shows when it is given a prompt; the other may start behind that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remuda.proctree import is_alive

Payload = dict[str, Any]


class Others:
    """Whose a hook is. Only the hook that tells of a beginning says which process it is of."""

    def __init__(self, lives: Callable[[int], bool] = is_alive) -> None:
        self._lives = lives
        self._agent: int | None = None
        self._begun: dict[object, int] = {}

    def begins(self, payload: Payload, pid: object) -> bool:
        """Whether an agent begins beside the one we keep: it is not ours before it says more."""
        if not isinstance(pid, int) or pid <= 0:
            return False
        is_new = self._agent is not None and pid != self._agent and payload.get("source") == "startup"
        if is_new and self._agent is not None and self._lives(self._agent):
            self._begun[payload.get("session_id")] = pid
            return True
        self._agent = pid
        return False

    def completed(self, payload: Payload) -> Payload:
        """With its process, when it is the first word of such a one: that is ours from now on."""
        pid = self._begun.pop(payload.get("session_id"), None)
        if pid is None:
            return payload
        self._agent = pid
        return {**payload, "claude_pid": pid}
