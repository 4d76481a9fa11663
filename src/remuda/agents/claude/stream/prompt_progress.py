"""How far one prompt got, and what would carry over to the next, from the events of the stream. Pure.

A turn ends with its result. A background task may wake the agent afterwards. If that task is a subagent,
`claude -p` waits for it and goes on, so the last result is the answer. It does not wait for a shell in the
background, unless it runs until its process exits (`until_exit`).

Seen to survive `/clear` (2.1.325): everything that runs in the background, scheduled prompts and wake-ups
(they run in the next conversation, and call the model without a request), the worktree that was entered, the
permission mode, the model, permissions given for the session, and queued prompts. Seen not to survive: the
shell's folder, what was read of files, deferred tools that were loaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from . import LASTING_TOOLS
from .stream_events import (
    ConversationReset,
    Event,
    MessagePart,
    PromptMoved,
    StateChanged,
    StreamTurnBegun,
    Surroundings,
    TasksChanged,
    ToolCalled,
    TurnResult,
)

_SHELL = "local_bash"
_NEVER_RUN = ("cancelled", "discarded", "refused")
_COUNTED = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class PromptProgress:
    """One prompt or command. Gets every event of the process from when its line is sent."""

    def __init__(self, command_id: str, *, until_exit: bool = False) -> None:
        self.id = command_id
        self.results: list[TurnResult] = []
        self.model: str | None = None
        self.dropped = False
        """The prompt never ran."""
        self.process_ended = False
        self._until_exit = until_exit
        self._known = False
        self._unnamed: TurnResult | None = None
        """A result without an id after the CLI named ours. It is ours if the prompt has no other."""
        self._reports_state = False
        self._idle = False
        self._waits = False
        self._tasks = False

    def take(self, event: Event) -> None:
        match event:
            case PromptMoved(command_id, state) if command_id == self.id:
                self._known = True
                if state == "completed" and self._unnamed is not None and not self.results:
                    self.results.append(self._unnamed)
                self.dropped = self.dropped or (state in _NEVER_RUN and not self.results)
            case MessagePart(model) if not model.startswith("<"):
                self.model = model
            case StateChanged(state):
                self._reports_state = True
                self._idle = state == "idle"
            case TasksChanged(tasks):
                self._tasks = any(task.kind != _SHELL or self._until_exit for task in tasks)
                self._waits = self._waits or self._tasks
                self._idle = False  # what has ended is about to wake it
            case TurnResult() if not self.over and self._is_mine(event):
                self.results.append(event)
                self._idle = False
            case TurnResult(command_id=None) if not self.over:  # 2.1.240 gives no result an id
                self._unnamed = event
            case _:
                pass

    def _is_mine(self, ended: TurnResult) -> bool:
        # A CLI that reports no ids leaves nothing else to go by. Turns that it starts itself have no id.
        return ended.command_id == self.id or bool(self.results) or not (self._known or ended.command_id)

    @property
    def over(self) -> bool:
        if self.dropped or self.process_ended:
            return self.dropped or bool(self.results)
        if not self.results:
            return False
        if not self._waits or self.results[-1].was_interrupted:
            return True
        if self._until_exit:
            return False
        return not self._reports_state or (self._idle and not self._tasks)

    @property
    def awaits_tasks(self) -> bool:
        """Its own turn is over, and an interrupt would not stop the tasks that it waits for."""
        return bool(self.results) and not self.over

    # ── the outcome ──

    @property
    def last(self) -> TurnResult:
        return self.results[-1]

    def usage(self) -> dict[str, int]:
        """Return the tokens of all its turns. Each result counts from the one before."""
        counted: Counter[str] = Counter()
        for result in self.results:
            counted.update(count_usage(result.usage or {}))
        return dict(counted)

    def num_turns(self) -> int | None:
        counts = [result.num_turns for result in self.results if result.num_turns is not None]
        return sum(counts) if counts else None

    def denials(self) -> tuple[Any, ...]:
        return tuple(denial for result in self.results for denial in result.denials)

    def error(self) -> str | None:
        """Return the agent's own error message, or None."""
        if not self.last.is_error:
            return None
        return self.last.text or "; ".join(self.last.errors) or self.last.subtype or "it did not say why"


def count_usage(usage: Mapping[str, Any]) -> dict[str, int]:
    """Return the tokens in a usage of the CLI. What is not a number counts as 0."""
    values = {name: usage.get(name) for name in _COUNTED}
    return {
        name: value if isinstance(value, int) and not isinstance(value, bool) else 0
        for name, value in values.items()
    }


# ── carry-over ──

_FIXED = ("cwd", "permission_mode", "output_style", "directories")


class CarryOver:
    """What would reach the next conversation. Gets every event of a process.

    `reasons` only grows: what survives one clear survives the next.
    """

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self._first: Surroundings | None = None
        self._model: str | None = None
        self._was_reset = False

    def take(self, event: Event) -> None:
        match event:
            case TasksChanged(tasks) if tasks:
                # Also if it has ended since: the report of that may still be on its way.
                self.add(f"{tasks[0].kind or 'something'} in the background")
            case ToolCalled(name=name) if name in LASTING_TOOLS:
                self.add(f"{LASTING_TOOLS[name]} ({name})")
            case ConversationReset():
                self._was_reset = True
            case StreamTurnBegun(surroundings=surroundings):
                self._compare(surroundings)
            case _:
                pass

    def add(self, reason: str) -> None:
        if reason not in self.reasons:
            self.reasons.append(reason)

    def _compare(self, surroundings: Surroundings) -> None:
        first = self._first = self._first or surroundings
        for name in _FIXED:
            if (now := getattr(surroundings, name)) != getattr(first, name):
                self.add(f"another {name.replace('_', ' ')}: {now}")
        # Without a model in the options, the service may change it at any time: compare from prompt to clear.
        if self._was_reset and self._model not in (None, surroundings.model):
            self.add(f"another model: {surroundings.model}")
        self._was_reset, self._model = False, surroundings.model
