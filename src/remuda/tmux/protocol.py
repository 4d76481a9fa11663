"""tmux's control mode (`tmux -C`) with no I/O: bytes in, events out; and words in, bytes or arguments out.

tmux writes lines. `%begin TIME NUMBER FLAGS` opens an answer; everything up to the `%end` or `%error` with
the very same three numbers is what the command printed, whatever it looks like. Flag 1 means that the
command came from our own line; with 0 it is the attaching itself, or a hook of the user's that ran behind our
command. Outside of an answer every line begins with `%` and is a notice.

The text of a pane may imitate the end of an answer: its numbers can be guessed. What then follows is no
notice, or an end without a beginning: the peer's error, and the connection is to be dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from remuda.errors import LocalProtocolError, RemoteProtocolError

MAX_ANSWER_BYTES: Final = 16 << 20

_GUARD: Final = re.compile(rb"%(begin|end|error) (\d+ (\d+) (\d+))")
_OCTAL: Final = re.compile(rb"\\([0-3][0-7]{2})")
# How often the rest of a notice is cut at a space: behind it stands a name, which may have spaces of its own.
_CUTS: Final = {
    "window-renamed": 1,
    "unlinked-window-renamed": 1,
    "session-changed": 1,
    "session-renamed": 1,
    "client-session-changed": 2,
    "client-detached": 0,
    "paste-buffer-changed": 0,
    "paste-buffer-deleted": 0,
    "message": 0,
    "config-error": 0,
    "subscription-changed": 5,
}


class Answer(NamedTuple):
    """What one command printed. `ours`: it was asked for by a line that we wrote."""

    number: int
    ours: bool
    ok: bool
    lines: list[str]


class Notice(NamedTuple):
    """Something happened: `Notice("window-renamed", ("@1", "my window"))`."""

    name: str
    arguments: tuple[str, ...]


class Output(NamedTuple):
    """A pane printed this. Not sent to clients that asked for no output."""

    pane: str
    data: bytes


class Exited(NamedTuple):
    """The last that is said: we are detached, or the session or the server has ended."""

    reason: str


Event = Answer | Notice | Output | Exited


class ControlReader:
    """Cuts what tmux writes into events. After an error it stays broken: feed it nothing more."""

    def __init__(self, max_answer_bytes: int = MAX_ANSWER_BYTES) -> None:
        self._max = max_answer_bytes
        self._buffer = bytearray()
        self._guard: bytes | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0

    @property
    def pending(self) -> bool:
        """Whether a line or an answer has begun and is not whole. False at the end of a good stream."""
        return bool(self._buffer) or self._guard is not None

    def feed(self, data: bytes) -> Iterator[Event]:
        """All events that are whole now, one by one. What is not taken comes with the next call."""
        self._buffer += data
        return self._events()

    def _events(self) -> Iterator[Event]:
        while (end := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[:end])
            del self._buffer[: end + 1]
            event = self._inside(line) if self._guard is not None else self._outside(line)
            if event is not None:
                yield event
        self._bound(len(self._buffer))

    def _bound(self, more: int) -> None:
        if self._body_bytes + more > self._max:
            raise RemoteProtocolError(f"tmux answered with more than {self._max} bytes")

    def _inside(self, line: bytes) -> Answer | None:
        found = _GUARD.fullmatch(line)
        if found is None or found[1] == b"begin" or found[2] != self._guard:
            self._body_bytes += len(line) + 1
            self._bound(0)
            self._body.append(line)
            return None
        answer = Answer(
            int(found[3]), found[4] == b"1", found[1] == b"end", [_text(one) for one in self._body]
        )
        self._guard, self._body, self._body_bytes = None, [], 0
        return answer

    def _outside(self, line: bytes) -> Event | None:
        found = _GUARD.fullmatch(line)
        if found is not None and found[1] == b"begin":
            self._guard = found[2]
            return None
        if found is not None or not line.startswith(b"%"):
            raise RemoteProtocolError(f"tmux said {_text(line[:80])!r} outside an answer")
        return _notice(line)


def _notice(line: bytes) -> Event:
    name, _, rest = _text(line[1:]).partition(" ")
    if name == "exit":
        return Exited(rest)
    if name == "output":
        pane, _, data = line.partition(b" ")[2].partition(b" ")
        return Output(_text(pane), unescape(data))
    if name == "extended-output":
        head, _, data = line.partition(b" : ")
        pane = head.partition(b" ")[2].partition(b" ")[0]
        return Output(_text(pane), unescape(data))
    return Notice(name, tuple(rest.split(" ", _CUTS.get(name, -1))) if rest else ())


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


def unescape(data: bytes) -> bytes:
    """The bytes that tmux wrote as `\\ooo`."""
    return _OCTAL.sub(lambda found: bytes((int(found[1], 8),)), data)


# ── what we say ──

_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 _-./:@%,+=")


def line_of(words: Sequence[str]) -> bytes:
    """One command as a line of control mode. Each word arrives as it is, whatever is in it.

    An empty line would detach the client, so no words are our own error. A word that begins with `-` and is
    no option goes behind a `--`, which is the caller's to write: only it knows.
    """
    _check(words)
    return b" ".join(_quoted(word) for word in words) + b"\n"


def _quoted(word: str) -> bytes:
    # Octal for all that means something between double quotes, and for every byte that is not ASCII:
    # tmux 3.3a takes a raw 0xff for the end of the word.
    encoded = word.encode("utf-8", "surrogateescape")
    return b'"' + b"".join(bytes((b,)) if b in _PLAIN else b"\\%03o" % b for b in encoded) + b'"'


def arguments_of(*commands: Sequence[str]) -> list[str]:
    """One or more commands as arguments of a `tmux` that is run for them."""
    found: list[str] = []
    for words in commands:
        _check(words)
        found += [*([";"] if found else []), *map(_escaped, words)]
    return found


def _escaped(word: str) -> str:
    """tmux takes a semicolon at the end of an argument for the end of the command, unless it is escaped."""
    return word[:-1] + "\\;" if word.endswith(";") else word


def _check(words: Sequence[str]) -> None:
    if not words or not words[0]:
        raise LocalProtocolError("a tmux command needs a name")
    if any("\0" in word for word in words):
        raise LocalProtocolError("a tmux command cannot hold a NUL byte")


def literal(text: str) -> str:
    """Text for a place where tmux expands formats: it is shown as it is."""
    return text.replace("#", "##")
