"""A full disk, a damaged file or another version: what the boss knew is kept, or said to be lost."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from remuda.boss.attention.model import Activity, Event, EventKind, Reason
from remuda.boss.attention.projection import SessionProjection, load, save
from remuda.boss.attention.session_index import SessionIndex
from remuda.boss.evidence.watches import report_until_written
from remuda.boss.records.store import Store
from remuda.boss.service import BossService
from remuda.errors import InvalidOptions, StoreFailed
from support.boss import event, open_service, stop, with_service

BASH: dict[str, Any] = {"tool": "Bash", "input": {"command": "touch a"}}


def _fill(service: BossService) -> None:
    """From now on the disk is full, as far as this database knows."""
    writer = service.store._writer
    (pages,) = writer.execute("PRAGMA page_count").fetchone()
    writer.execute(f"PRAGMA max_page_count={pages}").fetchall()


def test_full_disk_is_reported_to_the_sender_and_nothing_of_it_counts(tmp_path: Path) -> None:
    async def work(service: BossService) -> None:
        await service.take(stop("a", 10))
        _fill(service)
        big = event("stopped", 20, session="b", message="x" * 1_000_000)
        failed = await asyncio.gather(service.take(big), service.take(stop("c", 21)), return_exceptions=True)
        assert isinstance(failed[0], StoreFailed)
        assert "b" not in [item.session_id for item in service.queue()]
        service.store._writer.execute("PRAGMA max_page_count=1000000").fetchall()
        assert await service.take(big) == 1
        assert await service.take(stop("c", 21)) in (0, 1)
        assert [item.session_id for item in service.queue()] == ["a", "b", "c"]

    with_service(tmp_path, work)


def test_what_is_reported_once_is_reported_until_the_disk_has_room(tmp_path: Path) -> None:
    async def work(service: BossService) -> None:
        await service.take(stop("a", 10))
        _fill(service)
        big = event("stopped", 20, session="b", message="x" * 1_000_000)
        telling = asyncio.create_task(report_until_written(service, [big]))
        done, _ = await asyncio.wait([telling], timeout=0.5)
        assert not done
        service.store._writer.execute("PRAGMA max_page_count=1000000").fetchall()
        await asyncio.wait_for(telling, 30)
        assert [item.session_id for item in service.queue()] == ["a", "b"]

    with_service(tmp_path, work)


def test_what_can_never_be_written_is_not_reported_forever(tmp_path: Path) -> None:
    async def work(service: BossService) -> None:
        await asyncio.wait_for(
            report_until_written(service, [event("stopped", 20, session="b", pane="\ud800")]), 60
        )
        assert service.queue() == []

    with_service(tmp_path, work)


def test_change_that_cannot_be_written_fails_alone(tmp_path: Path) -> None:
    async def work(service: BossService) -> None:
        # A lone surrogate can be no text of the database's.
        bad = event("stopped", 20, session="bad", message="x", pane="\ud800")
        failed = await asyncio.gather(service.take(stop("a", 10)), service.take(bad), return_exceptions=True)
        assert failed[0] == 1
        assert isinstance(failed[1], StoreFailed)
        assert await service.take(stop("c", 30)) == 1
        assert [item.session_id for item in service.queue()] == ["a", "c"]

    with_service(tmp_path, work)


def test_change_that_builds_on_one_that_failed_fails_too(tmp_path: Path) -> None:
    async def work(service: BossService) -> bool:
        bad = event("prompted", 20, session="bad", pane="\ud800")
        failed = await asyncio.gather(
            service.take(bad), service.take(stop("bad", 30)), return_exceptions=True
        )
        assert isinstance(failed[0], StoreFailed)
        return failed[1] == 1

    async def after(service: BossService) -> bool:
        return [item.session_id for item in service.queue()] == ["bad"]

    acknowledged = with_service(tmp_path, work)
    assert with_service(tmp_path, after) == acknowledged


def _aside(folder: Path, label: str) -> Path:
    (found,) = folder.glob(f"boss.db.{label}*[0-9]")
    return found


def test_damaged_database_is_laid_aside_and_named(tmp_path: Path) -> None:
    (tmp_path / "boss.db").write_bytes(b"this is no database" * 100)

    async def work(service: BossService) -> None:
        assert service.store.laid_aside == _aside(tmp_path, "damaged")
        await service.take(stop("a", 10))

    with_service(tmp_path, work)
    assert _aside(tmp_path, "damaged").read_bytes() == b"this is no database" * 100


def test_database_with_a_torn_page_is_laid_aside(tmp_path: Path) -> None:
    async def fill(service: BossService) -> None:
        await service.take(*(stop(f"s{number}", 10 + number) for number in range(200)))

    with_service(tmp_path, fill)
    whole = (tmp_path / "boss.db").read_bytes()
    (tmp_path / "boss.db").write_bytes(whole[:4096] + b"\xff" * 8192 + whole[12288:])

    async def work(service: BossService) -> None:
        assert service.store.laid_aside == _aside(tmp_path, "damaged")
        assert service.queue() == []

    with_service(tmp_path, work)


def test_newer_database_is_laid_aside_with_its_version_and_not_changed(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "boss.db") as newer:
        newer.executescript("PRAGMA user_version=7; CREATE TABLE future (x); INSERT INTO future VALUES (1);")
    newer.close()
    bytes_before = (tmp_path / "boss.db").read_bytes()

    async def work(service: BossService) -> None:
        assert service.store.laid_aside == _aside(tmp_path, "version-7")

    with_service(tmp_path, work)
    assert _aside(tmp_path, "version-7").read_bytes()[100:] == bytes_before[100:]


def test_log_is_laid_out_at_the_start_and_written_over(tmp_path: Path) -> None:
    log = tmp_path / "boss.db-wal"

    async def work(service: BossService) -> None:
        laid_out = log.stat()
        assert laid_out.st_blocks * 512 >= laid_out.st_size > 1 << 20
        for number in range(500):
            await service.take(event("prompted", 10 + 2 * number), stop("s", 11 + 2 * number))
        assert log.stat().st_size < 2 * laid_out.st_size

    with_service(tmp_path, work)


def test_log_that_was_only_laid_out_holds_nothing_for_the_next_start(tmp_path: Path) -> None:
    async def work(service: BossService) -> None:
        await service.take(stop("a", 10))

    with_service(tmp_path, work)
    # As a kill right behind the laying out leaves it.
    (tmp_path / "boss.db-wal").write_bytes(bytes(1 << 20))

    async def after(service: BossService) -> None:
        assert service.store.laid_aside is None
        assert [item.session_id for item in service.queue()] == ["a"]

    with_service(tmp_path, after)


def test_log_of_a_killed_boss_is_made_longer_and_loses_nothing(tmp_path: Path) -> None:
    async def work(service: BossService) -> None:
        await service.take(stop("a", 10))
        # A copy as a kill leaves it, without the room behind its last frame.
        held = (tmp_path / "boss.db-wal").read_bytes().rstrip(b"\0")
        frames = -(-(len(held) - 32) // 4120)
        (tmp_path / "killed").mkdir()
        (tmp_path / "killed" / "boss.db").write_bytes((tmp_path / "boss.db").read_bytes())
        (tmp_path / "killed" / "boss.db-wal").write_bytes(held.ljust(32 + 4120 * frames, b"\0"))

    async def after(service: BossService) -> None:
        assert (tmp_path / "killed" / "boss.db-wal").stat().st_size > 1 << 20
        assert [item.session_id for item in service.queue()] == ["a"]
        await service.take(stop("b", 11))

    with_service(tmp_path, work)
    with_service(tmp_path / "killed", after)


def test_files_are_for_this_user_alone(tmp_path: Path) -> None:
    async def work(service: BossService) -> None:
        await service.take(stop("a", 10))
        for path in tmp_path.glob("boss.db*"):
            assert path.stat().st_mode & 0o077 == 0, path

    with_service(tmp_path, work)


def test_old_history_is_forgotten_and_what_waits_is_not(tmp_path: Path) -> None:
    async def work(service: BossService) -> None:
        await service.take(stop("waits", 10), stop("over", 11), event("ended", 12, session="over"))
        await service.store.prune(12 + 31 * 86400, keep=["waits"])
        assert service.store.history(10) == []
        assert service.store.fetch("over") is None
        assert service.store.fetch("waits") is not None
        for number in range(5):
            await service.take(
                stop("again", 20 + 2 * number), event("prompted", 21 + 2 * number, session="again")
            )
        await service.store.prune(100, keep=[], history=2)
        assert [item.since for item in service.store.history(10)] == [28, 26]

    with_service(tmp_path, work)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_impossible_time_is_refused(tmp_path: Path, bad: float) -> None:
    async def work(service: BossService) -> None:
        with pytest.raises(InvalidOptions):
            await service.take(stop("a", bad))
        with pytest.raises(InvalidOptions):
            await service.take(stop("", 5))

    with_service(tmp_path, work)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_WORDS = (
    "pane",
    "tmux",
    "pid",
    "name",
    "cwd",
    "tool",
    "input",
    "digest",
    "tool_use_id",
    "message",
    "background",
)
_MORE = ("shells", "suggestions", "reason", "options", "until", "error", "how", "why", "notice", "continued")
_STILL_MORE = ("ask", "ok", "origin", "entrypoint", "subagent", "expires_at")


@given(
    st.sampled_from(EventKind),
    st.dictionaries(st.sampled_from(_WORDS + _MORE + _STILL_MORE), _JSON, max_size=6),
)
@example(EventKind.HELD, {"tool": 1})
def test_facts_of_any_kind_are_harmless(kind: EventKind, facts: dict[str, Any]) -> None:
    index = SessionIndex()
    index.take(Event(kind, "s", 10.0, id="1", facts=facts), 100)
    index.take(Event(EventKind.ASKED, "s", 12.0, id="2", facts=facts), 100)
    index.take(Event(kind, "s", 11.0, id="3", facts=facts), 100)
    index.take(stop("s", 50), 100)
    # What a budget holds is held after its stop too.
    messages = [item.message for item in index.queue() if item.reason is not Reason.BUDGET]
    assert messages in ([], ["s is done"])


def test_desk_whose_caller_went_away_still_takes_the_event(tmp_path: Path) -> None:
    async def work() -> None:
        async with open_service(tmp_path) as service:
            task = asyncio.create_task(service.take(stop("a", 10)))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await service.take(stop("b", 11))
        store = Store(tmp_path / "boss.db")
        known, _ = store.load(0)
        store.close()
        assert {one.session.id for one in known} == {"a", "b"}

    asyncio.run(work())


def test_snapshot_on_disk_has_the_names_that_other_versions_read() -> None:
    projection = SessionProjection(activity=Activity.STOPPED, unrepeated=(("words", 5.0),))
    document = save(projection)
    assert set(document) == {
        *("under", "since", "by", "message", "detail", "asks", "shut_at", "calls", "earlier", "told"),
        *("continued_at", "dismissed_at", "pid", "scripted", "why", "hold"),
    }
    assert (document["under"], document["told"]) == ("stopped", (("words", 5.0),))
    assert load(json.loads(json.dumps(document))) == projection
