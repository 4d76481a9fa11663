"""Which names a session can have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.errors import BadName
from remuda.names import MAX_NAME_BYTES, check_name, did_you_mean, known_words, near_names


@pytest.mark.parametrize("name", ["work", "a", "9", "_x", "a.b-c_d@e+f", "x" * MAX_NAME_BYTES, "v1..2"])
def test_check_name_good_is_returned(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../evil",
        "a/b",
        "/etc/passwd",
        ".hidden",
        "-flag",
        "a b",
        "a\nb",
        "work\n",
        "a\0b",
        "é",
        "\udcff",
        "x" * (MAX_NAME_BYTES + 1),
        "@a",
        "a\x1b[2J",
    ],
)
def test_check_name_bad_is_refused(name: str) -> None:
    with pytest.raises(BadName):
        check_name(name)


@given(st.text(max_size=80))
def test_check_name_any_text_is_refused_or_a_plain_file_name(name: str) -> None:
    try:
        check_name(name)
    except BadName:
        return
    assert name not in ("", ".", "..")
    assert name.isascii()
    assert not set(name) & set("/\0\n\\ ")
    assert not name.startswith((".", "-"))


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("wrok", ["work"]),
        ("wor", ["work"]),
        ("Work", ["work"]),
        ("bulid", ["build"]),
        ("doc", ["docs"]),
        ("x", []),
        ("nothing-like-it", []),
        ("", []),
        ("w" * 10_000, []),
    ],
)
def test_near_names_are_those_of_a_typing_mistake(word: str, near: list[str]) -> None:
    assert near_names(word, ["work", "build", "docs", "engine"]) == near


def test_did_you_mean_names_the_nearest_alone() -> None:
    assert did_you_mean("tset", ["test", "tests", "rest"]) == "did you mean 'test'?"
    assert did_you_mean("bar", ["bat", "baz", "foo"]) == "did you mean 'bat' or 'baz'?"
    assert did_you_mean("bar", []) == ""


def test_known_words_names_the_near_ones_else_all() -> None:
    assert known_words("tset", ["test", "foo"]) == "did you mean 'test'?"
    assert known_words("never", ["test", "foo"]) == "known: test, foo"
