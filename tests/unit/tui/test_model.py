"""The dashboard's list, and what may be decided, with a clock that jumps."""

from __future__ import annotations

from typing import Any

from remuda.cli.queue_keys import READ
from remuda.tui.model import BossSnapshot, Dashboard


def session(key: str, **more: Any) -> dict[str, Any]:
    return {"id": key, "cwd": f"/src/{key}", "first_seen": 1.0, "ended": None, "agent_state": "idle", **more}


def item(key: str, reason: str = "stopped", **detail: Any) -> dict[str, Any]:
    return {"id": f"i-{key}", "session_id": key, "reason": reason, "message": "done", "detail": detail}


def asks(key: str, **more: Any) -> dict[str, Any]:
    return {"id": f"ask-{key}", "session_id": key, "tool": "Bash", "input": {}, **more}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def board(clock: Clock | None = None) -> Dashboard:
    found = Dashboard(clock or Clock())
    found.take(
        BossSnapshot(
            [item("b", "permission", ask="ask-b"), item("a")],
            [session("a"), session("b"), session("c", first_seen=3.0), session("d", first_seen=2.0)],
            {"ask-b": asks("b")},
        )
    )
    return found


def test_rows_waiting_come_first_in_the_order_of_the_queue_then_the_others_by_age() -> None:
    found = board()
    assert [row.key for row in found.rows] == ["b", "a", "d", "c"]
    assert [row.item is not None for row in found.rows] == [True, True, False, False]


def test_rows_ended_sessions_are_left_out_unless_they_wait() -> None:
    found = Dashboard()
    found.take(BossSnapshot([item("a", "dead")], [session("a", ended=5.0), session("b", ended=6.0)]))
    assert [row.key for row in found.rows] == ["a"]


def test_marked_agent_stays_marked_when_the_order_changes() -> None:
    found = board()
    found.move(1)
    assert found.marked is not None
    assert found.marked.key == "a"
    found.take(BossSnapshot([item("a")], [session("a"), session("b")]))
    assert found.marked.key == "a"
    found.take(BossSnapshot([], [session("b")]))
    assert found.marked is not None
    assert found.marked.key == "b"


def test_move_beyond_both_ends_stays_inside() -> None:
    found = board()
    found.move(-5)
    assert found.at == 0
    found.move(99)
    assert found.at == 3
    Dashboard().move(1)


def test_search_finds_by_folder_state_and_message_in_any_case() -> None:
    found = board()
    found.search("SRC/C")
    assert [row.key for row in found.rows] == ["c"]
    found.search("permission")
    assert [row.key for row in found.rows] == ["b"]
    found.search("nothing has this")
    assert found.rows == []
    assert found.marked is None
    found.search("")
    assert len(found.rows) == 4


def test_request_can_be_decided_only_after_it_was_read() -> None:
    clock = Clock()
    found = board(clock)
    assert "is new" in found.why_not("allow")
    found.drawn(is_complete=False)
    assert "is new" in found.why_not("deny")
    clock.now += READ
    assert found.why_not("deny") == ""
    assert "scroll to the end" in found.why_not("allow")
    found.drawn(is_complete=True)
    found.drawn(is_complete=False)
    assert found.why_not("allow") == ""
    assert "only in its terminal" in found.why_not("allow", hidden="only in its terminal")


def test_request_that_replaced_the_one_on_the_screen_must_be_read_again() -> None:
    clock = Clock()
    found = board(clock)
    found.drawn(is_complete=True)
    clock.now += READ
    found.take(
        BossSnapshot([item("b", "permission", ask="ask-2")], [session("b")], {"ask-2": asks("b", id="ask-2")})
    )
    assert "is new" in found.why_not("deny")
    found.drawn(is_complete=True)
    clock.now += READ
    assert found.why_not("allow") == ""


def test_agent_that_asks_nothing_cannot_be_decided() -> None:
    found = board()
    found.move(1)
    assert "asks nothing" in found.why_not("allow")
    found.take(BossSnapshot([item("a", "permission", ask="gone")], [session("a")]))
    assert "asks nothing" in found.why_not("deny")


def test_mark_goes_to_the_next_waiting_agent_when_the_user_is_done_with_one() -> None:
    found = board()
    found.leave()
    found.take(BossSnapshot([item("a")], [session("a"), session("b")]))
    assert found.marked is not None
    assert found.marked.key == "a"
    assert found.why_not_put_off() == ""
    found.leave()
    found.take(BossSnapshot([], [session("a"), session("b")]))
    assert found.marked.key == "a"


def test_agent_that_got_the_mark_by_itself_is_not_put_off_at_once() -> None:
    clock = Clock()
    found = board(clock)
    assert found.why_not_put_off() == ""
    gone = found.take(BossSnapshot([item("a")], [session("a")]))
    assert gone is not None
    assert gone.key == "b"
    assert "has just changed" in found.why_not_put_off()
    clock.now += READ
    assert found.why_not_put_off() == ""
    found.take(BossSnapshot([], [session("a")]))
    assert "is not waiting" in found.why_not_put_off()


def test_rows_of_very_long_names_and_messages_are_bounded() -> None:
    found = Dashboard()
    long = "y" * 5_000_000
    found.take(BossSnapshot([{**item("a"), "message": long}], [session("a", cwd=f"/src/{long}", title=long)]))
    found.search("yyy")
    assert found.marked is not None
    assert len(found.marked.label) < 10_000


def test_request_that_is_too_long_for_the_list_is_complete_when_it_was_read() -> None:
    found = board()
    brief = asks("b", input={"command": "be"}, state="open", cut=["input"])
    snapshot = BossSnapshot(
        [{**item("b", "permission", ask="ask-b"), "cut": ["message"]}], [session("b")], {"ask-b": brief}
    )
    found.take(snapshot)
    assert found.missing == ("approvals", "ask-b")
    found.whole["ask-b"] = asks("b", input={"command": "begin end"}, state="older")
    assert found.request == {**brief, "input": {"command": "begin end"}, "cut": []}
    found.take(BossSnapshot([{**item("a"), "cut": ["message"]}], [session("a")]))
    assert found.whole == {}
    assert found.missing == ("queue", "i-a")
