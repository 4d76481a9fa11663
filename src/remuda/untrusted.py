"""Data from outside: JSON that is bounded and finite, and text that is safe to print. Pure.

Hooks, transcripts, HTTP bodies, inbox lines and messages of the model's service can hold anything. Every
reader of such JSON calls `parse_json`, every writer `dump_json`, and everything that prints such text to a
terminal or a log goes through `printable` or `one_line`. Files that run alone (the Stop hook, the boss's
hook) import nothing of ours; they carry their own reader, and one test feeds all of them the same documents.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping

from .patterns import pattern

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from typing import Any

MAX_DEPTH = 500
"""Levels of nesting. Python's own encoder and decoder give up below 1,000, at a depth that varies."""
OWN_DEPTH = 600
"""The same for documents of ours that hold such a document."""

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_SURROGATE = pattern(r"[\ud800-\udfff]")
_SURROGATE_ESCAPE = pattern(r"\\u[dD][89a-fA-F]")
_NOT_ASCII = pattern(r"[^\n -~]")
# A string without an end goes to the end of the text: else each quote in it would begin another search.
_BRACKETS = pattern(r'"(?:[^"\\]|\\.)*+"?|[][{}]', re.DOTALL)
_JOINERS = "\u200c\u200d"
# Python calls these printable. U+FE0E and U+FE0F, which say how an emoji looks, may stay.
_SHAPELESS = pattern(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef]"
)
"""Written in Persian, Hindi and emoji; they join characters and move nothing."""
_WIDE_SPACES = (
    "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)
_HARMLESS = "\n\t" + _JOINERS + _WIDE_SPACES
_GREATEST = sys.float_info.max
_INTEGER_DIGITS = 18
"""Every integer of this many digits fits into 64 bits."""


class BadJson(ValueError):
    """The document is not JSON, or holds a number or a nesting beyond bounds. The text says which."""


def parse_json(data: str | bytes, *, depth: int = MAX_DEPTH, keep_surrogates: bool = False) -> Any:
    """Read one JSON document from outside. Raises `BadJson`.

    `NaN`, `Infinity` and numbers beyond the range of a float are refused. An integer beyond 64 bits becomes a
    float, as in JavaScript. Half of a surrogate pair becomes U+FFFD. Nesting beyond `depth` is refused.

    `depth` is for a reader of what was bounded before and then put into another document, `keep_surrogates`
    for our own sockets and for files that are written back: there half of a pair stands for a byte of an
    argument or a path that is not UTF-8.
    """
    try:
        errors = "surrogatepass" if keep_surrogates else "strict"
        text = data if isinstance(data, str) else data.decode("utf-8", errors)
        if text.count("[") + text.count("{") > depth:
            _check_depth(text, depth)
        document = _DECODER.decode(text)
    except BadJson:
        raise
    except RecursionError:
        raise BadJson("nested too deeply") from None
    except ValueError as error:
        raise BadJson(str(error)) from None
    if keep_surrogates:
        return document
    if _SURROGATE_ESCAPE.search(text) or (isinstance(data, str) and _SURROGATE.search(text)):
        return _bounded(document)
    return document


def parse_object(data: str | bytes, *, depth: int = MAX_DEPTH) -> dict[str, Any]:
    """As `parse_json`, for a document that must be an object."""
    document = parse_json(data, depth=depth)
    if not isinstance(document, dict):
        raise BadJson("not a JSON object")
    return document


def dump_json(value: object, *, indent: int | None = None, ascii_only: bool = True) -> str:
    """Write `value` as JSON. Raises `ValueError` for what JSON cannot hold, such as infinity."""
    return json.dumps(value, allow_nan=False, indent=indent, ensure_ascii=ascii_only)


def show_json(value: object, *, indent: int | None = None) -> str:
    """Write any `value` as JSON that is safe on a terminal.

    Printable characters stay, all others are written as `\\uXXXX`. Half of a surrogate pair becomes
    U+FFFD, since strict readers refuse it.
    """
    return escape_hidden(dump_json(bounded(value), indent=indent, ascii_only=False))


def escape_hidden(document: str) -> str:
    """Return a JSON document with `\\uXXXX` for every character that is not printable."""
    return _NOT_ASCII.sub(_escaped, document)


def is_seen(character: str) -> bool:
    """Whether a character shows: some letters and marks have no shape, and could hide in a command."""
    return character.isprintable() and _SHAPELESS.match(character) is None


def printable(text: str) -> str:
    """Return `text` with everything replaced that could move, colour or command a terminal.

    Lines, tabs and spaces of every width stay. Control characters, escape, C1, direction marks, surrogates,
    private characters and letters without a shape become U+FFFD.
    """
    if text.isprintable() and (text.isascii() or _SHAPELESS.search(text) is None):
        return text
    return "".join(one if is_seen(one) or one in _HARMLESS else _REPLACEMENT for one in text)


def one_line(text: str) -> str:
    """As `printable`, on one line: white space of any kind is one space, and what is replaced is gone."""
    if not text.isprintable():
        text = "".join(one if one.isprintable() or one in _JOINERS else " " for one in text)
    return " ".join(text.split())


def finite(value: object, default: float = 0.0) -> float:
    """Return a number from outside as a float; `default` for everything that is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return default
    try:
        number = float(value)
    except OverflowError:
        return default
    return number if math.isfinite(number) else default


def text_at(document: Mapping[str, Any], key: str) -> str | None:
    """Return a string of a document from outside; None for anything else."""
    value = document.get(key)
    return value if isinstance(value, str) else None


LONGEST_NAME = 4096
"""Of an id, a path or the name of a tool: as long as a path can be on Linux."""


def name_at(document: Mapping[str, Any], key: str) -> str | None:
    """Return an id, a path or another name; None for anything else, and for a text longer than any name."""
    value = text_at(document, key)
    return value if value is not None and len(value) <= LONGEST_NAME else None


def epoch_at(document: Mapping[str, Any], key: str) -> float | None:
    """Return an ISO date in seconds since the epoch; None if it is missing, not valid, or before 1970."""
    from datetime import datetime  # slow to load, and not needed by all

    try:
        at = datetime.fromisoformat(str(document.get(key))).timestamp()
    except (ValueError, OverflowError):
        return None
    return at if at >= 0 else None


def as_object(value: object) -> dict[str, Any]:
    """Return an object from outside; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def as_objects(value: object) -> list[dict[str, Any]]:
    """Return the objects in a list from outside; none for anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _escaped(match: re.Match[str]) -> str:
    one = match[0]
    if is_seen(one) or one in _JOINERS:
        return one
    return _REPLACEMENT if _SURROGATE.match(one) else json.dumps(one)[1:-1]


def bounded(value: Any) -> Any:
    """Return a document of Python's values as JSON can hold it: for what was read before `parse_json` was.

    Infinity becomes the greatest number, NaN null, an integer beyond 64 bits a float. Half of a surrogate
    pair becomes U+FFFD. Raises `BadJson` for one that is nested too deeply.
    """
    try:
        return _bounded(value)
    except RecursionError:
        raise BadJson("nested too deeply") from None


def _bounded(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub(_REPLACEMENT, value)
    # Not comprehensions: before Python 3.12 each is a frame of its own, and the stack holds half the depth.
    if isinstance(value, (list, tuple)):
        return list(map(_bounded, value))
    if isinstance(value, dict):
        return dict(zip(map(_bounded, value), map(_bounded, value.values()), strict=True))
    if isinstance(value, (int, float)) and not -(2**63) <= value < 2**63:
        return None if value != value else max(-_GREATEST, min(_GREATEST, value)) * 1.0
    return value


def _check_depth(text: str, most: int) -> None:
    depth = 0
    for bracket in _BRACKETS.finditer(text):
        if (mark := bracket[0]) in "[{":
            depth += 1
            if depth > most:
                raise BadJson(f"nested deeper than {most} levels")
        elif mark in "]}":
            depth -= 1


def _integer(digits: str) -> int | float:
    if len(digits) <= _INTEGER_DIGITS:
        return int(digits)
    number = _float(digits)
    return int(digits) if abs(number) <= 2**63 and -(2**63) <= int(digits) < 2**63 else number


def _float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise BadJson(f"the number {digits[:20]}… is too large")
    return number


def _refuse(name: str) -> float:
    raise BadJson(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_float=_float, parse_int=_integer, parse_constant=_refuse, strict=False)
