"""Bytes of a terminal to what was typed, pasted or answered. No I/O, no clock.

Feed it whatever arrived, however it was split. A lone ESC looks like the beginning of a sequence: it
is held until more comes or :meth:`Decoder.flush` says that nothing will.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

PASTE_END = b"\x1b[201~"


@dataclass(frozen=True, slots=True)
class Typed:
    """One printable character."""

    char: str


@dataclass(frozen=True, slots=True)
class KeyPress:
    """A key with a name: ``enter``, ``esc``, ``up``, ``ctrl-c``, ``newline`` …"""

    name: str


@dataclass(frozen=True, slots=True)
class Pasted:
    """A bracketed paste, already as the text box takes it."""

    text: str


@dataclass(frozen=True, slots=True)
class QueryAnswered:
    """The terminal's answer to one of our queries: ``kitty``, ``version``, ``attributes`` or ``other``."""

    query: str


Input: TypeAlias = Typed | KeyPress | Pasted | QueryAnswered

_CONTROL_KEYS = {0x0D: "enter", 0x0A: "newline", 0x09: "tab", 0x7F: "backspace", 0x08: "backspace"}
_CSI_KEYS = {"A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end", "Z": "backtab"}
_TILDE_KEYS = {
    "1": "home",
    "7": "home",
    "3": "delete",
    "4": "end",
    "8": "end",
    "5": "pageup",
    "6": "pagedown",
}
_KITTY_KEYS = {27: "esc", 13: "enter", 9: "tab", 127: "backspace", 8: "backspace"}
_PRINTABLE = re.compile(rb"[^\x00-\x1f\x7f]+")
_CSI = re.compile(rb"\x1b\[([0-?]*)([ -/]*)([@-~])")
_CSI_START = re.compile(rb"\x1b(\[[0-?]*[ -/]*)?\Z")
# The terminal's strings: DCS, OSC, APC, PM, SOS. Ended by ST, OSC by BEL too.
_STRING = re.compile(rb"\x1b([P\]_^X])(.*?)(?:\x1b\\|\x07)", re.DOTALL)
_SEQUENCES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[P\]_^X].*?(?:\x1b\\|\x07)|\x1b.?", re.DOTALL)
_CONTROLS = re.compile(r"[\x00-\x08\x0c\x0e-\x1f\x7f-\x9f\u200b\u200c\u2060\u2063\ufeff\u00ad]")


def as_pasted(text: str) -> str:
    """Return what a paste puts into the box: other tabs and line ends, no control or invisible characters."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\x0b", "\n").replace("\t", "    ")
    return _CONTROLS.sub("", _SEQUENCES.sub("", text)).lstrip("\ufe0f")


class Decoder:
    """Turns fed bytes into inputs."""

    def __init__(self) -> None:
        self._buffer = b""
        self._pasting = False
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def holds_escape(self) -> bool:
        """Whether a beginning that may be a lone ESC waits for more."""
        return not self._pasting and self._buffer.startswith(b"\x1b")

    def feed(self, data: bytes) -> Iterator[Input]:
        """Yield the inputs that ``data`` completes."""
        self._buffer += data
        while self._buffer:
            before = len(self._buffer), self._pasting
            yield from self._take()
            if (len(self._buffer), self._pasting) == before:
                return

    def flush(self) -> Iterator[Input]:
        """Nothing more will come soon: a held ESC was the key, and what follows was typed."""
        if self.holds_escape:
            self._buffer = self._buffer[1:]
            yield KeyPress("esc")
            yield from self.feed(b"")

    def _take(self) -> Iterator[Input]:
        if self._pasting:
            yield from self._take_paste()
        elif self._buffer.startswith(b"\x1b"):
            yield from self._take_sequence()
        else:
            yield from self._take_plain()

    def _take_paste(self) -> Iterator[Input]:
        body, end, rest = self._buffer.partition(PASTE_END)
        if end:
            self._buffer, self._pasting = rest, False
            yield Pasted(as_pasted(body.decode("utf-8", "replace")))

    def _take_plain(self) -> Iterator[Input]:
        if match := _PRINTABLE.match(self._buffer):
            self._buffer = self._buffer[match.end() :]
            yield from map(Typed, self._utf8.decode(match[0]))
            return
        byte, self._buffer = self._buffer[0], self._buffer[1:]
        yield KeyPress(_CONTROL_KEYS.get(byte) or f"ctrl-{chr(byte + 0x60)}")

    def _take_sequence(self) -> Iterator[Input]:
        buffer = self._buffer
        if match := _CSI.match(buffer):
            # X10 mouse reports carry three raw bytes after the final one.
            mouse = match[0] == b"\x1b[M"
            if mouse and len(buffer) < 6:
                return
            self._buffer = buffer[6 if mouse else match.end() :]
            yield from self._csi(match[1].decode(), match[2].decode(), match[3].decode())
        elif match := _STRING.match(buffer):
            self._buffer = buffer[match.end() :]
            yield QueryAnswered("version" if match[1] == b"P" and match[2].startswith(b">|") else "other")
        elif buffer.startswith(b"\x1bO"):
            yield from self._ss3()
        elif not _CSI_START.match(buffer) and buffer[1:2] not in b"P]_^X":
            yield from self._meta()

    def _ss3(self) -> Iterator[Input]:
        if len(self._buffer) > 2:
            name = _CSI_KEYS.get(chr(self._buffer[2]))
            self._buffer = self._buffer[3:]
            if name:
                yield KeyPress(name)

    def _meta(self) -> Iterator[Input]:
        behind = self._buffer[1:2]
        if behind == b"\x1b":
            self._buffer = self._buffer[1:]
            yield KeyPress("esc")
        elif behind in b"\r\n":
            self._buffer = self._buffer[2:]
            yield KeyPress("newline")
        else:
            # Alt and a character; none of them means anything here.
            self._buffer = self._buffer[2:]

    def _csi(self, parameters: str, intermediates: str, final: str) -> Iterator[Input]:
        if parameters[:1] in ("?", ">", "<", "=") or intermediates or final in "RncyxtIOMm":
            yield from _answer(parameters, final)
        elif final == "~":
            yield from self._tilde(parameters)
        elif final == "u":
            yield from _kitty(parameters)
        elif final in _CSI_KEYS:
            yield KeyPress(_CSI_KEYS[final])

    def _tilde(self, parameters: str) -> Iterator[Input]:
        number = parameters.partition(";")[0]
        if number == "200":
            self._pasting = True
        elif number in _TILDE_KEYS:
            yield KeyPress(_TILDE_KEYS[number])


def _answer(parameters: str, final: str) -> Iterator[Input]:
    """Replies to queries, and reports of mouse and focus, which no one requested."""
    if parameters.startswith("?") and final in "uc":
        yield QueryAnswered("kitty" if final == "u" else "attributes")
    elif final not in "IOMm":
        yield QueryAnswered("other")


def _kitty(parameters: str) -> Iterator[Input]:
    """Yield a key in the kitty protocol: ``code[:alternates][;modifiers[:event]]``."""
    code, _, modifiers = parameters.partition(";")
    number = int(code.partition(":")[0] or 0)
    bits = int(modifiers.partition(":")[0] or 1) - 1
    if number == 13 and bits:
        yield KeyPress("newline")
    elif number == 9 and bits & 1:
        yield KeyPress("backtab")
    elif number in _KITTY_KEYS:
        yield KeyPress(_KITTY_KEYS[number])
    elif bits & 4 and 0x61 <= number <= 0x7A:
        yield KeyPress(f"ctrl-{chr(number)}")
    elif number >= 0x20 and not bits & ~1:
        yield Typed(chr(number))
