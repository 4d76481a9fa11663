"""Decides whether a prompt may be handed over now, and if not, why. Pure.

The session must be proven idle, with an empty composer, no dialog, and no user typing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from remuda.agents.prompting import Composer, ComposerKind
from remuda.agents.state import RESTING, WAITING, State

TYPING_PAUSE = 1.0
"""Seconds since the last key of a user. After that the user is not in mid-word."""
DRAW_TIMEOUT = 10.0
"""Seconds in which an agent draws a key. On a busy machine (load 20) Claude Code took 3."""
DRAFT_PATIENCE = 15.0
"""Seconds after which an unchanged draft is stashed for a message. It is restored afterwards."""

_HOLD_INTERVAL = 1.0
"""Seconds. Only while a message is held: a watch of the file would cost every keeper one more inotify."""


class Step(StrEnum):
    TYPE = "type"
    STASH = "stash"
    WAKE = "wake"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """The state of a session at one moment."""

    state: State
    agreed: bool
    """No source shows another state."""
    composer: Composer | None
    """None without a screen model."""
    is_guess: bool = False
    """The state is guessed from the timing of the output."""
    dialog: str | None = None
    since_typed: float = float("inf")
    drawn_keys: bool = True
    """Whether the agent has drawn the last keys of a user, if the composer is empty."""
    draft_patience: float = DRAFT_PATIENCE
    limited_for: float = 0.0
    """Seconds until the account's limit ends."""
    hold: str = ""
    """Why a budget lets no message through."""
    by_call: bool = False
    """Whether prompts are called, not typed: a draft stays in the composer."""
    connected: bool = True
    """Whether the agent can be called."""


@dataclass(frozen=True, slots=True)
class Readiness:
    step: Step
    reason: str = ""
    look_again: float | None = None
    """Seconds after which to check again, if only time changes it."""


def readiness(snapshot: SessionSnapshot) -> Readiness:
    if snapshot.state is State.ASLEEP:
        return _outside(snapshot) or Readiness(Step.WAKE, "the session is asleep")
    if snapshot.composer is None:
        return Readiness(Step.WAIT, "the session has no screen model: its composer cannot be seen")
    if not snapshot.connected:
        return Readiness(Step.WAIT, "the agent's server is not connected")
    if snapshot.dialog is not None or snapshot.state in WAITING:
        return Readiness(Step.WAIT, _dialog(snapshot))
    if snapshot.state not in RESTING:
        return Readiness(Step.WAIT, f"the session is {snapshot.state}")
    if snapshot.is_guess:
        reason = f"only the timing of its output says that the session is {snapshot.state}"
        return Readiness(Step.WAIT, reason)
    if not snapshot.agreed:
        return Readiness(Step.WAIT, f"not all sources report {snapshot.state} yet")
    if snapshot.composer.kind is ComposerKind.ABSENT:
        return Readiness(Step.WAIT, "the screen shows no composer")
    return _outside(snapshot) or _between_keys(snapshot)


def _outside(snapshot: SessionSnapshot) -> Readiness | None:
    """Decide by what is not of this session: no message may go to the agent now, whatever it does."""
    if snapshot.hold:
        return Readiness(Step.WAIT, snapshot.hold, _HOLD_INTERVAL)
    if snapshot.limited_for > 0:
        return Readiness(Step.WAIT, "the account has reached its rate limit", snapshot.limited_for)
    return None


def _between_keys(snapshot: SessionSnapshot) -> Readiness:
    """Decide by what a user types, in a session that is ready otherwise."""
    assert snapshot.composer is not None
    if snapshot.since_typed < TYPING_PAUSE:
        return Readiness(Step.WAIT, "someone is typing", TYPING_PAUSE - snapshot.since_typed)
    if snapshot.composer.kind is ComposerKind.DRAFT:
        return _with_draft(snapshot)
    if not snapshot.drawn_keys and not snapshot.by_call:
        left = DRAW_TIMEOUT - snapshot.since_typed
        return Readiness(Step.WAIT, "the last keys are not in the composer yet", left)
    return Readiness(Step.TYPE)


def _dialog(snapshot: SessionSnapshot) -> str:
    """Return the name of the open dialog, or what the agent waits for."""
    named = snapshot.dialog if snapshot.dialog not in (None, "dialog") else None
    if named is None and snapshot.state in WAITING:
        named = snapshot.state
    return f"a dialog is open: {named}" if named else "a dialog is open"


def _with_draft(snapshot: SessionSnapshot) -> Readiness:
    assert snapshot.composer is not None
    if snapshot.composer.stash_taken and not snapshot.by_call:
        return Readiness(Step.WAIT, "a draft is in the composer, and another one is already stashed")
    if snapshot.since_typed < snapshot.draft_patience:
        left = snapshot.draft_patience - snapshot.since_typed
        return Readiness(Step.WAIT, "a draft is in the composer", left)
    return Readiness(Step.TYPE) if snapshot.by_call else Readiness(Step.STASH, "a draft is in the composer")
