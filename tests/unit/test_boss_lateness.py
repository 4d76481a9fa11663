"""Hooks that come late, and what is told twice: the queue has each wait once, under one number."""

from __future__ import annotations

from bossing import event
from remuda.agents.state import Source
from remuda.boss.attention.model import Event, Item, Reason
from remuda.boss.attention.roster import Roster

NOW = 1e9
PROMPT = event("prompted", 10, prompt="go")
STOP = event("stopped", 20, message="done")


def told(*events: Event) -> Roster:
    roster = Roster()
    for one in events:
        roster.take(one, NOW)
    return roster


def only(roster: Roster) -> Item:
    (item,) = roster.queue()
    return item


def test_death_a_moment_after_a_stop_is_a_wait_of_its_own() -> None:
    roster = told(PROMPT, STOP)
    stopped = only(roster)
    changes = roster.take(event("gone", 20.5, Source.PROCESS), NOW)
    assert (only(roster).reason, only(roster).since) == (Reason.DEAD, 20.5)
    assert changes.items[stopped.id].resolution == "moved_on"


def test_what_is_told_a_moment_later_of_the_same_wait_is_the_same_item() -> None:
    idle = event("stopped", 20.05, Source.REGISTRY)
    roster = told(PROMPT, idle)
    number = only(roster).id
    for at in (20.1, 20):
        roster.take(event("failed", at, message="400"), NOW)
        assert (only(roster).reason, only(roster).id) == (Reason.API_ERROR, number)
