"""May a prompt be typed now? Every reason why not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remuda.agents.prompting import Composer, ComposerKind
from remuda.agents.state import RESTING, WAITING, State
from remuda.frozen import replaced
from remuda.turns.readiness import DRAW_TIMEOUT, TYPING_PAUSE, Readiness, SessionSnapshot, Step, readiness

EMPTY = Composer(ComposerKind.EMPTY)
DRAFT = Composer(ComposerKind.DRAFT, "half a thought")
READY = SessionSnapshot(State.IDLE, agreed=True, composer=EMPTY)


def test_readiness_idle_and_empty_is_ready() -> None:
    assert readiness(READY) == Readiness(Step.TYPE)


@pytest.mark.parametrize("state", State)
def test_readiness_only_a_resting_session_is_typed_into(state: State) -> None:
    ready = readiness(replace(READY, state=state))
    assert (ready.step is Step.TYPE) == (state in RESTING)
    if state in WAITING:
        assert ready.reason == f"a dialog is open: {state}"
    elif state not in RESTING:
        assert ready.reason == f"the session is {state}"


@pytest.mark.parametrize(
    ("look", "reason"),
    [
        (replace(READY, composer=None), "no screen model"),
        (replace(READY, dialog="trust dialog"), "a dialog is open: trust dialog"),
        (replace(READY, agreed=False), "not all sources report idle yet"),
        (replace(READY, is_guess=True), "only the timing of its output says that the session is idle"),
        (replace(READY, composer=Composer(ComposerKind.ABSENT)), "the screen shows no composer"),
        (replace(READY, limited_for=7.0), "the account has reached its rate limit"),
        (replace(READY, since_typed=0.2), "someone is typing"),
        (replace(READY, since_typed=3.0, drawn_keys=False), "the last keys are not in the composer yet"),
        (replace(READY, composer=DRAFT, since_typed=3.0), "a draft is in the composer"),
        (
            replace(READY, composer=replaced(DRAFT, stash_taken=True)),
            "a draft is in the composer, and another one is already stashed",
        ),
    ],
)
def test_readiness_waits_with_the_reason(look: SessionSnapshot, reason: str) -> None:
    ready = readiness(look)
    assert ready.step is Step.WAIT
    assert reason in ready.reason


def test_readiness_what_passes_by_itself_says_when_to_look_again() -> None:
    assert readiness(replace(READY, limited_for=7.0)).look_again == 7.0
    assert readiness(replace(READY, since_typed=0.25)).look_again == TYPING_PAUSE - 0.25
    assert readiness(replace(READY, since_typed=4.0, drawn_keys=False)).look_again == DRAW_TIMEOUT - 4.0
    draft = replace(READY, composer=DRAFT, since_typed=3.0, draft_patience=10.0)
    assert readiness(draft).look_again == 7.0
    for look in (replace(READY, agreed=False), replace(READY, state=State.THINKING)):
        assert readiness(look).look_again is None


def test_readiness_draft_that_no_one_touches_is_laid_aside() -> None:
    look = replace(READY, composer=DRAFT, draft_patience=10.0)
    assert readiness(replace(look, since_typed=9.9)).step is Step.WAIT
    assert readiness(replace(look, since_typed=10.0)).step is Step.STASH
    assert readiness(look).step is Step.STASH


def test_readiness_stash_that_is_taken_does_not_hinder_an_empty_composer() -> None:
    assert readiness(replace(READY, composer=replaced(EMPTY, stash_taken=True))).step is Step.TYPE


@pytest.mark.parametrize("state", [State.THINKING, State.WAITING_PERMISSION, State.STARTING])
def test_readiness_draft_is_never_touched_while_the_agent_does_not_rest(state: State) -> None:
    assert readiness(replace(READY, state=state, composer=DRAFT)).step is Step.WAIT


def test_readiness_dialog_comes_before_all_that_is_less_urgent() -> None:
    look = SessionSnapshot(
        State.IDLE, agreed=False, composer=DRAFT, dialog="dialog", since_typed=0, limited_for=9
    )
    assert readiness(look).reason == "a dialog is open"


def test_readiness_keys_on_their_way_to_the_composer_hold_back_only_what_is_typed() -> None:
    undrawn = replace(READY, since_typed=3.0, drawn_keys=False)
    assert readiness(undrawn).step is Step.WAIT
    assert readiness(replace(undrawn, by_call=True)) == Readiness(Step.TYPE)
