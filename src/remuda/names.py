"""Session names: safe as file names, short enough for a socket path, easy to type."""

from __future__ import annotations

import re

from .errors import BadName

MAX_NAME_BYTES = 64
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@+-]*", re.ASCII)


def is_name(text: str) -> bool:
    return len(text.encode("utf-8", "surrogatepass")) <= MAX_NAME_BYTES and _NAME.fullmatch(text) is not None


def check_name(name: str) -> str:
    """Return `name` if it can name a session, else raise `BadName` saying what is wrong with it."""
    if not name:
        raise BadName("a session needs a name", hint="for example: remuda start work -- bash")
    if len(name.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        raise BadName(f"session name is longer than {MAX_NAME_BYTES} bytes: {name[:32]!r}…")
    if not _NAME.fullmatch(name):
        raise BadName(
            f"{name!r} cannot name a session",
            hint="use letters, digits, '.', '_', '-', '@' and '+', beginning with a letter, digit or '_'",
        )
    return name
