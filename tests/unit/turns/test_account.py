"""The limits of an account, as the keepers of a user share them."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from remuda.turns.account import Account

NOW = 1_800_000_000.0
DAY = 24 * 3600.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "accounts"


def test_account_without_a_file_has_no_limit(folder: Path) -> None:
    assert Account(folder, "a").limited_for(NOW) == 0
    assert not folder.exists()


def test_account_limit_of_one_keeper_holds_for_all_until_it_is_over(folder: Path) -> None:
    mine, theirs = Account(folder, "a"), Account(folder, "a")
    assert theirs.limited_for(NOW) == 0
    mine.limit(NOW + 30, "slow down")
    assert theirs.limited_for(NOW) == 30
    assert theirs.reason == "slow down"
    assert theirs.limited_for(NOW + 29) == 1
    assert theirs.limited_for(NOW + 30) == 0
    assert theirs.limited_for(NOW + 31) == 0


def test_account_limit_of_another_account_does_not_count(folder: Path) -> None:
    Account(folder, "a").limit(NOW + 30, "slow down")
    assert Account(folder, "b").limited_for(NOW) == 0


def test_account_later_of_two_limits_holds(folder: Path) -> None:
    one, other = Account(folder, "a"), Account(folder, "a")
    one.limit(NOW + 60, "long")
    other.limit(NOW + 30, "short")
    assert one.limited_for(NOW) == 60
    other.limit(NOW + 90, "longer")
    assert one.limited_for(NOW) == 90


def test_account_file_that_is_removed_lifts_the_limit(folder: Path) -> None:
    account = Account(folder, "a")
    account.limit(NOW + 30, "slow down")
    assert account.limited_for(NOW) == 30
    account.path.unlink()
    assert account.limited_for(NOW) == 0


def test_account_limit_of_a_clock_that_was_wrong_does_not_count_and_is_replaced(folder: Path) -> None:
    account = Account(folder, "a")
    account.limit(NOW + 400 * DAY, "of another time")
    assert account.limited_for(NOW) == 0
    Account(folder, "a").limit(NOW + 30, "of now")
    assert account.limited_for(NOW) == 30


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"until": "soon"}', '{"until": null}', '{"until": NaN}', "\x00"]
)
def test_account_file_that_cannot_be_read_is_no_limit_and_is_replaced(folder: Path, text: str) -> None:
    folder.mkdir()
    account = Account(folder, "a")
    account.path.write_text(text)
    assert account.limited_for(NOW) == 0
    account.limit(NOW + 30, "slow down")
    assert account.limited_for(NOW) == 30


def test_account_file_is_private_and_holds_no_more_than_it_needs(folder: Path) -> None:
    account = Account(folder, "a")
    account.limit(NOW + 30, "slow down")
    assert stat.S_IMODE(account.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert json.loads(account.path.read_text()) == {"until": NOW + 30, "reason": "slow down"}
    assert [one.name for one in folder.iterdir()] == ["a.json"]
