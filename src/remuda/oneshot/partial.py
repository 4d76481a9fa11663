"""Text as it appears, before the message that it belongs to is written down. Pure.

The terminal tells of complete lines, and may tell late. The message in the transcript has all of the text:
what was not told by then is told before it, and what is told afterwards was told already.
"""

from __future__ import annotations


class Partial:
    """Both methods return the text that is still to be printed; nothing is printed twice."""

    def __init__(self) -> None:
        self._shown = ""
        self._late = ""

    def shown(self, text: str) -> str:
        if self._late.startswith(text):
            self._late = self._late[len(text) :]
            return ""
        self._late = ""
        self._shown += text
        return text

    def message(self, text: str) -> str:
        """The whole of a text block has come."""
        begin = text.find(self._shown)
        rest = text[begin + len(self._shown) :] if begin >= 0 else ""
        self._shown, self._late = "", rest
        return rest
