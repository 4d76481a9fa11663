"""One prompt from its line to its end, as the stream of messages tells. Pure.

A turn ends with its result. The agent may then be woken by what it left in the background: where that is an
agent of its own, `claude -p` waits for it and goes on, and so the last result is the answer. A shell in the
background is not waited for, unless the process itself does (`to_the_end`).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from .stream_events import Ended, Event, Moved, Spoke, StateChanged, TasksChanged

_SHELL = "local_bash"
_NEVER_RUN = ("cancelled", "discarded", "refused")
_COUNTED = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class Command:
    """Fed with every event of the process from when its line is sent."""

    def __init__(self, command_id: str, *, to_the_end: bool = False) -> None:
        self.id = command_id
        self.results: list[Ended] = []
        self.model: str | None = None
        self.dropped = False
        """It never ran."""
        self.process_ended = False
        self._to_the_end = to_the_end
        self._known = False
        self._unnamed: Ended | None = None
        """A result without an id since ours was known: ours, if that is completed without another."""
        self._tells_state = False
        self._idle = False
        self._waits = False
        self._tasks = False

    def take(self, event: Event) -> None:
        match event:
            case Moved(command_id, state) if command_id == self.id:
                self._known = True
                if state == "completed" and self._unnamed is not None and not self.results:
                    self.results.append(self._unnamed)
                self.dropped = self.dropped or (state in _NEVER_RUN and not self.results)
            case Spoke(model) if not model.startswith("<"):
                self.model = model
            case StateChanged(state):
                self._tells_state = True
                self._idle = state == "idle"
            case TasksChanged(tasks):
                self._tasks = any(task.kind != _SHELL or self._to_the_end for task in tasks)
                self._waits = self._waits or self._tasks
                self._idle = False  # it is about to be woken by what has ended
            case Ended() if not self.over and self._is_mine(event):
                self.results.append(event)
                self._idle = False
            case Ended(command_id=None) if not self.over:  # 2.1.240 gives no result an id
                self._unnamed = event
            case _:
                pass

    def _is_mine(self, ended: Ended) -> bool:
        # A CLI that tells nothing of our ids has nothing else to go by. What wakes it afterwards has no id.
        return ended.command_id == self.id or bool(self.results) or not (self._known or ended.command_id)

    @property
    def over(self) -> bool:
        if self.dropped or self.process_ended:
            return self.dropped or bool(self.results)
        if not self.results:
            return False
        if not self._waits or self.results[-1].was_interrupted:
            return True
        if self._to_the_end:
            return False
        return not self._tells_state or (self._idle and not self._tasks)

    @property
    def awaits_tasks(self) -> bool:
        """Its own turn is over, and nothing would stop what it waits for."""
        return bool(self.results) and not self.over

    # ── what it came to ──

    @property
    def last(self) -> Ended:
        return self.results[-1]

    def usage(self) -> dict[str, int]:
        """Of all its turns. Each result counts what came since the one before."""
        counted: Counter[str] = Counter()
        for result in self.results:
            counted.update({name: _count(result.usage or {}, name) for name in _COUNTED})
        return dict(counted)

    def num_turns(self) -> int | None:
        counts = [result.num_turns for result in self.results if result.num_turns is not None]
        return sum(counts) if counts else None

    def denials(self) -> tuple[Any, ...]:
        return tuple(denial for result in self.results for denial in result.denials)

    def error(self) -> str | None:
        """What went wrong, in the agent's own words."""
        if not self.last.is_error:
            return None
        return self.last.text or "; ".join(self.last.errors) or self.last.subtype or "it did not say why"


def _count(usage: Any, name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
