"""The line that a user types in the terminal of an ACP session. Pure: bytes in, keys out."""

from __future__ import annotations

import codecs
import re
import unicodedata
from enum import StrEnum

from remuda.frozen import frozen
from remuda.untrusted import is_seen, printable

MARK = "❯ "
"""Begins the row with the line. Nothing is ever printed below that row."""
MOST_CHARACTERS = 1 << 20
_PASTE_BEGINS, _PASTE_ENDS = "\x1b[200~", "\x1b[201~"
# A key's sequence: CSI with parameters, SS3 with one letter. Others are read as the letters that they are.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~])")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?\Z")
_MOST_SEQUENCE = 64
_WORD = re.compile(r"\S*\s*\Z")


class KeyPress(StrEnum):
    INTERRUPT = "interrupt"
    """Ctrl-C without a line."""
    END = "end"
    """Ctrl-D without a line."""


@frozen
class EditedLine:
    """A line that the user finished with Enter. A paste may have put several lines into it."""

    text: str


class LineEditor:
    def __init__(self) -> None:
        self.text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._pasting = False

    def feed(self, data: bytes) -> list[EditedLine | KeyPress]:
        """Take what was typed. Return what that finished; the line so far is `text`."""
        found: list[EditedLine | KeyPress] = []
        text, self._rest = self._rest + self._decoder.decode(data), ""
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                if (sequence := _SEQUENCE.match(text, at)) is not None:
                    self._pasting = (self._pasting and sequence[0] != _PASTE_ENDS) or sequence[
                        0
                    ] == _PASTE_BEGINS
                    at = sequence.end()
                    continue
                if _UNFINISHED.match(text, at) is not None and len(text) - at < _MOST_SEQUENCE:
                    self._rest = text[at:]
                    break
                at += 1
                continue
            if (made := self._take(text[at])) is not None:
                found.append(made)
            at += 1
        return found

    def _take(self, key: str) -> EditedLine | KeyPress | None:  # one case for each key
        if self._pasting:
            self._add("\n" if key == "\r" else key)
        elif key in "\r\n":
            line, self.text = self.text, ""
            return EditedLine(line) if line.strip() else None
        elif key in "\x7f\x08":
            self.text = self.text[:-1]
        elif key == "\x15":
            self.text = ""
        elif key == "\x17":
            self.text = _WORD.sub("", self.text.rstrip())
        elif key == "\x03":
            if not self.text:
                return KeyPress.INTERRUPT
            self.text = ""
        elif key == "\x04":
            return KeyPress.END if not self.text else None
        else:
            self._add(key)
        return None

    def _add(self, key: str) -> None:
        if (is_seen(key) or key in " \n\t") and len(self.text) < MOST_CHARACTERS:
            self.text += key

    def row(self, columns: int) -> str:
        """Return the end of the line, as much as fits into one row with the mark before it."""
        shown = printable(self.text).replace("\n", "↵").replace("\t", " ")
        room, start = max(1, columns - len(MARK) - 2), len(shown)
        while start > 0 and (room := room - width(shown[start - 1])) >= 0:
            start -= 1
        return MARK + ("…" if start else "") + shown[start:]


def width(character: str) -> int:
    """Return how many columns a character takes."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
