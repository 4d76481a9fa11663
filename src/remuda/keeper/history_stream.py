"""The history of a session as one stream of records, for a reader on another machine; and how to follow it.

The stream is as one file of history, oldest first. A gap of no bytes in it marks the end of what there was at
the beginning; with `follow` the rest comes as it is written, until the session ends.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from remuda.errors import InvalidOptions, SessionDead, SessionNotFound, SessionUnreachable
from remuda.inotify import MODIFY, MOVE_SELF, Inotify
from remuda.paths import SessionPaths
from remuda.terminal.history_format import (
    MAGIC,
    Begun,
    Gap,
    HistoryEvent,
    HistoryParser,
    Output,
    Painted,
    Position,
    Resized,
    begun_record,
    gap_record,
    output_header,
    painted_record,
    resized_record,
)

from .claim import read_holder
from .client import KeeperClient, absent
from .elsewhere import Tunnel, open_tunnel, why_closed
from .history_reader import HistoryReader, last_events
from .record import SessionRecord
from .rotated import RotatedFile

FOLLOW_INTERVAL = 0.5
"""How often a keeper's log is polled; without inotify also its history."""
_READ_BYTES = 1 << 16
_PATIENCE = 30.0
_END_TIMEOUT = 10.0
_POLL_INTERVAL = 0.02


# ── on this machine ──


def flush_history(paths: SessionPaths, stack: contextlib.ExitStack) -> KeeperClient | None:
    """Connect to the keeper, which stores all output so far before it answers. None if none runs."""
    try:
        client = stack.enter_context(KeeperClient.connect(paths.name, paths.folder, read_only=True))
    except (SessionNotFound, SessionDead, SessionUnreachable):
        return None
    with contextlib.suppress(InvalidOptions, SessionUnreachable):  # an older version, or another program
        client.request("history")
    return client


def open_history(paths: SessionPaths) -> HistoryReader:
    """Raises `SessionNotFound` if none was kept."""
    try:
        return HistoryReader(paths)
    except FileNotFoundError:
        pass
    if read_holder(paths) is None and SessionRecord.load(paths.record) is None and not paths.log.exists():
        raise absent(paths)
    raise SessionNotFound(
        f"session '{paths.name}' has no history: it was started with --history-bytes 0, or by others",
        hint=f"'remuda logs --keeper {paths.name}' prints the log of its keeper",
    )


def keeper_log(paths: SessionPaths) -> Path:
    """Return the file that the keeper logs to. Raises `SessionNotFound`."""
    record = SessionRecord.load(paths.record)
    path = Path(record.log_file) if record and record.log_file else paths.log
    if path.is_file():
        return path
    if read_holder(paths) is None and record is None:
        raise absent(paths)
    raise SessionNotFound(
        f"session '{paths.name}' has no keeper log at {path}", hint="another program may keep the session"
    )


def read_log(log: RotatedFile) -> Iterator[bytes]:
    """Yield the lines of a keeper's log that were not read yet; the last one may have no end."""
    rest = b""
    for data in log.read():
        *lines, rest = (rest + data).split(b"\n")
        yield from (line + b"\n" for line in lines)
        if not data and log.skipped:
            yield b"[lines are missing here: the log was rotated twice before it could be read]\n"
    if rest:
        yield rest


def changes(path: Path, client: KeeperClient, reader: int | None = None) -> Iterator[None]:
    """Yield whenever there may be more in a file of the session. Ends with it, or when `reader` is closed."""
    try:
        notes = Inotify()
    except OSError:
        notes = None
    try:
        while True:
            watched: list[int | KeeperClient] = [client] if reader is None else [client, reader]
            is_told = notes is not None and _is_watched(notes, path)
            if is_told and notes is not None:
                watched.append(notes.fd)
            yield  # after the watch is set, so that nothing is missed between the two
            ready, _, _ = select.select(watched, [], [], None if is_told else FOLLOW_INTERVAL)
            if reader in ready:
                return
            if notes is not None:
                notes.drain()
            list(client.receive())
    except EOFError:
        yield
    finally:
        if notes is not None:
            notes.close()


def wait_for_end(paths: SessionPaths) -> None:
    """Wait a limited time until a keeper that closed its socket has ended, and written all."""
    deadline = time.monotonic() + _END_TIMEOUT
    while read_holder(paths) is not None and time.monotonic() < deadline:
        time.sleep(_POLL_INTERVAL)


