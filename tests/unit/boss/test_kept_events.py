"""What a keeper reports about its session, as events of the queue."""

from __future__ import annotations

from remuda.boss.attention.model import EventKind
from remuda.boss.attention.session_index import SessionIndex
from remuda.boss.evidence.kept_events import ask_event, state_events

FACTS = {"name": "work", "origin": "kept"}
WAITING = {"state": "waiting_permission", "source": "registry", "since": 20.222}
ASK = {"id": "a1", "tool": "Bash", "input": {"command": "touch a"}, "at": 20.223}


def test_state_that_waits_is_a_dialog_unless_what_is_asked_is_told_by_itself() -> None:
    (told,) = state_events("s", WAITING, FACTS)
    assert (told.kind, told.at) == (EventKind.ASKED, 20.222)
    (told,) = state_events("s", WAITING, FACTS, asked=True)
    assert told.kind is EventKind.SEEN


def test_request_that_a_second_boss_finds_open_is_the_item_that_it_was() -> None:
    index = SessionIndex()
    index.take(ask_event("s", ASK, FACTS), 100.0)
    (before,) = index.queue()
    for event in [*state_events("s", WAITING, FACTS, asked=True), ask_event("s", ASK, FACTS)]:
        index.take(event, 100.0)
    assert index.queue() == [before]
