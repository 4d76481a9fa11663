"""What people call a session."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.boss.attention.display import beginnings, distinct, label
from remuda.boss.navigator import reason


@pytest.mark.parametrize(
    ("name", "folder", "wanted"),
    [
        ("work", "/src/engine", "work"),
        (None, "/src/engine", "engine"),
        (None, "/src/engine/", "engine"),
        (None, "/", "01234567"),
        (None, None, "01234567"),
        ("", "", "01234567"),
        (None, "/src/\x1b[2Jevil\n", "[2Jevil"),
    ],
)
def test_label_is_the_shortest_that_says_something(name: str | None, folder: str | None, wanted: str) -> None:
    assert label(name, folder, "0123456789") == wanted


@given(st.lists(st.text("ab", min_size=1, max_size=12), unique=True))
def test_beginnings_distinguish_every_id_from_every_other(ids: list[str]) -> None:
    found = beginnings(ids)
    assert len(set(found.values())) == len(ids)
    assert all(one.startswith(begin) for one, begin in found.items())


def test_labels_of_several_are_distinguished_by_what_can_be_typed() -> None:
    assert distinct({"aaaaaaaa1": "x", "aaaaaaaa2": "x", "b": "y"}) == {
        "aaaaaaaa1": "x aaaaaaaa1",
        "aaaaaaaa2": "x aaaaaaaa2",
        "b": "y",
    }
    assert distinct({}) == {}


def test_interrupt_is_distinguished_from_an_end() -> None:
    assert reason({"reason": "stopped", "detail": {}}) == "stopped"
    assert reason({"reason": "stopped", "detail": {"interrupted": True}}) == "stopped (interrupted)"
