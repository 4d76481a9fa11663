"""What a user's terminal sends besides keys: mouse reports for the session, and answers to queries.

A view asks the user's terminal for SGR reports whatever the program asked for: only they have no limits and
cannot be mistaken for text. Here they become what the program expects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TRACKING = frozenset({9, 1000, 1002, 1003})
"""The modes that turn mouse reports on."""
SGR, URXVT, PIXELS = 1006, 1015, 1016
"""The modes that choose how reports are encoded; without any, the oldest encoding."""

_REPORT = re.compile(rb"\x1b\[<(\d{1,5});(\d{1,5});(\d{1,5})([Mm])")
_UNFINISHED = re.compile(rb"\x1b\[<[\d;]{0,18}\Z")
_DRAG, _WHEEL, _NO_BUTTON = 32, 64, 3
_LEGACY_LIMIT = 223


@dataclass(frozen=True, slots=True)
class Area:
    """The visible part of the session: its corner in the session and its size."""

    left: int
    top: int
    cols: int
    rows: int


class MouseTranslator:
    """Shifts and re-encodes the reports in a stream of input; everything else passes unchanged."""

    def __init__(self) -> None:
        self._held = b""

    @property
    def holds(self) -> bool:
        """Whether a report has begun and waits for its end."""
        return bool(self._held)

    def translate(self, data: bytes, area: Area, modes: frozenset[int]) -> bytes:
        """Return `data` for the session. A report that is cut at the end waits for the next call.

        Outside of the area a press, a wheel turn and a bare move are dropped; a release and a drag are moved
        to its edge, so that no button stays down for the program.
        """
        data, self._held = self._held + data, b""
        if not modes & TRACKING or PIXELS in modes:
            return data
        if cut := _UNFINISHED.search(data):
            data, self._held = data[: cut.start()], data[cut.start() :]
        return _REPORT.sub(lambda report: _translated(report, area, modes), data)


class WheelReader:
    """Handle reports of a mouse that the program did not ask for: count the wheel, drop the rest."""

    def __init__(self) -> None:
        self._held = b""

    @property
    def holds(self) -> bool:
        return bool(self._held)

    def take(self, data: bytes) -> tuple[int, bytes]:
        """Return how often the wheel was turned up, minus down, and `data` without mouse reports."""
        data, self._held = self._held + data, b""
        if cut := _UNFINISHED.search(data):
            data, self._held = data[: cut.start()], data[cut.start() :]
        buttons = [int(report[1]) for report in _REPORT.finditer(data)]
        return buttons.count(_WHEEL) - buttons.count(_WHEEL + 1), _REPORT.sub(b"", data)


def _translated(report: re.Match[bytes], area: Area, modes: frozenset[int]) -> bytes:
    button, x, y = (int(number) for number in report.groups()[:3])
    released = report[4] == b"m"
    inside = 1 <= x <= area.cols and 1 <= y <= area.rows
    dragged = button & _DRAG and button & _NO_BUTTON != _NO_BUTTON and not button & _WHEEL
    if not inside and not released and not dragged:
        return b""
    x, y = max(1, min(x, area.cols)) + area.left, max(1, min(y, area.rows)) + area.top
    return _encode(button, x, y, released=released, modes=modes)


def _encode(button: int, x: int, y: int, *, released: bool, modes: frozenset[int]) -> bytes:
    if SGR in modes:
        return b"\x1b[<%d;%d;%d%c" % (button, x, y, b"m" if released else b"M")
    if released:  # the older encodings do not say which button it was
        button |= _NO_BUTTON
    if URXVT in modes:
        return b"\x1b[%d;%d;%dM" % (button + 32, x, y)
    if max(x, y) > _LEGACY_LIMIT:
        return b""
    return b"\x1b[M" + bytes((button + 32, x + 32, y + 32))


# ── answers to queries ──

# The keeper answers the agent's queries itself. A real terminal that shows the agent's raw output sees the
# same queries and answers them too, into the same input stream. Those answers must not reach the agent a
# second time, where they would be typed text. None of them can be typed on a keyboard, except that a
# cursor position report looks like a modified F3 key: it is dropped only when one is expected.

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
