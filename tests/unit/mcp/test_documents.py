"""Results as a model reads them."""

from __future__ import annotations

from remuda.mcp.documents import document_elsewhere

SESSION = {
    "name": "work",
    "agent": "claude",
    "agent_state": "idle",
    "cwd": "/p",
    "detail": None,
    "ended": None,
}


def test_session_of_a_host_that_is_away_is_unreachable_and_never_idle() -> None:
    away = {"host": "build7", "reachable": False, "unreachable_since": 7.5, "session": SESSION}
    found = document_elsewhere(away)
    assert (found["session"], found["state"], found["unreachable_since"]) == (
        "build7/work",
        "unreachable",
        7.5,
    )
    waiting = {**SESSION, "agent_state": "waiting_permission"}
    there = document_elsewhere({**away, "reachable": True, "unreachable_since": None, "session": waiting})
    assert (there["state"], there["needs_human"], "unreachable_since" in there) == (
        "waiting_permission",
        True,
        False,
    )
    assert (
        document_elsewhere({**away, "reachable": True, "session": {**SESSION, "ended": 1.0}})["state"]
        == "dead"
    )
