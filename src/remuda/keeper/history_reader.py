"""Read what a keeper recorded of its session's output (see `history`). Needs no keeper."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from remuda.paths import SessionPaths
from remuda.terminal.history_format import (
    Begun,
    Gap,
    HistoryEvent,
    HistoryParser,
    Output,
    Painted,
    Position,
    Resized,
    position_after,
)
from remuda.terminal.screen import Screen, open_screen

from .rotated import RotatedFile

_SCROLL_BYTES = 2 << 20
"""Bytes of history to scroll in: about 20,000 lines, rendered in a fifth of a second. `logs` has more."""


class HistoryReader:
    """Yields the content of the files, oldest first, and later what was added since.

    Output that was gone before it could be read is a gap.
    """

    def __init__(self, paths: SessionPaths) -> None:
        """Open the history.

        Raises `FileNotFoundError` when there is none, `OSError` when it cannot be read.
        """
        self._files = RotatedFile(paths.history)
        self._parser = HistoryParser()
        self._position: int | None = None
        self._known = False
        self._damaged = False

    @property
    def damaged(self) -> bool:
        """Whether part of the history could not be understood."""
        return self._damaged or self._parser.damaged

    def read(self) -> Iterator[HistoryEvent]:
        """Yield everything that is there now. Call it again for what comes later."""
        for data in self._files.read():
            if not data:
                self._damaged = self.damaged
                self._parser = HistoryParser()
            for event in self._parser.feed(data):
                yield from self._placed(event)

    def _placed(self, event: HistoryEvent | Position) -> Iterator[HistoryEvent]:
        """Yield an event that is needed, or a gap if output before this position was not read."""
        before, self._position = self._position, position_after(event, self._position)
        if isinstance(event, Position):
            if before is None or before >= event.byte_count:
                return
            event = Gap(event.byte_count - before)
        if self._is_needed(event):
            yield event

    def _is_needed(self, event: HistoryEvent) -> bool:
        """Return whether to yield it. Only readers that lack what led to a screen need its picture."""
        known = self._known
        if isinstance(event, Begun | Painted):
            self._known = True
        elif isinstance(event, Gap):
            self._known = False
        return not (known and isinstance(event, Painted))

    def close(self) -> None:
        self._files.close()

    def __enter__(self) -> HistoryReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def last_screen(paths: SessionPaths) -> Screen | None:
    """Return the last screen of a session by its history; None without history, or without an emulator."""
    try:
        with HistoryReader(paths) as reader:
            return _played(reader.read())
    except OSError:
        return None


def _played(events: Iterator[HistoryEvent]) -> Screen | None:
    screen = open_screen(80, 24)
    for event in events:
        if screen is None:
            break
        if isinstance(event, Begun | Resized):
            if isinstance(event, Begun):
                screen.feed(b"\x18\x1bc")  # may begin in the middle of a sequence
            screen.resize(max(event.cols, 1), max(event.rows, 1))
        elif isinstance(event, Output | Painted):
            screen.feed(event.data)
            screen.take_replies()
            screen.take_signals()
    return screen


def last_lines(paths: SessionPaths) -> list[str]:
    """Return the last rows that a session showed, with colours, to scroll in. Raises as `HistoryReader`.

    Ask a keeper that runs to write its history first.
    """
    with HistoryReader(paths) as reader:
        return styled_lines(last_events(reader.read()))


def styled_lines(events: Iterable[HistoryEvent]) -> list[str]:
    """Return the rows of a history, with colours."""
    from remuda.terminal.history_lines import open_transcript  # loads the emulator

    transcript = open_transcript(styled=True, unwrap=False)
    lines = [*transcript.take(events), *transcript.rest()]
    transcript.close()
    return lines


def last_events(all_events: Iterable[HistoryEvent]) -> list[HistoryEvent]:
    """Return the last of them, as much as one scrolls in."""
    events: deque[HistoryEvent] = deque()
    size, cols_rows = 0, Resized(80, 24)
    for event in all_events:
        events.append(event)
        size += len(event.data) if isinstance(event, Output | Painted) else 0
        while size > _SCROLL_BYTES:
            dropped = events.popleft()
            size -= len(dropped.data) if isinstance(dropped, Output | Painted) else 0
            if isinstance(dropped, Begun | Resized):
                cols_rows = Resized(dropped.cols, dropped.rows)
    return [cols_rows, *events]
