"""Checks of arguments that Python callers give: texts, paths, commands, variables. Pure.

Each takes the argument's name and its value, and returns the value as it is used, or raises `InvalidOptions`
with both. Seconds are checked by `duration.check_seconds`, names of sessions by `names.check_name`.
"""

from __future__ import annotations

import os

from .errors import InvalidOptions

TYPE_CHECKING = False  # as type checkers read it; `typing` is slow to load
if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_MOST_SHOWN = 40


def shown(value: object) -> str:
    """Return the beginning of a value, for an error."""
    if isinstance(value, (str, bytes)):
        value = value[: _MOST_SHOWN + 1]
    try:
        text = repr(value)
    except ValueError:  # a number with too many digits
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def wrong(name: str, value: object, wanted: str) -> InvalidOptions:
    return InvalidOptions(f"{name} must be {wanted}, not {shown(value)}")


def check_options(given: Iterable[str], known: Iterable[str], of: str) -> None:
    """Raise for the first keyword that is not an option, with the known one that is most like it."""
    options = list(known)
    for name in given:
        if name not in options:
            import difflib  # only for a caller that is wrong

            near = difflib.get_close_matches(name, options, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known options: {', '.join(options)}"
            raise InvalidOptions(f"a {of} has no option {name!r}", hint=hint)


def check_text(name: str, value: object) -> str:
    """Return a text that the system accepts.

    The only surrogates are those that Python makes of file names.
    """
    if not isinstance(value, str):
        raise wrong(name, value, "a string")
    if "\0" in value:
        raise wrong(name, value, "a string without a NUL character")
    if not value.isascii():
        try:
            os.fsencode(value)
        except UnicodeEncodeError:
            raise wrong(name, value, "valid Unicode") from None
    return value


def check_path(name: str, value: object) -> str:
    """Return a path as a text."""
    if not isinstance(value, (str, os.PathLike)):
        raise wrong(name, value, "a path")
    return check_text(name, os.fspath(value))


def absolute_path(name: str, value: object) -> Path:
    """Return the path with the user's home for `~`, or another user's for `~user`."""
    from pathlib import Path

    try:
        return Path(check_path(name, value)).expanduser().absolute()
    except RuntimeError:
        raise wrong(name, value, "a path in the home of an existing user") from None


def check_words(name: str, value: object) -> list[str]:
    """Return a sequence of texts. A plain text is not one: it would be its letters."""
    if not isinstance(value, (list, tuple)):
        raise wrong(name, value, "a list of strings")
    return [check_text(f"{name}[{index}]", one) for index, one in enumerate(value)]


def check_variables(name: str, value: object) -> dict[str, str]:
    """Return names and values of variables of an environment."""
    if not hasattr(value, "items"):
        raise wrong(name, value, "a mapping of strings")
    variables = dict(value.items())
    for key, one in variables.items():
        if not check_text(f"a name in {name}", key) or "=" in key:
            raise wrong(f"a name in {name}", key, "the name of an environment variable")
        check_text(f"{name}[{shown(key)}]", one)
    return variables


def check_count(name: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise wrong(name, value, f"an integer from {least} to {most}")
    return value


def check_flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise wrong(name, value, "True or False")
    return value
