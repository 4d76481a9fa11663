"""Return a program's output as text for people, without control sequences. Pure."""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])|[\x00-\x09\x0b-\x1f]"
)


def plain_text(output: bytes) -> str:
    return _ESCAPES.sub(b"", output).decode(errors="replace")
