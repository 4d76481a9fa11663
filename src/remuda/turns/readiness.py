"""May a prompt be typed now? Pure: a look at the session, and the reason why not.

Only into a session that is proven idle, with an empty composer and no dialog, and nobody at the keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from remuda.agents.speech import Composer, ComposerKind
from remuda.agents.state import RESTING, WAITING, State

TYPING_PAUSE = 1.0
"""Nobody has typed for so long: what they typed is on the screen by now, and they are not in mid-word."""
DRAFT_PATIENCE = 15.0
"""A draft that nobody touched for so long is laid aside for a message, and comes back behind it."""


class Step(StrEnum):
    TYPE = "type"
    STASH = "stash"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Look:
    """What is seen of a session at one moment."""

    state: State
    agreed: bool
    """No source shows another state."""
    composer: Composer | None
    """None without a screen model."""
    dialog: str | None = None
    since_typed: float = float("inf")
    draft_patience: float = DRAFT_PATIENCE
    limited_for: float = 0.0
    """The account's limit lasts so much longer."""


@dataclass(frozen=True, slots=True)
class Readiness:
    step: Step
    reason: str = ""
    look_again: float | None = None
    """Nothing but time changes it: look again after so many seconds."""


def readiness(look: Look) -> Readiness:
    if look.composer is None:
        return Readiness(Step.WAIT, "the session has no screen model: its composer cannot be seen")
    if look.dialog is not None or look.state in WAITING:
        return Readiness(Step.WAIT, _dialog(look))
    if look.state not in RESTING:
        return Readiness(Step.WAIT, f"the session is {look.state}")
    if not look.agreed:
        return Readiness(Step.WAIT, f"not all sources report {look.state} yet")
    if look.composer.kind is ComposerKind.ABSENT:
        return Readiness(Step.WAIT, "the screen shows no composer")
    if look.limited_for > 0:
        return Readiness(Step.WAIT, "the account has reached its rate limit", look.limited_for)
    if look.since_typed < TYPING_PAUSE:
        return Readiness(Step.WAIT, "someone is typing", TYPING_PAUSE - look.since_typed)
    if look.composer.kind is ComposerKind.DRAFT:
        return _with_draft(look)
    return Readiness(Step.TYPE)


def _dialog(look: Look) -> str:
    """As well as it is known which: its name, else what it waits for."""
    named = look.dialog if look.dialog not in (None, "dialog") else None
    if named is None and look.state in WAITING:
        named = look.state
    return f"a dialog is open: {named}" if named else "a dialog is open"


def _with_draft(look: Look) -> Readiness:
    assert look.composer is not None
    if look.composer.stash_taken:
        return Readiness(Step.WAIT, "a draft is in the composer, and another one is already stashed")
    if look.since_typed < look.draft_patience:
        return Readiness(Step.WAIT, "a draft is in the composer", look.draft_patience - look.since_typed)
    return Readiness(Step.STASH, "a draft is in the composer")
