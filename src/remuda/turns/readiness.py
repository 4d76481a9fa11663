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
class Look:
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


def readiness(look: Look) -> Readiness:
    if look.state is State.ASLEEP:
        return _outside(look) or Readiness(Step.WAKE, "the session is asleep")
    if look.composer is None:
        return Readiness(Step.WAIT, "the session has no screen model: its composer cannot be seen")
    if not look.connected:
        return Readiness(Step.WAIT, "the agent's server is not connected")
    if look.dialog is not None or look.state in WAITING:
        return Readiness(Step.WAIT, _dialog(look))
    if look.state not in RESTING:
        return Readiness(Step.WAIT, f"the session is {look.state}")
    if look.is_guess:
        return Readiness(Step.WAIT, f"only the timing of its output says that the session is {look.state}")
    if not look.agreed:
        return Readiness(Step.WAIT, f"not all sources report {look.state} yet")
    if look.composer.kind is ComposerKind.ABSENT:
        return Readiness(Step.WAIT, "the screen shows no composer")
    return _outside(look) or _between_keys(look)


def _outside(look: Look) -> Readiness | None:
    """Decide by what is not of this session: no message may go to the agent now, whatever it does."""
    if look.hold:
        return Readiness(Step.WAIT, look.hold, _HOLD_INTERVAL)
    if look.limited_for > 0:
        return Readiness(Step.WAIT, "the account has reached its rate limit", look.limited_for)
    return None


def _between_keys(look: Look) -> Readiness:
    """Decide by what a user types, in a session that is ready otherwise."""
    assert look.composer is not None
    if look.since_typed < TYPING_PAUSE:
        return Readiness(Step.WAIT, "someone is typing", TYPING_PAUSE - look.since_typed)
    if look.composer.kind is ComposerKind.DRAFT:
        return _with_draft(look)
    if not look.drawn_keys and not look.by_call:
        left = DRAW_TIMEOUT - look.since_typed
        return Readiness(Step.WAIT, "the last keys are not in the composer yet", left)
    return Readiness(Step.TYPE)


def _dialog(look: Look) -> str:
    """Return the name of the open dialog, or what the agent waits for."""
    named = look.dialog if look.dialog not in (None, "dialog") else None
    if named is None and look.state in WAITING:
        named = look.state
    return f"a dialog is open: {named}" if named else "a dialog is open"


def _with_draft(look: Look) -> Readiness:
    assert look.composer is not None
    if look.composer.stash_taken and not look.by_call:
        return Readiness(Step.WAIT, "a draft is in the composer, and another one is already stashed")
    if look.since_typed < look.draft_patience:
        return Readiness(Step.WAIT, "a draft is in the composer", look.draft_patience - look.since_typed)
    return Readiness(Step.TYPE) if look.by_call else Readiness(Step.STASH, "a draft is in the composer")
