"""When a usage limit ends, as Claude Code words it."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from remuda.agents.claude.failure import reset_in_words
from remuda.agents.claude.prompting import ClaudePrompts

HIT = "You've hit your limit · resets "


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("now", "words", "wanted"),
    [
        ("2026-11-15 17:01", "5:11pm (UTC)", ("2026-11-15 17:11", "UTC")),
        ("2026-11-15 17:01", "9pm (UTC)", ("2026-11-15 21:00", "UTC")),
        ("2026-11-15 17:01", "10:01pm (Europe/Berlin)", ("2026-11-15 22:01", "Europe/Berlin")),
        ("2026-11-15 17:01", "12:14pm (America/Sao_Paulo)", ("2026-11-16 12:14", "America/Sao_Paulo")),
        ("2026-11-15 17:01", "12am (UTC)", ("2026-11-16 00:00", "UTC")),
        ("2026-11-15 17:01", "Nov 17, 2:01pm (America/New_York)", ("2026-11-17 14:01", "America/New_York")),
        ("2026-12-30 17:01", "Jan 2, 9am (Asia/Kolkata)", ("2027-01-02 09:00", "Asia/Kolkata")),
        ("2026-11-15 17:11:59", "5:11pm (UTC)", ("2026-11-15 17:11", "UTC")),
        ("2026-11-15 17:12:00", "5:11pm (UTC)", ("2026-11-16 17:11", "UTC")),
        ("2026-11-15 17:01", "at 5:11pm (UTC) · progress saved", ("2026-11-15 17:11", "UTC")),
    ],
)
def test_reset_is_the_next_time_that_is_so_called_in_its_zone(
    now: str, words: str, wanted: tuple[str, str]
) -> None:
    assert reset_in_words(HIT + words, at(now)) == at(*wanted)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "soon",
        "5pm",
        "5pm (Middle/Earth)",
        "5pm (../../etc/passwd)",
        "Feb 31, 5pm (UTC)",
        "Foo 3, 5pm (UTC)",
        "5:75pm (UTC)",
        "Nov 17 (UTC)",
    ],
)
def test_words_that_name_no_time_are_none(words: str) -> None:
    assert reset_in_words(HIT + words, at("2026-11-15 17:01")) is None


def test_limit_lasts_to_the_end_of_the_minute_that_is_named() -> None:
    prompts, now = ClaudePrompts(), at("2026-11-15 17:01")
    assert prompts.limited_for(f"{HIT}5:11pm (UTC)", now) == 660.0
    assert prompts.limited_for("API Error: 429", now) is None