def _is_watched(notes: Inotify, path: Path) -> bool:
    """Try to watch the files. Fails while the keeper swaps them, or if the user has no watch left."""
    try:
        return notes.add(path, MODIFY | MOVE_SELF) is not None
    except OSError:
        return False


# ── for another machine ──


class HistorySender:
    """Sends the history of a session into a socket: `open`, then `run` in a thread. `last`: to scroll in.

    With `keeper` it is the log of its keeper instead, from the last `lines` on.
    """

    def __init__(
        self,
        paths: SessionPaths,
        sock: socket.socket,
        *,
        keeper: bool = False,
        lines: int | None = None,
        follow: bool = False,
        last: bool = False,
    ) -> None:
        self._paths = paths
        self._lines = lines
        self._sock = sock
        self._keeper = keeper
        self._follow = follow
        self._last = last
        self._stack = contextlib.ExitStack()
        self._client: KeeperClient | None = None
        self._reader: HistoryReader | None = None
        self._log: RotatedFile | None = None

    def open(self) -> None:
        """Raises `SessionNotFound`."""
        with contextlib.ExitStack() as on_error:
            on_error.enter_context(self._stack)
            on_error.enter_context(self._sock)
            self._client = flush_history(self._paths, self._stack)
            if self._keeper:
                self._log = self._stack.enter_context(RotatedFile(keeper_log(self._paths)))
            else:
                self._reader = self._stack.enter_context(open_history(self._paths))
            on_error.pop_all()

    def run(self) -> None:
        """Send until the end, or until the other side closes the socket."""
        with self._sock, self._stack, contextlib.suppress(OSError):
            self._sock.sendall(b"" if self._keeper else MAGIC)
            if not self._follow or self._client is None:
                self._send_more(first=True)
                return
            path = keeper_log(self._paths) if self._keeper else self._paths.history
            first = True
            for _ in changes(path, self._client, self._sock.fileno()):
                self._send_more(first=first)
                first = False
            if self._keeper:
                wait_for_end(self._paths)
                self._send_more(first=False)

    def _send_more(self, *, first: bool) -> None:
        if self._log is not None:
            for line in deque(read_log(self._log), maxlen=self._lines if first else None):
                self._sock.sendall(line)
            return
        if self._reader is None:
            return
        events: Iterable[HistoryEvent] = self._reader.read()
        for event in last_events(events) if self._last else events:
            self._sock.sendall(_record(event))
        if first:
            self._sock.sendall(gap_record(0))


def _record(event: HistoryEvent) -> bytes:
    match event:
        case Output(data):
            return output_header(len(data)) + data
        case Painted(data):
            return painted_record(data)
        case Begun(at, cols, rows):
            return begun_record(at, cols, rows)
        case Resized(cols, rows):
            return resized_record(cols, rows)
        case Gap(byte_count):
            return gap_record(byte_count)


class HistoryStream:
    """The history of a session on another host. Reads as a `HistoryReader`."""

    def __init__(self, host: str, session: str, *, follow: bool = False, last: bool = False) -> None:
        """Raises as `open_tunnel`."""
        self._tunnel: Tunnel = open_tunnel(host, session, "logs", follow=follow, last=last)
        self._tunnel.sock.settimeout(_PATIENCE)
        self._parser = HistoryParser()
        self._has_begun = False
        self._has_ended = False

    @property
    def damaged(self) -> bool:
        return self._parser.damaged

    def read(self) -> Iterator[HistoryEvent]:
        """Yield everything up to what was there at the beginning; later, what came since. May wait for it."""
        while not self._has_ended:
            if not (data := self._tunnel.sock.recv(_READ_BYTES)):
                self._has_ended = True
                if (why := why_closed(self._tunnel)) is not None:
                    raise why
                if not self._has_begun:
                    raise SessionUnreachable(f"the output of '{self._tunnel.session}' came only in part")
                return
            for event in self._parser.feed(data):
                if isinstance(event, Gap) and not event.byte_count:
                    self._has_begun = True
                elif not isinstance(event, Position):
                    yield event
            if self._has_begun:
                return

    def changes(self) -> Iterator[None]:
        """Yield whenever there may be more. Ends with the session."""
        while not self._has_ended:
            yield
            if not self._has_ended:
                select.select([self._tunnel.sock], [], [])

    def close(self) -> None:
        self._tunnel.sock.close()

    def __enter__(self) -> HistoryStream:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
