"""Which ended sessions are started again, when, and how often."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.config import Config
from remuda.errors import FolderUnusable, SessionDead
from remuda.frozen import replaced
from remuda.keeper.record import SessionRecord
from remuda.keeper.restart import (
    LONGEST_PAUSE,
    SETTLED_AFTER,
    RestartRule,
    Tries,
    comes_back,
    current_tries,
    due_at,
    is_left_alone,
    next_try,
)
from remuda.keeper.resume import Restarter, TriesFile, bring_back, give_up_restart
from remuda.paths import SessionPaths

RULE = RestartRule(tries=5, pause=2.0)


def record(policy: str | None = "on-crash", **more: Any) -> SessionRecord:
    options = {} if policy is None else {"restart": policy}
    given: dict[str, Any] = {"agent": "claude", "started_at": 1000.0, "options": options, **more}
    return SessionRecord(name=given.pop("name", "s"), argv=["x"], cwd="/", **given)


def ended(policy: str, code: int, reason: str, **more: Any) -> SessionRecord:
    return record(policy, ended_at=1010.0, exit_code=code, end_reason=reason, **more)


@pytest.mark.parametrize(
    ("one", "wanted"),
    [
        (record(), True),
        (record("always"), True),
        (record("never"), False),
        (record(None), False),  # of a version without the option
        (record("sometimes"), False),
        (record(killed=True), False),
        (record("always", killed=True), False),
        (record(ephemeral=True), False),
        (ended("on-crash", 1, "exited"), True),
        (ended("on-crash", 0, "exited"), False),
        (ended("always", 0, "exited"), True),
        (ended("always", 0, "killed"), False),
        (ended("always", 143, "killed"), False),
        (ended("on-crash", 143, "the keeper was asked to end"), True),
        (ended("on-crash", 0, "the keeper was asked to end"), True),
        (ended("on-crash", 137, "died of signal 9"), True),
        (ended("always", 0, "ended with its owner"), False),
        (ended("always", 1, "exited", came_up=False), False),  # 'start' has reported that
        (ended("always", 1, "exited", came_up=False, resumed=True), True),
        (ended("always", 1, "exited", came_up=False, agent="simple"), True),
        (ended("always", 143, "its starter gave up"), False),
        (ended("always", 143, "its starter gave up", resumed=True), True),
    ],
)
def test_session_comes_back_as_its_policy_and_its_end_say(one: SessionRecord, wanted: bool) -> None:
    assert comes_back(one) is wanted


def test_record_with_damaged_options_is_not_wanted() -> None:
    assert not comes_back(SessionRecord("s", "claude", [], "/", 1.0, options=[]))  # type: ignore[arg-type]


def test_pauses_grow_up_to_a_limit_and_then_the_session_is_left_alone() -> None:
    tries, now, pauses = Tries(), 0.0, []
    while not is_left_alone(tries, RULE):
        due = due_at(tries, RULE, now)
        pauses.append(due - now)
        now = due
        tries = next_try(record(), tries, now)
    assert pauses == [0.0, 2.0, 4.0, 8.0, 16.0]
    assert due_at(Tries(4000, 0.0), RULE, 0.0) == LONGEST_PAUSE


def test_clock_set_back_ends_the_pause() -> None:
    """Each look is at a later time: a pause that is counted from the look never ends."""
    assert [due_at(Tries(2, at=1e9), RULE, now) for now in (50.0, 60.0)] == [50.0, 60.0]


def test_tries_count_until_a_later_run_has_settled() -> None:
    tries = Tries(3, at=999.0, run=500.0)
    assert current_tries(record(), tries) == tries
    assert current_tries(record(settled=True), tries) == Tries()
    assert current_tries(record(ended_at=1000.0 + SETTLED_AFTER), tries) == Tries()
    same_run = Tries(3, at=999.0, run=1000.0)  # it could not be started since: the record is the old one
    assert current_tries(record(settled=True), same_run) == same_run


KEYS = st.sampled_from(["count", "at", "run", "error", "x"])
VALUES = st.none() | st.integers() | st.floats() | st.text()


@given(VALUES | st.lists(VALUES) | st.dictionaries(KEYS, VALUES | st.lists(VALUES)))
def test_tries_of_any_document_are_usable(document: object) -> None:
    read = Tries.read(document)
    assert read.count >= 0
    assert math.isfinite(due_at(read, RULE, 10.0))
    assert Tries.read(json.loads(json.dumps(read.document()))) == read


def test_tries_file_keeps_what_is_known_and_forgets_sessions_without_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        record(name=name).save(tmp_path / f"{name}.json")
    file = TriesFile(tmp_path)
    file.set("a", Tries(1, 5.0, 1.0, "why"))
    file.set("b", Tries(2, 6.0, 1.0))
    assert TriesFile(tmp_path).all() == {"a": Tries(1, 5.0, 1.0, "why"), "b": Tries(2, 6.0, 1.0)}
    (tmp_path / "a.json").unlink()
    file.set("b", None)
    assert file.all() == {}


@pytest.mark.parametrize("garbage", [b"", b"[]", b"{", b'{"a": 5}', b"\xff\xfe"])
def test_tries_file_with_garbage_counts_as_empty(tmp_path: Path, garbage: bytes) -> None:
    (tmp_path / ".restarts.json").write_bytes(garbage)
    record(name="b").save(tmp_path / "b.json")
    TriesFile(tmp_path).set("b", Tries(1, 5.0, 1.0))
    assert TriesFile(tmp_path).all()["b"] == Tries(1, 5.0, 1.0)


def test_session_is_not_started_if_its_try_cannot_be_noted(tmp_path: Path) -> None:
    (tmp_path / ".restarts.json").mkdir()
    record(name="b", agent="simple").save(tmp_path / "b.json")
    (done,) = Restarter(tmp_path, Config()).round().done
    assert isinstance(done.error, FolderUnusable)
    assert not (tmp_path / "b.pid").exists()


def test_sessions_are_due_in_the_order_of_their_start_and_stop_ends_a_round(tmp_path: Path) -> None:
    for name, at in (("b", 3.0), ("c", 1.0), ("a", 2.0), ("left", 0.0)):
        record(name=name, started_at=at, agent="no-such-agent").save(tmp_path / f"{name}.json")
    TriesFile(tmp_path).set("left", Tries(5, 1.0, 0.0))
    restarter = Restarter(tmp_path, Config(), at_once=1)
    found = restarter.round()
    assert [one.record.name for one in found.done] == ["c", "a", "b"]
    assert [one.name for one, _ in found.left_alone] == ["left"]
    again = restarter.round()  # an agent that is not known will not be known later
    assert (again.done, len(again.left_alone), again.next_at) == ([], 4, None)
    restarter.stop.set()
    TriesFile(tmp_path).set("a", None)
    assert restarter.round().done == []


def test_keeper_does_not_start_a_session_that_was_killed_in_the_meantime(tmp_path: Path) -> None:
    paths = SessionPaths(tmp_path, "s")
    stale = record(agent="simple")
    replaced(stale, killed=True).save(paths.record)
    with pytest.raises(SessionDead, match="was killed"):
        bring_back(stale, tmp_path, Config(), unless_killed=True)
    assert not paths.pid.exists()


def test_unwanted_session_is_noted_once(tmp_path: Path) -> None:
    paths = SessionPaths(tmp_path, "s")
    record().save(paths.record)
    assert give_up_restart(paths)
    assert not give_up_restart(paths)
    found = SessionRecord.load(paths.record)
    assert found is not None
    assert found.killed
    assert not give_up_restart(SessionPaths(tmp_path, "other"))
