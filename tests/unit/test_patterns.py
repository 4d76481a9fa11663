"""Regular expressions that are compiled late behave as those that are compiled at once."""

from __future__ import annotations

import re

import pytest

from remuda.patterns import pattern


def test_pattern_finds_what_a_compiled_one_finds() -> None:
    late, early = pattern(r"(\d+)-(?P<name>\w+)", re.ASCII), re.compile(r"(\d+)-(?P<name>\w+)", re.ASCII)
    text = "1-one, 22-two"
    assert late.findall(text) == early.findall(text)
    assert late.sub("x", text) == early.sub("x", text)
    assert late.split(text) == early.split(text)
    assert [found["name"] for found in late.finditer(text)] == ["one", "two"]
    assert late.fullmatch("1-one") is not None
    assert late.pattern == early.pattern
    assert late.groups == early.groups


def test_pattern_of_bytes_matches_bytes() -> None:
    assert pattern(rb"a.", re.DOTALL).match(b"a\n") is not None


def test_pattern_that_is_wrong_fails_when_it_is_used() -> None:
    wrong = pattern("(")
    with pytest.raises(re.error):
        wrong.search("x")
