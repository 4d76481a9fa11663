"""May the agent of a session be ended until it is needed again, and if not, why. Pure.

It may if nothing is going on and a new process would bring everything back. Where that is not proven, the
agent stays, and `show` says why.
"""

from __future__ import annotations

from collections.abc import Sequence

from remuda.agents.prompting import Composer, ComposerKind
from remuda.agents.state import State
from remuda.frozen import frozen

WAKE_TRIES = 5
"""How often in a row a session is woken for a message and fails before it needs a human."""
WAKE_PAUSE = 2.0
"""Seconds before the second try; each further pause is twice as long."""


@frozen
class SleepLook:
    """The state of a session at one moment."""

    state: State
    agreed: bool
    """No source shows another state."""
    composer: Composer | None
    """None without a screen model."""
    dialog: str | None = None
    clients: int = 0
    message: str = ""
    """Which message the agent must stay for; empty for none."""
    processes: Sequence[str] = ()
    """What the agent started and left running."""
    losses: Sequence[str] = ()
    """What a new process of the agent would not have."""
    unresumable: str = ""
    """Why it is not proven that the conversation can be resumed."""


def why_awake(look: SleepLook) -> str:
    """Return why the agent must stay; empty if it may be ended."""
    if look.state is not State.IDLE:
        return f"the session is {look.state}"
    if not look.agreed:
        return "not all sources report idle"
    if shown := _shown(look):
        return shown
    if look.clients:
        return "a client is attached" if look.clients == 1 else f"{look.clients} clients are attached"
    if look.message:
        return look.message
    if look.processes:
        return f"a process would be lost: {look.processes[0]}"
    if look.losses:
        return f"this would be lost: {look.losses[0]}"
    return look.unresumable


def _shown(look: SleepLook) -> str:
    """Return what the screen shows that would be lost."""
    if look.dialog is not None:
        return "a dialog is open"
    if look.composer is None:
        return "the session has no screen model: its composer cannot be seen"
    if look.composer.kind is not ComposerKind.EMPTY:
        is_draft = look.composer.kind is ComposerKind.DRAFT
        return "a draft is in the composer" if is_draft else "the screen shows no composer"
    return "a draft is stashed" if look.composer.stash_taken else ""


@frozen
class WakeTries:
    """How often waking a session has failed in a row."""

    count: int = 0
    at: float = 0.0
    """When it failed last, on the loop's clock."""
    error: str = ""
    is_final: bool = False
    """Whether another try would fail the same way."""

    def failed(self, at: float, error: str, *, is_final: bool = False) -> WakeTries:
        return WakeTries(self.count + 1, at, error, is_final)

    def pause(self, now: float) -> float | None:
        """Return how many seconds to wait before the next try for a message; None if there is none."""
        if self.is_final or self.count >= WAKE_TRIES:
            return None
        due = self.at + WAKE_PAUSE * 2.0 ** (self.count - 1) if self.count else 0.0
        return max(0.0, due - now)
