"""Limits of accounts, as the keepers wrote them down."""

from __future__ import annotations

from pathlib import Path

from remuda.boss.evidence.limits import limits
from remuda.turns.account import Account


def test_limits_that_last_are_reported_and_those_that_are_over_are_not(tmp_path: Path) -> None:
    assert limits(tmp_path / "none", 1000.0) == []
    Account(tmp_path, "aaaaaaaaaaaa").limit(1600.0, "weekly limit")
    Account(tmp_path, "bbbbbbbbbbbb").limit(900.0, "over")
    Account(tmp_path, "cccccccccccc").limit(1100.0, "rate limited")
    (tmp_path / "broken.json").write_text("{")
    assert [one.document for one in limits(tmp_path, 1000.0)] == [
        {"account": "cccccccc", "until": 1100.0, "reason": "rate limited", "sessions": [], "messages": 0},
        {"account": "aaaaaaaa", "until": 1600.0, "reason": "weekly limit", "sessions": [], "messages": 0},
    ]
