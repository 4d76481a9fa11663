"""May the agent of a session be ended until it is needed? Every reason why not, and how often it is woken."""

from __future__ import annotations

from typing import cast

import pytest

from remuda.agents.prompting import Composer, ComposerKind
from remuda.agents.state import Evidence, Source, State, Vote
from remuda.frozen import replaced
from remuda.keeper.child import Child, Keyboard
from remuda.keeper.sleep import WAKE_PAUSE, WAKE_TRIES, SleepLook, WakeTries, why_awake

EMPTY = Composer(ComposerKind.EMPTY)
QUIET = SleepLook(State.IDLE, agreed=True, composer=EMPTY)


def test_sleep_idle_session_with_nothing_to_lose_may_sleep() -> None:
    assert why_awake(QUIET) == ""


@pytest.mark.parametrize("state", [one for one in State if one is not State.IDLE])
def test_sleep_any_other_state_keeps_it_awake(state: State) -> None:
    assert why_awake(replaced(QUIET, state=state)) == f"the session is {state}"


@pytest.mark.parametrize(
    ("look", "why"),
    [
        (replaced(QUIET, agreed=False), "not all sources report idle"),
        (replaced(QUIET, dialog="dialog"), "a dialog is open"),
        (replaced(QUIET, composer=None), "no screen model"),
        (replaced(QUIET, composer=Composer(ComposerKind.DRAFT, "half")), "a draft is in the composer"),
        (replaced(QUIET, composer=Composer(ComposerKind.ABSENT)), "the screen shows no composer"),
        (replaced(QUIET, composer=Composer(ComposerKind.EMPTY, stash_taken=True)), "a draft is stashed"),
        (replaced(QUIET, clients=1), "a client is attached"),
        (replaced(QUIET, clients=2), "2 clients are attached"),
        (replaced(QUIET, message="a message waits"), "a message waits"),
        (replaced(QUIET, processes=["npm run dev (pid 7)"]), "npm run dev (pid 7)"),
        (replaced(QUIET, losses=["a shell in the background"]), "a shell in the background"),
        (replaced(QUIET, unresumable="the transcript does not exist"), "the transcript does not exist"),
    ],
)
def test_sleep_stays_awake_with_the_reason(look: SleepLook, why: str) -> None:
    assert why in why_awake(look)


def test_wake_tries_have_growing_pauses_and_an_end() -> None:
    tries, now, pauses = WakeTries(), 100.0, []
    while (pause := tries.pause(now)) is not None:
        pauses.append(pause)
        now += pause
        tries = tries.failed(now, "no space left")
    assert pauses == [0.0, *(WAKE_PAUSE * 2**n for n in range(WAKE_TRIES - 1))]
    assert tries.error == "no space left"


def test_wake_that_would_fail_the_same_way_is_not_tried_again() -> None:
    assert WakeTries().failed(1.0, "the transcript is gone", is_final=True).pause(1e9) is None


def test_asleep_is_disputed_by_no_source_of_the_process_that_ended() -> None:
    evidence = Evidence.of_process(State.ASLEEP, 10.0, "idle for 60 s")
    for source in Source:
        if source is not Source.PROCESS:
            assert not evidence.record(Vote(source, State.THINKING, 11.0))
    assert evidence.verdict.state is State.ASLEEP
    assert evidence.record(Vote(Source.PROCESS, State.DEAD, 12.0))


@pytest.mark.parametrize(
    ("data", "wakes"), [(b"a", True), (b"\x1b[A", True), (b"\x1b[I", False), (b"\x1b[O", False)]
)
def test_key_wakes_a_session_and_a_window_that_is_entered_does_not(data: bytes, wakes: bool) -> None:
    keyboard = Keyboard(cast(Child, None))  # no program: all keys are kept
    woken: list[bool] = []
    keyboard.on_held = lambda: woken.append(True)
    keyboard.hold("sleep")
    keyboard.type(data)
    assert bool(woken) is wakes
