"""remuda logs"""

from __future__ import annotations

import contextlib
import re
import select
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TextIO

import click

from remuda.errors import InvalidOptions, SessionDead, SessionNotFound, SessionUnreachable
from remuda.inotify import MODIFY, MOVE_SELF, Inotify
from remuda.keeper.claim import read_holder
from remuda.keeper.client import KeeperClient, absent
from remuda.keeper.history_reader import HistoryReader
from remuda.keeper.record import SessionRecord
from remuda.paths import SessionPaths
from remuda.terminal.history import Output
from remuda.terminal.transcript import open_transcript

from .common import find_folder, folder_option, pick_session, session_argument
from .output import complain, echo, print_bytes, print_lines

# How often a keeper's log is polled; without inotify also its history.
_FOLLOW_INTERVAL = 0.5
_KEEPER_LINES = 50


@click.command("logs")
@session_argument
@click.option(
    "-n",
    "--tail",
    "--lines",
    "lines",
    type=click.IntRange(min=0),
    help="Print only the last N lines.  [default: all; with --keeper 50]",
)
@click.option("-f", "--follow", is_flag=True, help="Print new output until the session ends.")
@click.option("--raw", is_flag=True, help="Print the program's exact bytes, with all escape sequences.")
@click.option("--keeper", is_flag=True, help="Print the log of the session's keeper instead.")
@folder_option
def command(name: str, lines: int | None, follow: bool, raw: bool, keeper: bool, folder: Path | None) -> None:
    """Print the output of a session, also of one that has ended.

    Prints what the terminal showed, line by line: with colours on a terminal, as text in a pipe. The last
    8 MiB are kept ('remuda start --history-bytes'). The beginning of a NAME is enough.

    \b
    Examples:
      remuda logs build
      remuda logs -f -n 20 build
      remuda logs --keeper build
    """
    if raw and keeper:
        raise InvalidOptions("--raw does not go with --keeper", hint="use one of them")
    where = find_folder(folder)
    paths = SessionPaths.of(pick_session(name, where), where)
    if keeper:
        _print_keeper_log(paths, _KEEPER_LINES if lines is None else lines, follow=follow)
        return
    print_output(paths, lines, follow=follow, raw=raw)


def print_output(
    paths: SessionPaths, lines: int | None = None, *, follow: bool = False, raw: bool = False
) -> None:
    with contextlib.ExitStack() as stack:
        client = _running(paths, stack)
        reader = stack.enter_context(_open_history(paths))
        print_some = _print_raw if raw else _print_rendered
        print_some(reader, lines, _changes(paths, client) if follow and client is not None else None)
        if reader.damaged:
            complain(f"{paths.history} is damaged; some of the output could not be read")


def history_lines(paths: SessionPaths) -> list[str]:
    """Return all stored output as text."""
    with contextlib.ExitStack() as stack:
        _running(paths, stack)
        reader = stack.enter_context(_open_history(paths))
        transcript = open_transcript(styled=False, unwrap=True)
        return list(_all_lines(transcript.take(reader.read()), transcript.rest))


def _running(paths: SessionPaths, stack: contextlib.ExitStack) -> KeeperClient | None:
    """Connect to the keeper, which stores all output so far before it answers."""
    try:
        client = stack.enter_context(KeeperClient.connect(paths.name, paths.folder, read_only=True))
    except (SessionNotFound, SessionDead, SessionUnreachable):
        return None
    with contextlib.suppress(InvalidOptions, SessionUnreachable):  # an older version, or another program
        client.request("history")
    return client


def _open_history(paths: SessionPaths) -> HistoryReader:
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


def _changes(paths: SessionPaths, client: KeeperClient) -> Iterator[None]:
    """Yield whenever there may be more history. Ends with the session."""
    try:
        notes = Inotify()
    except OSError:
        notes = None
    try:
        while True:
            watched: list[int | KeeperClient] = [client]
            if notes is not None and _is_watched(notes, paths.history):
                watched.append(notes.fd)
            yield  # after the watch is set, so that nothing is missed between the two
            select.select(watched, [], [], None if len(watched) > 1 else _FOLLOW_INTERVAL)
            if notes is not None:
                notes.drain()
            list(client.receive())
    except EOFError:
        yield
    finally:
        if notes is not None:
            notes.close()


def _is_watched(notes: Inotify, path: Path) -> bool:
    """Try to watch the files. Fails while the keeper swaps them, or if the user has no watch left."""
    try:
        return notes.add(path, MODIFY | MOVE_SELF) is not None
    except OSError:
        return False


def _print_rendered(reader: HistoryReader, lines: int | None, changes: Iterator[None] | None) -> None:
    transcript = open_transcript(styled=sys.stdout.isatty(), unwrap=True)
    if changes is None:
        _print_last(_all_lines(transcript.take(reader.read()), transcript.rest), lines, print_lines)
        return
    first = True
    for _ in changes:
        some = _all_lines(transcript.take(reader.read()), transcript.settled)
        _print_last(some, lines if first else None, print_lines)
        first = False
    print_lines(transcript.rest())


def _all_lines(lines: Iterator[str], more: Callable[[], Iterator[str]]) -> Iterator[str]:
    yield from lines
    yield from more()


def _print_raw(reader: HistoryReader, lines: int | None, changes: Iterator[None] | None) -> None:
    first = True
    for _ in changes if changes is not None else iter((None,)):
        pieces: Iterator[bytes] = (event.data for event in reader.read() if isinstance(event, Output))
        if first and lines is not None:
            found = re.finditer(rb"[^\n]*\n|[^\n]+", b"".join(pieces))
            pieces = iter(deque((line[0] for line in found), maxlen=lines))
        for piece in pieces:
            print_bytes(piece)
        first = False


def _print_last(lines: Iterable[str], count: int | None, show: Callable[[Iterable[str]], None]) -> None:
    show(lines if count is None else deque(lines, maxlen=count))


# ── the keeper's own log ──


def _print_keeper_log(paths: SessionPaths, lines: int, *, follow: bool) -> None:
    record = SessionRecord.load(paths.record)
    path = Path(record.log_file) if record and record.log_file else paths.log
    if not path.is_file():
        if read_holder(paths) is None and record is None:
            raise absent(paths)
        raise SessionNotFound(
            f"session '{paths.name}' has no keeper log at {path}", hint="another program may keep the session"
        )
    with open(path, encoding="utf-8", errors="replace", newline="\n") as log:
        for line in deque(log, maxlen=lines):
            echo(line, nl=False)
        if follow:
            _follow_keeper_log(log, paths)


def _follow_keeper_log(log: TextIO, paths: SessionPaths) -> None:
    try:
        with KeeperClient.connect(paths.name, paths.folder, read_only=True) as client:
            if client.speaks_ours:
                client.request("watch")
            while read_holder(paths) is not None:
                select.select([client], [], [], _FOLLOW_INTERVAL)
                list(client.receive())
                echo(log.read(), nl=False)
    except EOFError:
        pass
    except (SessionNotFound, SessionDead, SessionUnreachable):
        if read_holder(paths) is not None:
            raise
    echo(log.read(), nl=False)
