"""States over time: every second of a state is counted once, and gaps are gaps."""

from __future__ import annotations

import pytest

from remuda.boss.answers.decided import outcome_of, who_decided
from remuda.boss.state_history import SEGMENTS, StateHistory, segments
from remuda.boss.statistics import permissions, spread, states_over_time, waits


def test_time_is_counted_once_however_often_it_is_taken() -> None:
    history = StateHistory()
    history.note("a", "idle", 890.0)
    assert history.take(895.0) == ([("a", 890.0, "idle")], [(0, "idle", 5.0)])
    assert history.take(895.0) == ([], [])
    assert history.take(905.0) == ([], [(0, "idle", 5.0), (1, "idle", 5.0)])
    assert history.note("a", "thinking", 910.0)
    assert not history.note("a", "thinking", 915.0)
    history.note("a", "dead", 920.0)
    assert history.take(990.0) == (
        [("a", 910.0, "thinking"), ("a", 920.0, "dead")],
        [(1, "idle", 5.0), (1, "thinking", 10.0)],
    )


def test_session_that_is_forgotten_ends_unknown() -> None:
    history = StateHistory()
    history.note("a", "idle", 10.0)
    history.forget("a", 20.0)
    assert history.take(30.0)[0] == [("a", 10.0, "idle"), ("a", 20.0, None)]


def test_segments_are_cut_at_the_range_and_join_equal_states() -> None:
    changes = [("a", 5.0, "idle"), ("a", 12.0, "idle"), ("a", 15.0, None), ("a", 18.0, "thinking")]
    (one,) = segments(changes, 10.0, 20.0)
    assert one == {
        "id": "a",
        "segments": [
            {"state": "idle", "from": 10.0, "to": 15.0},
            {"state": None, "from": 15.0, "to": 18.0},
            {"state": "thinking", "from": 18.0, "to": 20.0},
        ],
    }
    assert list(segments([("b", 1.0, "dead")], 0.0, 9.0)) == []


def test_number_of_segments_is_bounded() -> None:
    changes: list[tuple[str, float, str | None]] = [
        ("a", number / 10, "idle" if number % 2 else "thinking") for number in range(20_000)
    ]
    (one,) = segments(changes, 0.0, 2000.0)
    assert len(one["segments"]) <= SEGMENTS
    assert one["segments"][-1]["to"] == 2000.0


def test_curves_are_averages_over_a_step() -> None:
    points = states_over_time(
        [(0, "idle", 900.0), (1, "idle", 900.0), (2, "idle", 450.0)], 0.0, 9000.0, 1800.0
    )
    assert points == [{"at": 0.0, "agents": {"idle": 1.0}}, {"at": 1800.0, "agents": {"idle": 0.25}}]


def test_waits_have_a_median_and_nine_tenths() -> None:
    rows = [("stopped", 0.0, float(number), "prompted") for number in range(1, 12)]
    found = waits([*rows, ("permission", 0.0, 100.0, "answered")], 0.0, 50.0)
    assert (found["count"], found["median"], found["p90"]) == (12, 6.5, 10.9)
    assert [(one["reason"], one["count"]) for one in found["reasons"]] == [("permission", 1), ("stopped", 11)]
    assert [(one["at"], one["count"]) for one in found["over_time"]] == [(0.0, 11), (100.0, 1)]
    assert spread([]) == {"count": 0, "median": None, "p90": None}


@pytest.mark.parametrize(
    ("state", "by", "proof", "who"),
    [
        ("answered", "policy: read", {"ran": True}, ("policy", "read")),
        ("answered", "link", {}, ("link", None)),
        ("answered", "page: phone", {}, ("page", "phone")),
        ("answered", "api: command line", {}, ("cli", "command line")),
        ("answered", "api: ci", {}, ("api", "ci")),
        ("answered", "api", {}, ("api", None)),
        ("ended", None, {"ran": False}, ("terminal", None)),
        ("ended", None, {"end": "answered at the terminal"}, ("terminal", None)),
        ("ended", None, {"end": "stopped"}, ("timeout", None)),
        ("open", None, {}, ("open", None)),
    ],
)
def test_who_was_first(
    state: str, by: str | None, proof: dict[str, object], who: tuple[str, str | None]
) -> None:
    assert who_decided(state, by, 50.0, 60.0, proof) == who


def test_what_happened_then() -> None:
    proofs: list[dict[str, object]] = [
        {"ran": True},
        {"ran": True, "failed": True},
        {"ran": False},
        {"end": "stopped"},
        {},
    ]
    assert [outcome_of(one) for one in proofs] == ["ran", "failed", "denied", "ended", "unknown"]


def test_permissions_by_tool_and_how_they_were_decided() -> None:
    rows = [
        ("Bash", "answered", "policy: r", "allow", None, 5.0, {"ran": True}),
        ("Bash", "answered", "link", "deny", None, 5.0, {"ran": False}),
        ("Bash", "ended", None, None, None, 5.0, {"ran": True}),
        ("Edit", "open", None, None, None, None, None),
    ]
    bash, edit = permissions(rows)
    assert (bash["tool"], bash["count"], bash["rule"], bash["human"], bash["terminal"]) == (
        "Bash",
        3,
        1,
        1,
        1,
    )
    assert (bash["allowed"], bash["denied"]) == (2, 1)
    assert (edit["open"], edit["allowed"], edit["denied"]) == (1, 0, 0)
