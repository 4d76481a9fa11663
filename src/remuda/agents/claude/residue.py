"""What of a conversation outlives a clear of it, as far as the stream of messages tells (2.1.325). Pure.

Seen to survive `/clear`: whatever runs in the background, scheduled prompts and wake-ups (they run in the
next conversation, and ask the model while nobody does), the worktree that was entered, the permission mode,
the model, permissions given for the session, and queued prompts. Seen not to survive: the shell's folder,
what was read of files, deferred tools that were loaded.
"""

from __future__ import annotations

from .stream_events import Begun, Event, Reset, Surroundings, TasksChanged, ToolCalled

_FIXED = ("cwd", "permission_mode", "output_style", "directories")
LASTING_TOOLS = {
    "CronCreate": "a scheduled prompt",
    "EnterWorktree": "another working folder",
    "Monitor": "something that is watched",
    "ScheduleWakeup": "a wake-up",
}


class Residue:
    """Fed with every event of a process. `reasons` only grows: what survives one clear survives the next."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self._first: Surroundings | None = None
        self._model: str | None = None
        self._was_reset = False

    def take(self, event: Event) -> None:
        match event:
            case TasksChanged(tasks) if tasks:
                # Also when it has ended since: the news of it may still be on their way.
                self.add(f"{tasks[0].kind or 'something'} in the background")
            case ToolCalled(name=name) if name in LASTING_TOOLS:
                self.add(f"{LASTING_TOOLS[name]} ({name})")
            case Reset():
                self._was_reset = True
            case Begun(surroundings=found):
                self._compare(found)
            case _:
                pass

    def add(self, reason: str) -> None:
        if reason not in self.reasons:
            self.reasons.append(reason)

    def _compare(self, found: Surroundings) -> None:
        first = self._first = self._first or found
        for name in _FIXED:
            if (now := getattr(found, name)) != getattr(first, name):
                self.add(f"another {name.replace('_', ' ')}: {now}")
        # The service may choose another at any time where none was asked for: it counts from prompt to clear.
        if self._was_reset and self._model not in (None, found.model):
            self.add(f"another model: {found.model}")
        self._was_reset, self._model = False, found.model
