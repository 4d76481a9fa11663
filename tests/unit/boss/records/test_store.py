"""What the boss was told stays told: through restarts, full disks and damaged files."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remuda.boss.attention.event_log import EventLog
from remuda.boss.attention.model import ApprovalState, Event, EventKind, Source
from remuda.boss.attention.model import document as document_of
from remuda.boss.attention.session_index import Changes, SessionIndex
from remuda.boss.service import BossService
from remuda.errors import AlreadyAnswered, InvalidOptions, NotInQueue
from support import counts
from support.boss import Clock, event, open_service, stop, with_service
from support.histories import histories, outcome

BASH: dict[str, Any] = {"tool": "Bash", "input": {"command": "touch a"}}


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    async def before(service: BossService) -> Any:
        await service.take(event("registered", 5, how="startup", pane="%1", pid=7, cwd="/x"))
        await service.take(stop("s", 10), event("asked", 20, session="t", **BASH, name="work"))
        return (
            document_of(service.sessions()),
            document_of(service.queue()),
            document_of(service.open_approvals()),
        )

    async def after(service: BossService) -> Any:
        assert await service.take(stop("s", 10)) == 0  # known
        return (
            document_of(service.sessions()),
            document_of(service.queue()),
            document_of(service.open_approvals()),
        )

    assert with_service(tmp_path, before) == with_service(tmp_path, after)


def test_listing_open_requests_does_not_read_those_that_were_decided(tmp_path: Path) -> None:
    async def steps(service: BossService) -> tuple[int, int]:
        await service.take(event("asked", 20, session="t", **BASH))
        (one,) = service.open_approvals()
        few = _steps_to_list(service)
        decided = [replace(one, id=f"d{n}", state=ApprovalState.ANSWERED, asked_at=n) for n in range(2000)]
        await service.store.write([Changes(approvals={other.id: other for other in decided})])
        return few, _steps_to_list(service)

    few, many = with_service(tmp_path, steps)
    assert many <= few + 5


def _steps_to_list(service: BossService) -> int:
    """Return how many steps SQLite took."""
    taken: list[None] = []
    service.store._reader.set_progress_handler(lambda: taken.append(None), 1)
    (one,) = service.store.approvals(1000, state="open")
    service.store._reader.set_progress_handler(None, 0)
    assert one.state is ApprovalState.OPEN
    return len(taken)


def test_what_is_shown_is_on_the_disk(tmp_path: Path) -> None:
    def on_disk() -> int:
        with contextlib.closing(sqlite3.connect(tmp_path / "boss.db")) as database:
            return int(database.execute("SELECT count(*) FROM event").fetchone()[0])

    async def steps(service: BossService) -> None:
        await service.settled()  # nothing to wait for
        taking = asyncio.create_task(service.take(stop("s", 10)))
        while not service.queue():
            await asyncio.sleep(0)
        assert on_disk() == 0, "it is known, and not on the disk yet"
        await service.settled()
        assert on_disk() == 1
        await taking

    with_service(tmp_path, steps)


def test_late_event_after_a_restart_is_put_into_its_place(tmp_path: Path) -> None:
    async def before(service: BossService) -> None:
        await service.take(event("prompted", 10), stop("s", 20))

    async def after(service: BossService) -> list[float]:
        await service.take(event("prompted", 30))
        await service.take(stop("s", 25))
        return [item.since for item in service.queue()]

    with_service(tmp_path, before)
    assert with_service(tmp_path, after) == []


def test_late_event_of_another_does_not_take_a_pane_after_a_restart(tmp_path: Path) -> None:
    async def before(service: BossService) -> None:
        await service.take(stop("s", 10, pane="%1"), stop("s", 50, pane="%1"))

    async def after(service: BossService) -> list[str]:
        await service.take(stop("other", 30, pane="%1"))
        return [item.session_id for item in service.queue()]

    with_service(tmp_path, before)
    assert with_service(tmp_path, after) == ["s"]


@settings(max_examples=counts.EXAMPLES // 3)
@given(histories(), st.integers(0, 14))
def test_restart_in_the_middle_of_any_history_changes_nothing(history: list[Event], place: int) -> None:
    # That a session is still where it was is not written down each time.
    history = [one for one in history if one.kind is not EventKind.SEEN]

    async def whole(folder: Path) -> Any:
        for part in (history[:place], history[place:]):
            async with open_service(folder) as service:
                for one in part:
                    await service.take(one)
        async with open_service(folder) as service:
            return outcome(service._index)

    index = SessionIndex()
    for one in history:
        index.take(one, 1000)
    with tempfile.TemporaryDirectory() as folder:
        assert asyncio.run(whole(Path(folder))) == outcome(index)


def test_long_story_survives_a_restart_with_few_events_on_the_disk(tmp_path: Path) -> None:
    async def before(service: BossService) -> Any:
        for number in range(3 * EventLog.KEPT):
            await service.take(event("prompted", 10 + 2 * number), stop("s", 11 + 2 * number))
        return document_of(service.queue())

    async def after(service: BossService) -> Any:
        return document_of(service.queue())

    assert with_service(tmp_path, before) == with_service(tmp_path, after)
    with sqlite3.connect(tmp_path / "boss.db") as database:
        (count,) = database.execute("SELECT count(*) FROM event").fetchone()
    database.close()
    assert count < 2 * EventLog.KEPT


def test_queue_is_first_come_first_served_and_a_skipped_one_goes_to_its_end_for_a_while(
    tmp_path: Path,
) -> None:
    clock = Clock()

    async def work(service: BossService) -> None:
        await service.take(stop("b", 20), stop("a", 10), stop("c", 30))
        assert [item.session_id for item in service.queue()] == ["a", "b", "c"]
        await service.skip(service.queue()[0].id)
        assert [item.session_id for item in service.queue()] == ["b", "c"]
        clock.now += 31
        assert [item.session_id for item in service.queue()] == ["b", "c", "a"]

    with_service(tmp_path, work, clock)


def test_snoozed_one_comes_back_at_its_place(tmp_path: Path) -> None:
    clock = Clock()

    async def work(service: BossService) -> None:
        await service.take(stop("a", 10), stop("b", 20))
        await service.snooze(service.queue()[0].id, clock.now + 60)
        assert [item.session_id for item in service.queue()] == ["b"]
        assert [item.session_id for item in service.queue(hidden=True)] == ["a", "b"]
        clock.now += 61
        assert [item.session_id for item in service.queue()] == ["a", "b"]

    with_service(tmp_path, work, clock)


def test_snoozed_or_skipped_one_is_woken_by_a_time_that_has_come(tmp_path: Path) -> None:
    async def work(service: BossService) -> None:
        await service.take(stop("a", 10), stop("b", 20))
        first, second = service.queue()
        await service.snooze(first.id, 5000)
        await service.skip(second.id)
        assert service.queue() == []
        for number in (first.id, second.id):
            woken = await service.snooze(number, service.clock())
            assert (woken.snooze_until, woken.skip_until) == (None, None)
        assert [item.session_id for item in service.queue()] == ["a", "b"]

    with_service(tmp_path, work)


def test_what_was_put_off_stays_so_after_a_restart(tmp_path: Path) -> None:
    async def before(service: BossService) -> Any:
        await service.take(stop("a", 10), stop("b", 20), stop("c", 30))
        first, second, _ = service.queue()
        await service.skip(first.id)
        await service.snooze(second.id, 5000)
        return document_of(service.queue(hidden=True))

    async def after(service: BossService) -> Any:
        assert [item.session_id for item in service.queue()] == ["c"]
        return document_of(service.queue(hidden=True))

    assert with_service(tmp_path, before) == with_service(tmp_path, after)


def test_item_that_was_updated_in_its_place_keeps_its_number_after_a_restart(tmp_path: Path) -> None:
    async def before(service: BossService) -> Any:
        await service.take(event("prompted", 10), event("stopped", 20.5, Source.REGISTRY))
        number = service.queue()[0].id
        await service.take(stop("s", 20))
        assert [(item.id, item.since) for item in service.queue()] == [(number, 20)]
        return document_of(service.queue())

    async def after(service: BossService) -> Any:
        return document_of(service.queue())

    assert with_service(tmp_path, before) == with_service(tmp_path, after)


def test_dismissed_one_is_in_the_history_and_cannot_be_dismissed_again(tmp_path: Path) -> None:
    async def work(service: BossService) -> None:
        await service.take(stop("a", 10))
        item = service.queue()[0]
        assert (await service.dismiss(item.id)).resolution == "dismissed"
        assert service.queue() == []
        assert [one.id for one in service.store.history(10)] == [item.id]
        with pytest.raises(AlreadyAnswered):
            await service.dismiss(item.id)
        with pytest.raises(NotInQueue):
            await service.skip("nothing")

    with_service(tmp_path, work)


def test_skip_of_a_wait_does_not_hide_the_next_one(tmp_path: Path) -> None:
    async def work(service: BossService) -> None:
        await service.take(stop("a", 10))
        await service.skip(service.queue()[0].id)
        await service.take(event("prompted", 20, session="a"), stop("a", 30))
        assert [item.since for item in service.queue()] == [30]

    with_service(tmp_path, work)


def test_first_answer_wins_and_the_ledger_says_who_when_and_what_happened_then(tmp_path: Path) -> None:
    async def work(service: BossService) -> None:
        await service.take(event("prompted", 10), event("asked", 20, **BASH))
        (asked,) = service.open_approvals()
        await service.answer(asked.id, {"behavior": "allow"}, "cli")
        assert service.queue() == []
        with pytest.raises(AlreadyAnswered):
            await service.answer(asked.id, {"behavior": "deny"}, "http")
        await service.take(event("tool_ran", 1001, **BASH, ok=True))

    async def after(service: BossService) -> None:
        (approval,) = service.store.approvals(10)
        assert (approval.state, approval.by, approval.at) == (ApprovalState.ANSWERED, "cli", 1000)
        assert (approval.answer, approval.proof) == (
            {"behavior": "allow"},
            {"ran": True, "at": 1001, "by": "hook"},
        )

    with_service(tmp_path, work)
    with_service(tmp_path, after)


def test_each_of_two_requests_that_are_alike_is_found_by_its_own_event_after_a_restart(
    tmp_path: Path,
) -> None:
    calls = [event("tool_began", 11, **BASH, tool_use_id=number) for number in ("t1", "t2")]
    asked = [event("asked", at, **BASH) for at in (20.0, 21.0)]

    async def numbers(service: BossService) -> list[str]:
        found = [service.approval_of(one) for one in asked]
        return [one.id for one in found if one is not None]

    async def before(service: BossService) -> list[str]:
        await service.take(event("prompted", 10), *calls, *asked)
        return await numbers(service)

    first = with_service(tmp_path, before)
    assert len(set(first)) == 2
    assert with_service(tmp_path, numbers) == first


def test_answer_after_its_end_is_refused(tmp_path: Path) -> None:
    async def work(service: BossService) -> None:
        await service.take(event("asked", 20, **BASH), event("tool_ran", 25, **BASH))
        (approval,) = service.store.approvals(10)
        with pytest.raises(AlreadyAnswered):
            await service.answer(approval.id, {"behavior": "allow"}, "cli")
        with pytest.raises(NotInQueue):
            await service.answer("unknown", {}, "cli")

    with_service(tmp_path, work)


def test_sessions_are_found_by_id_name_pane_and_beginning(tmp_path: Path) -> None:
    async def work(service: BossService) -> None:
        await service.take(stop("abcdef", 10, pane="%1"), stop("abcxyz", 11, name="work"))
        for word, wanted in {"abcdef": "abcdef", "%1": "abcdef", "work": "abcxyz", "abcx": "abcxyz"}.items():
            assert service.session(word).id == wanted
        with pytest.raises(NotInQueue):
            service.session("nobody")
        await service.take(stop("abcdeg", 12))
        with pytest.raises(InvalidOptions, match=r"use one of these ids: abcdeg \(stopped\), abcdef \(%1\)"):
            service.session("abcde")

    with_service(tmp_path, work)


def test_pane_means_who_is_there_and_not_who_has_ended_there(tmp_path: Path) -> None:
    async def work(service: BossService) -> None:
        await service.take(stop("before", 10, pane="%1", pid=3), event("ended", 11, session="before"))
        await service.take(event("registered", 12, Source.REGISTRY, "now", cwd="/srv"))
        await service.take(event("seen", 13, Source.PROCESS, "now", pane="%1", pid=4))
        assert service.session("%1").id == "now"
        await service.take(event("ended", 14, session="now"))
        assert service.session("now").id == "now"

    with_service(tmp_path, work)


def test_sessions_are_found_by_their_place_in_the_queue_and_by_their_folder(tmp_path: Path) -> None:
    async def work(service: BossService) -> None:
        await service.take(
            stop("s1", 10, cwd="/src/engine"), event("prompted", 10, session="s2", cwd="/a/pager")
        )
        assert service.session(service.queue()[0].id).id == "s1"
        assert (service.session("engine").id, service.session("pager").id) == ("s1", "s2")
        await service.take(stop("s3", 11, cwd="/b/pager"), event("ended", 12, session="s2"))
        assert service.session("pager").id == "s3"
        await service.take(event("gone", 13, session="s3"))  # it died, which is to be looked at
        assert service.session("pager").id == "s3"
        await service.take(stop("s4", 14, name="pager"), stop("s5", 15, cwd="/b/pager"))
        assert service.session("pager").id == "s4"
        for word in ("", "/src/engine", "engin"):
            with pytest.raises(NotInQueue):
                service.session(word)

    with_service(tmp_path, work)


def test_repository_of_a_folder_is_known(tmp_path: Path) -> None:
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    folder = tmp_path / "repo" / "deep" / "er"
    folder.mkdir(parents=True)

    async def work(service: BossService) -> None:
        with_changes = service.feed.watch()
        await service.take(stop("s", 10, cwd=str(folder)))
        async for change in with_changes:
            if change.kind == "session" and change.document["repo"]:
                break
        await service.take(stop("t", 10, cwd=str(folder)))
        assert {session.repo for session in service.sessions()} == {str(tmp_path / "repo")}

    with_service(tmp_path, work)
