"""What agents use is counted once, whatever their records repeat; and money only where it is known."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from remuda.agents.conversation import MessageUsage, Tokens, TurnBegun
from remuda.boss.records import figures
from remuda.boss.records.figures import UsageSum
from remuda.boss.service import BossService
from remuda.boss.usage_account import FileAccount, Owner, count
from remuda.boss.usage_report import Prices, group_usage
from remuda.errors import StoreFailed
from support.boss import event, with_service

NOW = 1_000_000.0
OWNER = Owner("claude", "/srv", None)


def used(name: str, at: float = NOW, output: int = 7, cost: float | None = None) -> MessageUsage:
    return MessageUsage(name, "m-1", Tokens(10, output, 3, None), at, cost)


def outputs(account: FileAccount, *reports: MessageUsage | TurnBegun) -> list[int | None]:
    return [delta.output for delta in count(account, reports, OWNER, NOW)]


def test_message_that_several_records_report_counts_once_as_the_last_one_says() -> None:
    account = FileAccount("s")
    assert outputs(account, TurnBegun("t", NOW), used("a", output=1), used("b"), used("a", output=9)) == [
        1,
        7,
        8,
    ]
    assert outputs(account, used("a", output=9)) == []


def test_account_that_was_saved_goes_on_where_it_was() -> None:
    account = FileAccount("s", inode=5, offset=6)
    outputs(account, TurnBegun("t", NOW), used("a", output=4))
    again = FileAccount.load("s", account.save())
    assert again == account
    assert outputs(again, used("a", output=6)) == [2]


def test_file_that_is_read_again_from_its_start_counts_only_what_is_newer() -> None:
    account = FileAccount("s")
    outputs(account, used("a", at=NOW - 20), used("b", at=NOW - 10))
    account.recent.clear()
    account.skip_until = account.counted_until
    assert outputs(account, used("a", at=NOW - 20), used("b", at=NOW - 10), used("c", at=NOW - 5)) == [7]


def test_date_in_the_future_counts_as_now() -> None:
    (delta,) = count(FileAccount("s"), [used("a", at=9e12)], OWNER, NOW)
    assert delta.key.hour == int(NOW) // 3600


def test_number_that_no_message_can_have_is_unknown_and_spoils_no_sum(tmp_path: Path) -> None:
    reports = [
        used("a", output=1 << 62, cost=1e308),
        used("b", output=1 << 62, cost=1e308),
        used("c", cost=2.0),
    ]
    rows_of(tmp_path, ("s", [*reports, used("d", output=10**30)]))
    (row,) = figures.Figures(tmp_path / "boss.db").usage_sums(0.0)
    assert (row.messages, row.output, row.cost) == (4, 7, 2.0)


def test_database_that_cannot_be_read_is_an_error_that_a_later_try_outlives(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="cannot read"):
        figures.Figures(tmp_path / "boss.db").usage_sums(0.0)
    with pytest.raises(StoreFailed, match="cannot read"):
        list(figures.Figures(tmp_path / "boss.db").usage(0.0, NOW))


def rows_of(folder: Path, *accounts: tuple[str, list[MessageUsage | TurnBegun]]) -> list[UsageSum]:
    async def write(service: BossService) -> None:
        for session, reports in accounts:
            deltas = count(FileAccount(session), reports, OWNER, NOW)
            await service.store.run(lambda deltas=deltas: map(figures.add_usage, deltas))  # type: ignore[misc]

    with_service(folder, write)
    return list(figures.Figures(folder / "boss.db").usage(0, NOW))


def test_rows_add_up_and_what_is_unknown_stays_unknown(tmp_path: Path) -> None:
    reports: list[MessageUsage | TurnBegun] = [
        TurnBegun("t", NOW),
        used("a"),
        used("b"),
        TurnBegun("u", NOW),
        used("c"),
    ]
    rows = rows_of(tmp_path, ("s", reports), ("r", [used("x")]))
    groups, total, is_cut = group_usage(rows, "session", Prices(), 10)
    assert [(one["key"], one["messages"], one["turns"]) for one in groups] == [("s", 3, 2), ("r", 1, 1)]
    assert total["tokens"] == {"input": 40, "output": 28, "cache_read": 12, "cache_write": None}
    assert (total["cost"], total["cost_partial"], is_cut) == (None, False, False)


def test_money_comes_from_prices_or_from_the_agent_and_is_partial_if_some_is_unknown(tmp_path: Path) -> None:
    known = MessageUsage("k", "dear-1", Tokens(1_000_000, 2_000_000, 0, 0), NOW)
    costed = MessageUsage("c", "other", Tokens(1, 1, None, None), NOW, cost=0.5)
    rows = rows_of(tmp_path, ("s", [known]), ("r", [used("x")]), ("q", [costed]))
    prices = Prices("USD", {"dear-*": {"input": 3.0, "output": 10.0}, "m": {}})
    groups, total, _ = group_usage(rows, "model", prices, 10)
    costs = {one["key"]: one["cost"] for one in groups}
    assert costs == {"dear-1": 23.0, "m-1": None, "other": 0.5}
    assert (total["cost"], total["cost_partial"]) == (23.5, True)


def test_price_of_a_kind_that_was_used_must_be_known() -> None:
    row = UsageSum("s", "t", "m", 1, "claude", None, None, 1, 1, 1, 0, 5, 5, 5, 0, None, 0)
    assert Prices("USD", {"m": {"input": 1.0, "output": 1.0}}).cost(row) is None
    assert Prices("USD", {"m": {"input": 1.0, "output": 1.0, "cache_read": 0.0}}).cost(row) == 1e-05


def test_old_turns_are_summed_up_by_hour_and_nothing_is_lost(tmp_path: Path) -> None:
    reports: list[MessageUsage | TurnBegun] = []
    for number in range(20):
        reports += [TurnBegun(f"t{number}", NOW), used(f"m{number}")]
    before = rows_of(tmp_path, ("s", reports))
    for later in (8 * 86400, 9 * 86400):

        async def prune(service: BossService, later: float = later) -> None:
            await service.store.prune(NOW + later, keep=[])

        with_service(tmp_path, prune)
        after = list(figures.Figures(tmp_path / "boss.db").usage(0, NOW))
        assert (len(before), len(after)) == (20, 1)
        for rows in (before, after):
            (group,), _, _ = group_usage(rows, "session", Prices(), 10)
            assert (group["turns"], group["messages"], group["tokens"]["output"]) == (20, 20, 140)
    with closing(sqlite3.connect(tmp_path / "boss.db")) as connection:
        for statement in figures.pruning(NOW + 100 * 86400):
            connection.execute(*statement)
        assert connection.execute("SELECT count(*) FROM usage").fetchone() == (0,)


def test_conversations_of_a_name_are_found_on_disk_without_those_of_an_earlier_session(
    tmp_path: Path,
) -> None:
    async def write(service: BossService) -> None:
        for at, session, name in ((1, "before", "a"), (5, "one", "a"), (7, "two", "a"), (8, "other", "b")):
            await service.take(event("seen", at, session=session, name=name))

    with_service(tmp_path, write)
    assert figures.Figures(tmp_path / "boss.db").conversations("a", 4.0) == {"one": 5, "two": 7}
