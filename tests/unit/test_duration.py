"""Durations and times as people write and read them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.cli.common import time_span
from remuda.cli.run_once import parse as parse_run
from remuda.duration import LONGEST, parse_duration, parse_moment, parse_time, show_duration, show_moment
from remuda.errors import InvalidOptions
from remuda.oneshot.print_request import parse as parse_print


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("45m", 2700),
        ("24h", 86400),
        ("7d", 604800),
        ("2h30m", 9000),
        ("1d2h3m4s", 93784),
        ("30m2h", 9000),
        ("1h1h", 7200),
        ("0h1s", 1),
        (f"{'9' * 400}s", LONGEST),
        (f"{'9' * 5000}d1h", LONGEST),
    ],
)
def test_parse_written_duration_gives_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


TIMES = [
    ("90", 90),
    ("1.5", 1.5),
    ("0", 0),
    ("0s", 0),
    ("0h0m", 0),
    ("45m", 2700),
    ("2h30m", 9000),
    ("1.5h", 5400),
    ("1d2h3m4.5s", 93784.5),
    ("1000000000", LONGEST),
]


@pytest.mark.parametrize(("text", "seconds"), TIMES)
def test_parse_time_is_the_same_in_every_command(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds
    assert time_span(text) == seconds  # pool
    for flag in ("--timeout", "--first-output-timeout", "--stream-json-timeout", "--stop-hook-timeout"):
        assert getattr(parse_print([flag, text]), flag[2:].replace("-", "_")) == seconds
        assert getattr(parse_print([flag, text], ask=True), flag[2:].replace("-", "_")) == seconds
    if seconds:
        assert parse_run(["x", "--timeout", text])[1] == {"--timeout": seconds}


@pytest.mark.parametrize(
    "text",
    ["", "soon", "5w", "-1", "nan", "inf", "1h 30m", "1e9", "1_000", "٣", "1m1m", "1m1h", "1h30", "1.", ".5"],
)
def test_parse_time_says_how_to_write_one(text: str) -> None:
    wanted = "is not a time; write for example 90s, 45m or 2h30m"
    for parse in (parse_time, lambda text: parse_print(["--timeout", text])):
        with pytest.raises(InvalidOptions, match=wanted):
            parse(text)


@pytest.mark.parametrize("text", ["99999d", "1000000001", "9" * 400])
def test_parse_time_that_is_too_long_is_an_error(text: str) -> None:
    with pytest.raises(InvalidOptions, match="is too long; the longest time is 11574d"):
        parse_time(text)


@pytest.mark.parametrize(
    "text", ["", "0s", "0d0h", "5", "h", "5w", "1.5h", "-1h", "1h 30m", " 1h", "1h\n", "1H", "5ms", "１h"]
)
def test_parse_what_is_no_duration_is_an_error(text: str) -> None:
    with pytest.raises(InvalidOptions):
        parse_duration(text)


@given(st.dictionaries(st.sampled_from("smhd"), st.integers(0, 10**6), min_size=1))
def test_parse_any_sum_of_units_gives_their_sum(parts: dict[str, int]) -> None:
    text = "".join(f"{number}{unit}" for unit, number in parts.items())
    wanted = sum(number * {"s": 1, "m": 60, "h": 3600, "d": 86400}[unit] for unit, number in parts.items())
    if wanted:
        assert parse_duration(text) == min(wanted, LONGEST)
    else:
        with pytest.raises(InvalidOptions):
            parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0s"),
        (0, "0s"),
        (0.9999, "0s"),
        (1, "1s"),
        (59.9, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h00m"),
        (9000, "2h30m"),
        (86399, "23h59m"),
        (86400, "1d"),
        (400000, "4d"),
    ],
)
def test_show_duration_is_short_and_never_says_more_than_has_passed(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(-1, "0ms"), (0.85, "850ms"), (0.9999, "999ms"), (1.5, "1s"), (9000, "2h30m")]
)
def test_show_duration_precise_has_milliseconds(seconds: float, text: str) -> None:
    assert show_duration(seconds, precise=True) == text


# ── times ──

NOON = 1770120000.0  # 2026-02-03 12:00 UTC, a Tuesday


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An hour ahead in winter, two in summer."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("13:01", 60),
        ("13:00", 86400),
        ("12:59", 86340),
        ("0:00", 11 * 3600),
        ("2026-02-04", 11 * 3600),
        ("2026-02-03 14:00", 3600),
        ("2026-02-03T14:00:30", 3630),
        ("2026-02-03T14:00+00:00", 7200),
        ("2026-07-03 14:00", 150 * 86400),
    ],
)
@pytest.mark.usefixtures("berlin")
def test_parse_moment_is_the_next_time_that_a_clock_here_shows_it(text: str, after: float) -> None:
    assert parse_moment(text, NOON) == NOON + after


@pytest.mark.parametrize(
    "text", ["", "soon", "24:00", "12:60", "1:2", "2026-02-03 13:00", "2001-01-01", "14:30\n", "99999-01-01"]
)
@pytest.mark.usefixtures("berlin")
def test_parse_what_is_no_time_or_is_over_is_an_error(text: str) -> None:
    with pytest.raises(InvalidOptions):
        parse_moment(text, NOON)


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (60, "13:01"),
        (11 * 3600, "Wed 00:00"),
        (3 * 86400, "Fri 13:00"),
        (9 * 86400, "2026-02-12 13:00"),
        (-86400, "2026-02-02 13:00"),
    ],
)
@pytest.mark.usefixtures("berlin")
def test_show_moment_is_as_short_as_it_can_be(after: float, text: str) -> None:
    assert show_moment(NOON + after, NOON) == text
