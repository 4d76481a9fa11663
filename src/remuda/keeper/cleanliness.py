"""What would reach the next conversation of a session that is cleared: for whoever wants to use it again."""

from __future__ import annotations

from typing import Any

from remuda.agents.base import Observer
from remuda.agents.progress import Progress
from remuda.agents.speech import Speech

from .session import Session


class Cleanliness:
    def __init__(self, session: Session, observer: Observer, progress: Progress, speech: Speech) -> None:
        self._session = session
        self._progress = progress
        self._observer = observer
        self._speech = speech
        self._first_mode: str | None = None

    def hook(self) -> None:
        self._first_mode = self._first_mode or self._observer.permission_mode

    def document(self) -> dict[str, Any]:
        session = self._session
        screen = session.screen
        composer = None
        if screen is not None:
            composer = self._speech.composer(screen.lines(), lambda y: screen.styled_row(y, screen.cols))
        return {
            "typed": session.keyboard.typed_at > float("-inf"),
            "composer": None if composer is None else str(composer.kind),
            "stashed": composer is not None and composer.stash_taken,
            "permission_mode": self._observer.permission_mode,
            "first_permission_mode": self._first_mode,
            "residue": list(self._progress.carry_over),
            "processes": session.processes.started_since_prompt(),
        }
