"""Separate a terminal's answers from what a person types.

The keeper answers the agent's queries itself. A real terminal that shows the agent's raw output sees the same
queries and answers them too, into the same input stream. Those answers must not reach the agent a second
time, where they would be typed text. None of them can be typed on a keyboard, except that a cursor position
report looks like a modified F3 key: it is dropped only when one is expected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ST = rb"(?:\x07|\x1b\\)"
_ANSWER = re.compile(
    rb"\x1b\[[?>=][\d;]*c"  # device attributes
    rb"|\x1b\[\?\d+u"  # kitty keyboard flags
    rb"|\x1b\[\??\d+;\d+\$y"  # mode reports
    rb"|\x1b\[\?997;\dn|\x1b\[0n"  # colour scheme, device status
    rb"|\x1b\[[4689];\d+;\d+t|\x1b\[[12]t"  # window reports
    rb"|\x1b\[\?\d+;\d+(?:;\d+)?R"  # extended cursor position
    rb"|\x1bP(?:>\||[01]\$r|[01]\+r|!\|)[^\x07\x1b]*"
    + _ST
    + rb"|\x1b\](?:4;\d+|1[0-9]|7501|[lL]);?[^\x07\x1b]*"
    + _ST
)
_CURSOR_ANSWER = re.compile(rb"\x1b\[\d+;\d+R")
CURSOR_QUERY = b"\x1b[6n"
# The beginning of an answer whose end comes with the next read. Never as much as a key could send.
_CUT = re.compile(rb"\x1b(?:\[[?>=][\d;$]*|P[>!01][^\x07\x1b]*\x1b?|\][\dlL][^\x07\x1b]*\x1b?)\Z")
_CUT_BYTES = 4096


def count_cursor_answers(replies: bytes) -> int:
    """Return how many of the answers that our own terminal gave are cursor positions."""
    return len(_CURSOR_ANSWER.findall(replies))


@dataclass(slots=True)
class ReplyFilter:
    """Removes a terminal's answers from one client's input."""

    answered: int = 0
    """Cursor queries of the session that this client has answered, or was never shown."""
    begun: bytes = b""
    """The beginning of an answer, held until its end comes."""

    def strip(self, data: bytes, cursor_queries: int) -> bytes:
        """Return `data` without answers, given how many cursor queries the session has made in all."""
        data, self.begun = self.begun + data, b""
        if b"\x1b" not in data:
            return data
        data = _ANSWER.sub(b"", data)
        if (cut := _CUT.search(data)) and len(data) - cut.start() <= _CUT_BYTES:
            data, self.begun = data[: cut.start()], data[cut.start() :]
        if cursor_queries > self.answered:
            data, dropped = _CURSOR_ANSWER.subn(b"", data, count=cursor_queries - self.answered)
            self.answered += dropped
        return data
