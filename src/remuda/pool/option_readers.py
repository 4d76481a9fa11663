"""Checks of single options: each takes a name and a value and returns the value to use. Pure.

They raise `InvalidOptions`.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from remuda.agents import find_warm
from remuda.arguments import check_options, check_path, check_text, shown
from remuda.duration import check_seconds
from remuda.errors import InvalidOptions

MAX_REQUEST_ID = 128
_REQUEST_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@+-]*", re.ASCII)

Reader = Callable[[str, object], object]


def read_all(given: Mapping[str, object], known: Mapping[str, Reader], of: str) -> dict[str, Any]:
    """Return the checked options. None means not checked, except where it means "no limit"."""
    values = {}
    check_options(given, known, of)
    for name, value in given.items():
        reader = known[name]
        if value is not None or reader in (limit, count_limit):
            values[name] = reader(name, value)
    return values


def _wrong(name: str, value: object, wanted: str) -> InvalidOptions:
    return InvalidOptions(f"{name} must be {wanted}, not {type(value).__name__}")


def text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong(name, value, "a string")
    return check_text(name, value)


def word(name: str, value: object) -> str:
    checked = text(name, value)
    if not checked:
        raise InvalidOptions(f"{name} is empty")
    return checked


def path(name: str, value: object) -> str:
    if not isinstance(value, str | os.PathLike):
        raise _wrong(name, value, "a path")
    return word(name, check_path(name, value))


def config(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        try:
            return json.dumps(dict(value), sort_keys=True)
        except (TypeError, ValueError) as error:
            raise InvalidOptions(f"{name} cannot be written as JSON: {error}") from None
    return path(name, value)


def many(
    read: Callable[[str, object], str], *, alone: bool = False
) -> Callable[[str, object], tuple[str, ...]]:
    """Read a sequence; with `alone` also a single value. A string is refused: it would be read by letters."""

    def reader(name: str, value: object) -> tuple[str, ...]:
        if alone and isinstance(value, str | os.PathLike | Mapping):
            return (read(name, value),)
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise _wrong(name, value, "a list")
        return tuple(read(name, one) for one in value)

    return reader


def sources(name: str, value: object) -> str:
    if isinstance(value, str):
        return text(name, value)
    return ",".join(many(word)(name, value))


def env(name: str, value: object) -> dict[str, str | None]:
    if not isinstance(value, Mapping):
        raise _wrong(name, value, "a mapping")
    for key, one in value.items():
        if "=" in word(f"a name in {name}", key):
            raise InvalidOptions(f"{key!r} in {name} is not a valid variable name")
        if one is not None:
            text(f"{name}[{key!r}]", one)
    return dict(value)


def seconds(name: str, value: object) -> float:
    checked = check_seconds(name, value)
    if checked == 0:
        raise InvalidOptions(f"{name} must be more than 0 seconds")
    return checked


def seconds_or_zero(name: str, value: object) -> float:
    return 0.0 if value == 0 and not isinstance(value, bool) else seconds(name, value)


def amount(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e9:
        raise InvalidOptions(f"{name} must be a number above 0, not {shown(value)}")
    return float(value)


def limit(name: str, value: object) -> float | None:
    return None if value is None else seconds(name, value)


def count(name: str, value: object) -> int:
    return count_from(name, value, 1)


def count_limit(name: str, value: object) -> int | None:
    return None if value is None else count(name, value)


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, value, "True or False")
    return value


def one_of(*names: str) -> Reader:
    def reader(name: str, value: object) -> str:
        if value not in names:
            raise InvalidOptions(f"{name} must be one of {', '.join(names)}, not {shown(value)}")
        return str(value)

    return reader


def agent(_name: str, value: object) -> str:
    find_warm(value)
    return str(value)


def permissions(name: str, value: object) -> object:
    if value not in ("deny", "allow") and not callable(value):
        raise InvalidOptions(f"{name} must be 'deny', 'allow' or a function, not {shown(value)}")
    return value


def request_id(name: str, value: object) -> str:
    checked = text(name, value)
    if len(checked) > MAX_REQUEST_ID or _REQUEST_ID.fullmatch(checked) is None:
        raise InvalidOptions(
            f"{checked[:64]!r} is not a valid {name}",
            hint=f"use 1 to {MAX_REQUEST_ID} letters, digits and . _ - @ +; start with a letter, digit or _",
        )
    return checked


def signal(name: str, value: object) -> object:
    # Not a threading.Event: a coroutine cannot wait for it.
    if not hasattr(value, "is_set") or not inspect.iscoroutinefunction(getattr(value, "wait", None)):
        raise _wrong(name, value, "an asyncio.Event")
    return value


def prompt(name: str, value: object) -> str:
    checked = text(name, value)
    if not checked.strip():
        raise InvalidOptions(f"{name} is empty")
    try:
        checked.encode()
    except UnicodeEncodeError as error:
        raise InvalidOptions(f"{name} is not valid Unicode: {error.reason}") from None
    return checked


def count_from(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, value, "an integer")
    if value < least:
        raise InvalidOptions(f"{name} must be at least {least}, not {value}")
    return value
