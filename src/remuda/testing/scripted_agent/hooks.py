"""Which hooks an event has, all run at the same time, and what their answers add up to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .loop import Future, Loop, gather
from .settings import Hook

if TYPE_CHECKING:
    from .hook_run import Answer, Run

DEFAULT_TIMEOUT = 600.0
# SessionEnd is cut short, unless the hook or the environment grants it more.
SESSION_END_TIMEOUT = 1.5
# These never arrive over http.
_COMMAND_ONLY = frozenset({"SessionStart", "Setup"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """The sum of all answers to an event."""

    answers: Sequence[Answer] = ()

    @property
    def reasons(self) -> list[tuple[str, str]]:
        """Every block: who said it and why, in the words the model is given."""
        complaints = [(a.name, f"[{a.name}]: {a.complaint}") for a in self.answers if a.complaint]
        blocking = (answer for answer in self.answers if answer.output.get("decision") == "block")
        return complaints + [(answer.name, str(answer.output.get("reason") or "")) for answer in blocking]

    @property
    def halt(self) -> str | None:
        """The reason of an answer with ``continue: false``."""
        for answer in self.answers:
            if answer.output.get("continue") is False:
                return str(answer.output.get("stopReason") or "")
        return None

    def specific(self, event: str) -> list[Mapping[str, Any]]:
        """Return the ``hookSpecificOutput`` objects meant for that event."""
        outputs = (answer.output.get("hookSpecificOutput") for answer in self.answers)
        return [found for found in outputs if isinstance(found, dict) and found.get("hookEventName") == event]

    @property
    def contexts(self) -> list[str]:
        """Every ``additionalContext``."""
        specifics = (answer.output.get("hookSpecificOutput") for answer in self.answers)
        found = (item.get("additionalContext") for item in specifics if isinstance(item, dict))
        return [text for text in found if isinstance(text, str)]


class Hooks:
    """Fires events. ``load`` gives the hooks of this moment, ``environ`` the environment for one event."""

    def __init__(
        self, loop: Loop, load: Callable[[], Sequence[Hook]], environ: Mapping[str, str], cwd: str
    ) -> None:
        self._loop = loop
        self._load = load
        self._environ = environ
        self._cwd = cwd
        self._live: set[Run] = set()

    def of(self, event: str, subject: str = "") -> list[Hook]:
        """Return the hooks of an event whose matcher fits; of identical ones only the first."""
        found: dict[tuple[object, ...], Hook] = {}
        for hook in self._load():
            unreachable = hook.kind == "http" and event in _COMMAND_ONLY
            if hook.event == event and not unreachable and _matches(hook.matcher, subject):
                found.setdefault((hook.kind, hook.target, hook.arguments), hook)
        return list(found.values())

    async def fire(
        self, payload: Mapping[str, Any], environ: Mapping[str, str], subject: str = ""
    ) -> Verdict:
        """Run the event's hooks and wait for the slowest. Thrown at, it ends them all."""
        runs = self._start(payload, environ, subject)
        try:
            return Verdict(await gather(future for _, future in runs))
        except BaseException:
            for run, _ in runs:
                run.cancel()
            raise

    def fire_and_forget(
        self, payload: Mapping[str, Any], environ: Mapping[str, str], subject: str = ""
    ) -> None:
        """Run the event's hooks without waiting for them."""
        self._start(payload, environ, subject)

    def cancel_all(self) -> None:
        """End every hook that still runs."""
        for run in tuple(self._live):
            run.cancel()

    def _start(
        self, payload: Mapping[str, Any], environ: Mapping[str, str], subject: str
    ) -> list[tuple[Run, Future[Answer]]]:
        event = payload["hook_event_name"]
        hooks = self.of(event, subject)
        if not hooks:
            return []
        # Not at the top: its imports would double the time to the first prompt, and a demo has no hook.
        from .hook_run import Run

        body = json.dumps(payload, ensure_ascii=False).encode() + b"\n"
        variables = {**self._environ, **environ}
        waited = []
        for hook in hooks:
            run = Run(hook, body, variables, self._cwd, self._timeout(hook, event))
            future = self._launch(run)
            if not hook.in_background:
                waited.append((run, future))
        return waited

    def _launch(self, run: Run) -> Future[Answer]:
        self._live.add(run)
        future = self._loop.in_thread(run.result)
        future.when_done(lambda: self._live.discard(run))
        return future

    def _timeout(self, hook: Hook, event: str) -> float:
        if hook.timeout is not None:
            return hook.timeout
        if event != "SessionEnd":
            return DEFAULT_TIMEOUT
        granted = self._environ.get("CLAUDE_CODE_SESSIONEND_HOOKS_TIMEOUT_MS", "")
        return int(granted) / 1000 if granted.isdigit() else SESSION_END_TIMEOUT


def _matches(matcher: str, subject: str) -> bool:
    if matcher in ("", "*") or not subject:
        return True
    try:
        return re.fullmatch(matcher, subject) is not None
    except re.error:
        return False
