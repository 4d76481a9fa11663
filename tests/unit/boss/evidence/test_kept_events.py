"""What a keeper reports about its session, as events of the queue."""

from __future__ import annotations

from remuda.boss.attention.model import EventKind
from remuda.boss.attention.session_index import SessionIndex
from remuda.boss.evidence.kept_events import ask_event, end_event, first_event, left_alone_event, state_events

FACTS = {"name": "work", "origin": "kept"}
WAITING = {"state": "waiting_permission", "source": "registry", "since": 20.222}
ASK = {"id": "a1", "tool": "Bash", "input": {"command": "touch a"}, "at": 20.223}


def test_state_that_waits_is_a_dialog_unless_what_is_asked_is_reported_by_itself() -> None:
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


def test_request_from_another_folder_says_so_and_does_not_move_its_session() -> None:
    index = SessionIndex()
    index.take(first_event("s", {"name": "work", "agent": "claude", "cwd": "/a"}, FACTS, 10.0), 100.0)
    changes = index.take(ask_event("s", {**ASK, "cwd": "/b"}, {**FACTS, "cwd": "/a"}), 100.0)
    assert [one.detail["cwd"] for one in changes.approvals.values()] == ["/b"]
    assert index.entries["s"].session.cwd == "/a"


def test_request_says_what_its_agent_refuses_and_one_of_an_older_keeper_nothing() -> None:
    told = {"edit": "no\nedits", "message": 5, "unknown": "x", "always": ""}
    for refuses, known in (({"refuses": told}, {"edit": "no edits"}), ({"refuses": []}, {}), ({}, {})):
        index = SessionIndex()
        changes = index.take(ask_event("s", {**ASK, **refuses}, FACTS), 100.0)
        assert [one.refuses for one in changes.approvals.values()] == [known]


def test_session_that_comes_back_is_in_the_queue_only_when_it_is_left_alone() -> None:
    crash = {"agent": "claude", "exit_code": 1, "end_reason": "exited"}
    index = SessionIndex()
    index.take(end_event("s", {**crash, "ended_at": 10.0}, FACTS, comes_back=True), 100.0)
    assert index.queue() == []
    index.take(left_alone_event("s", FACTS, 5, "no such folder", 20.0), 100.0)
    # The end of a killed keeper is dated when it is noticed, which may be later.
    index.take(end_event("s", {**crash, "ended_at": 20.1}, FACTS, comes_back=True), 100.0)
    (item,) = index.queue()
    assert (item.reason, item.detail["tries"], item.detail["error"]) == ("left_alone", 5, "no such folder")
    began = {"name": "work", "agent": "claude", "started_at": 30.0}
    index.take(first_event("s", began, FACTS, 31.0, ended=20.1), 100.0)
    assert index.queue() == []
    index.take(end_event("s", {**crash, "ended_at": 40.0}, FACTS), 100.0)
    assert [one.reason for one in index.queue()] == ["dead"]
