"""Regular expressions that are compiled when they are first used.

Compiling takes 0.1 to 1 ms each. A command loads forty of them, and uses few.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from typing import Any, AnyStr

_METHODS = ("findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn")


class _Pattern:
    def __init__(self, text: str | bytes, flags: int) -> None:
        self.pattern, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self.pattern, self._flags)
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """As `re.compile`. A wrong expression is an error when it is first used."""
    return _Pattern(text, flags)  # type: ignore[return-value]
