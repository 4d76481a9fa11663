"""One finding of `remuda doctor`."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Finding(NamedTuple):
    level: Literal["ok", "note", "fail"]
    what: str
    fix: str = ""
