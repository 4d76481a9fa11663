"""Errors carry a code and an exit code, and survive the way between two processes."""

from __future__ import annotations

import pytest

from remuda import errors
from remuda.errors import EXIT_CODES, RemudaError, from_code

ALL = sorted(
    (value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, RemudaError)),
    key=lambda kind: kind.__name__,
)


def test_codes_of_all_errors_are_distinct() -> None:
    codes = [kind.code for kind in ALL]
    assert len(set(codes)) == len(codes) > 15


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_error_of_every_kind_has_an_exit_code_from_the_table(kind: type[RemudaError]) -> None:
    assert kind("what").exit_code == EXIT_CODES[kind.exit_name] > 0


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_from_code_of_every_kind_gives_that_kind_again(kind: type[RemudaError]) -> None:
    again = from_code(kind.code, "what went wrong", "what to do")
    assert type(again) is kind
    assert (again.message, again.hint) == ("what went wrong", "what to do")


def test_from_code_unknown_gives_the_base_error() -> None:
    assert type(from_code("FROM_THE_FUTURE", "what")) is RemudaError


def test_text_with_and_without_hint_says_both() -> None:
    assert str(RemudaError("what")) == "what"
    assert str(RemudaError("what", hint="do this")) == "what; do this"


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_module_docstring_draws_every_error(kind: type[RemudaError]) -> None:
    assert errors.__doc__ is not None
    assert kind.__name__ in errors.__doc__


def test_exit_codes_of_the_table_are_distinct_and_fit_a_process() -> None:
    numbers = list(EXIT_CODES.values())
    assert len(set(numbers)) == len(numbers)
    assert all(0 <= number <= 255 for number in numbers)
