"""Whose stop it is, known in the moment it is heard. Pure.

The turn itself is a step behind: what it learns is written down first. Whoever waits for the answer need not
wait for that, and is told as soon as the agent says that it stopped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from remuda.agents.speech import Failed, Launched, Signal, Stopped, Submitted, Task

from .turn import Turn


class Early:
    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._ids: set[str | None] = set()
        self._others: set[str | None] = set()
        self._is_queued = False
        """Ours was told with the id of another's turn: its own is not known."""
        self.launched = False
        """Whether it began something that wakes it: then a stop alone does not tell that it is over."""

    def take(self, signal: Signal) -> Stopped | Failed | None:
        """The signal, if it says that the turn stopped. It may be sent on, or woken again."""
        if isinstance(signal, Submitted):
            self._on_submitted(signal)
        elif isinstance(signal, Launched) and self._ids:
            self.launched = True
        elif isinstance(signal, Stopped | Failed) and (self._ids or self._is_queued):
            return signal if self._is_ours(signal) else None
        return None

    def _on_submitted(self, signal: Submitted) -> None:
        if self._turn.is_ours(signal.prompt):
            if signal.prompt_id in self._others:
                self._is_queued = True
            else:
                self._ids.add(signal.prompt_id)
        elif signal.notice and self._ids:
            self._ids.add(signal.prompt_id)
        elif not self._ids and not self._is_queued and signal.prompt_id is not None:
            self._others.add(signal.prompt_id)

    def _is_ours(self, signal: Stopped | Failed) -> bool:
        if self._is_queued:
            return signal.prompt_id is not None and signal.prompt_id not in self._others
        return signal.prompt_id is None or signal.prompt_id in self._ids


def stop_document(signal: Stopped | Failed, begun: Iterable[Task], *, last_word: bool) -> dict[str, Any]:
    """What is told of it. `begun`: what this turn left running; `last_word`: nobody can send the agent on.

    A shell may be meant to run for ever, and ends nothing; what else runs on will wake the agent.
    """
    if isinstance(signal, Failed):
        return {
            "end": "failed",
            "text": signal.text,
            "failure": str(signal.kind),
            "prompt_id": signal.prompt_id,
            "final": True,
        }
    running = list(begun)
    return {
        "end": "answered",
        "text": signal.text,
        "conversation": signal.conversation,
        "prompt_id": signal.prompt_id,
        "background": [{"id": task.id, "kind": task.kind, "shell": task.is_shell} for task in running],
        "final": last_word and all(task.is_shell for task in running),
    }
