"""Which size a session has: the three policies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remuda.errors import InvalidOptions
from remuda.keeper.size import MAX_COLS, MAX_ROWS, SizeKeeper, check_policy, check_size

START = (220, 50)


def test_latest_the_client_that_typed_last_decides() -> None:
    sizes = SizeKeeper("latest", START)
    assert sizes.wish(1, (80, 24)) == (80, 24)
    assert sizes.wish(2, (100, 30)) == (100, 30)
    assert sizes.typed(1) == (80, 24)
    assert sizes.typed(2) == (100, 30)


def test_latest_typing_without_a_wish_changes_nothing() -> None:
    sizes = SizeKeeper("latest", START)
    assert sizes.typed(3) == START
    sizes.wish(1, (80, 24))
    assert sizes.typed(3) == (80, 24)


def test_latest_the_typist_leaves_the_one_before_decides() -> None:
    sizes = SizeKeeper("latest", START)
    sizes.wish(1, (80, 24))
    sizes.wish(2, (100, 30))
    assert sizes.gone(2) == (80, 24)


def test_latest_all_leave_the_last_size_stays() -> None:
    sizes = SizeKeeper("latest", START)
    sizes.wish(1, (80, 24))
    assert sizes.gone(1) == (80, 24)


def test_smallest_everything_fits_every_client() -> None:
    sizes = SizeKeeper("smallest", START)
    assert sizes.wish(1, (80, 50)) == (80, 50)
    assert sizes.wish(2, (100, 30)) == (80, 30)
    assert sizes.typed(2) == (80, 30)
    assert sizes.gone(1) == (100, 30)


def test_fixed_wishes_change_nothing_and_a_command_does() -> None:
    sizes = SizeKeeper("fixed", START)
    assert sizes.wish(1, (80, 24)) == START
    assert sizes.typed(1) == START
    assert sizes.command((90, 20)) == (90, 20)
    assert sizes.wish(1, (70, 10)) == (90, 20)


def test_command_holds_until_a_client_has_its_say() -> None:
    sizes = SizeKeeper("latest", START)
    sizes.wish(1, (80, 24))
    assert sizes.command((90, 20)) == (90, 20)
    assert sizes.wish(2, (70, 10)) == (70, 10)


@pytest.mark.parametrize("size", [(0, 1), (1, 0), (-1, 5), (MAX_COLS + 1, 1), (1, MAX_ROWS + 1)])
def test_check_size_impossible_is_refused(size: tuple[int, int]) -> None:
    with pytest.raises(InvalidOptions):
        check_size(*size)


@pytest.mark.parametrize("size", [(1, 1), (MAX_COLS, MAX_ROWS)])
def test_check_size_extreme_is_taken(size: tuple[int, int]) -> None:
    assert check_size(*size) == size


def test_check_policy_unknown_is_refused() -> None:
    assert check_policy("smallest") == "smallest"
    with pytest.raises(InvalidOptions):
        check_policy("biggest")


sizes_ = st.tuples(st.integers(1, 300), st.integers(1, 100))
steps = st.lists(
    st.tuples(st.sampled_from(["wish", "typed", "gone"]), st.integers(1, 3), sizes_), max_size=20
)


@given(steps)
def test_smallest_any_steps_the_size_fits_every_wish(walk: list[tuple[str, int, tuple[int, int]]]) -> None:
    sizes = SizeKeeper("smallest", START)
    wishes: dict[int, tuple[int, int]] = {}
    for step, client, size in walk:
        if step == "wish":
            sizes.wish(client, size)
            wishes[client] = size
        elif step == "typed":
            sizes.typed(client)
        else:
            sizes.gone(client)
            wishes.pop(client, None)
        if wishes:
            assert sizes.size == (min(c for c, _ in wishes.values()), min(r for _, r in wishes.values()))


@given(steps)
def test_latest_any_steps_the_size_is_the_last_typists_wish(
    walk: list[tuple[str, int, tuple[int, int]]],
) -> None:
    sizes = SizeKeeper("latest", START)
    wishes: dict[int, tuple[int, int]] = {}
    order: list[int] = []
    for step, client, size in walk:
        order = [one for one in order if one != client]
        if step == "gone":
            sizes.gone(client)
            wishes.pop(client, None)
        else:
            order.append(client)
            if step == "wish":
                wishes[client] = size
                sizes.wish(client, size)
            else:
                sizes.typed(client)
        with_wish = [one for one in order if one in wishes]
        if with_wish:
            assert sizes.size == wishes[with_wish[-1]]
