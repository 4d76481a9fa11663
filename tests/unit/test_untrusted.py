"""JSON and text from outside."""

from __future__ import annotations

import json
import math
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.duration import LONGEST, clamp_seconds, show_duration, show_moment
from remuda.untrusted import (
    MAX_DEPTH,
    OWN_DEPTH,
    BadJson,
    bounded,
    dump_json,
    epoch_at,
    finite,
    one_line,
    parse_json,
    parse_object,
    printable,
    show_json,
)
from support.outside_json import VALUES


@given(VALUES)
def test_parse_json_reads_what_dump_json_writes(value: object) -> None:
    assert parse_json(dump_json(value)) == value
    assert parse_json(dump_json(value, ascii_only=False).encode()) == value


@pytest.mark.parametrize(
    ("date", "epoch"),
    [
        ("2026-11-18T12:00:00.250Z", 1795003200.25),
        ("2026-11-18T14:00:00+02:00", 1795003200.0),
        ("1969-12-31T23:59:59Z", None),
        ("0001-01-01T00:00:00", None),
        ("9999-12-31T23:59:59-14:00", 253402351199.0),
        ("never", None),
        ("", None),
        (1795003200, None),
        (None, None),
    ],
)
def test_epoch_at_is_the_date_or_none(date: object, epoch: float | None) -> None:
    assert epoch_at({"at": date}, "at") == epoch
    assert epoch_at({}, "at") is None


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "[Infinity]",
        '{"a": -Infinity}',
        "1e999",
        "-1e999",
        "1" * 400,
        "1" * 5000,
        "[" * 100_000,
        "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1),
        '{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1),
        "",
        "{",
        "[1] 2",
        b"\xff",
    ],
)
def test_parse_json_of_a_document_beyond_bounds_raises_bad_json(text: str | bytes) -> None:
    with pytest.raises(BadJson):
        parse_json(text)


def test_parse_json_at_the_greatest_depth_can_be_written_again() -> None:
    document = parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert parse_json(dump_json(document)) == document


def test_parse_json_counts_no_brackets_inside_of_texts() -> None:
    text = "[" * (MAX_DEPTH * 3) + '\\"{'
    assert parse_json(json.dumps([text])) == [text]


def test_parse_json_makes_a_float_of_an_integer_beyond_64_bits() -> None:
    assert parse_json("9223372036854775807") == 2**63 - 1
    found = parse_json("9223372036854775808")
    assert found == 2.0**63
    assert isinstance(found, float)


def test_parse_json_replaces_half_of_a_surrogate_pair_and_keeps_a_whole_one() -> None:
    assert parse_json(r'{"\ud83d": ["\uDC00", "\ud83d\ude00"]}') == {"�": ["�", "😀"]}
    assert parse_json('"\ud800"') == "�"


@pytest.mark.parametrize("text", ["[]", '"x"', "1", "null"])
def test_parse_object_of_another_document_raises_bad_json(text: str) -> None:
    with pytest.raises(BadJson):
        parse_object(text)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, [math.nan], {"a": math.inf}])
def test_dump_json_refuses_numbers_that_json_does_not_have(value: object) -> None:
    with pytest.raises(ValueError):
        dump_json(value)


@given(st.text(alphabet=st.characters()))
def test_printable_text_holds_nothing_that_a_terminal_acts_on(text: str) -> None:
    for shown in (printable(text), one_line(text)):
        for one in shown:
            kept = one in "\n\t\u200c\u200d" or unicodedata.category(one) not in (
                "Cc",
                "Cf",
                "Cs",
                "Co",
                "Cn",
            )
            assert kept, f"U+{ord(one):04X}"
        shown.encode()
    assert "\n" not in one_line(text)
    assert "\t" not in one_line(text)


@pytest.mark.parametrize("hidden", ["\u034f", "\u115f", "\u2800", "\u3164", "\ufe00", "\uffa0", "\U000e0120"])
def test_printable_shows_letters_without_a_shape(hidden: str) -> None:
    assert printable(f"a{hidden}b") == "a\ufffdb"
    assert show_json(f"a{hidden}b").isascii()
    assert printable("\u26a0\ufe0f") == "\u26a0\ufe0f"


def test_printable_keeps_ordinary_text_as_it_is() -> None:
    for text in ("Grüße,\n\t世界 👩\u200d💻", "a\u00a0b\u3000c\u202fd"):
        assert printable(text) == text
    assert one_line("two\n lines\x1b[2J") == "two lines [2J"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (5, 5.0),
        (0.25, 0.25),
        (-1, 0.0),
        (math.nan, 0.0),
        (math.inf, LONGEST),
        (-math.inf, 0.0),
        (10**400, LONGEST),
        (-(10**400), 0.0),
        (True, 0.0),
        ("5", 0.0),
        (None, 0.0),
    ],
)
def test_clamp_seconds_is_always_a_time_that_can_be_waited(value: object, seconds: float) -> None:
    assert clamp_seconds(value) == seconds


@pytest.mark.parametrize("value", [math.inf, math.nan, -math.inf, 1e300, -1e300])
def test_times_of_any_size_can_be_shown(value: float) -> None:
    assert show_duration(value)
    assert show_moment(value, 0.0)


@pytest.mark.parametrize("value", [math.inf, math.nan, 10**400, "1", None, True, [1]])
def test_finite_of_anything_else_is_the_default(value: object) -> None:
    assert finite(value, 7.0) == 7.0


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (math.inf, sys.float_info.max),
        (-math.inf, -sys.float_info.max),
        (math.nan, None),
        (10**400, sys.float_info.max),
        (2**63, 2.0**63),
        (2**63 - 1, 2**63 - 1),
        (True, True),
        ({"\ud800": [math.nan, "\udfff"]}, {"�": [None, "�"]}),
    ],
)
def test_bounded_is_a_document_that_json_can_hold(value: object, found: object) -> None:
    assert bounded(value) == found
    assert type(bounded(value)) is type(found)
    dump_json(bounded(value))


def test_bounded_of_what_is_nested_without_end_raises_bad_json() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(BadJson):
        bounded(endless)


def test_parse_json_takes_a_depth_for_documents_of_our_own() -> None:
    text = "[" * OWN_DEPTH + "]" * OWN_DEPTH
    assert parse_json(dump_json(parse_json(text, depth=OWN_DEPTH)), depth=OWN_DEPTH)
    with pytest.raises(BadJson):
        parse_json(text)
