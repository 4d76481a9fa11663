"""remuda logs"""

from __future__ import annotations

import contextlib
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click

from remuda.errors import InvalidOptions, SessionDead, SessionNotFound, SessionUnreachable
from remuda.keeper.claim import read_holder
from remuda.keeper.client import KeeperClient
from remuda.keeper.elsewhere import open_tunnel, split_host, why_closed
from remuda.keeper.history_reader import HistoryReader
from remuda.keeper.history_stream import (
    HistoryStream,
    changes,
    flush_history,
    keeper_log,
    open_history,
    read_log,
    wait_for_end,
)
from remuda.keeper.rotated import RotatedFile
from remuda.paths import SessionPaths
from remuda.terminal.history_format import Gap, HistoryEvent, Output
from remuda.terminal.history_lines import gap_line, open_transcript

from .common import complete_session, find_folder, folder_option, pick_session
from .output import complain, echo, print_bytes, print_lines

_KEEPER_LINES = 50


@click.command("logs")
@click.argument("name", required=False, shell_complete=complete_session)
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
def command(
    name: str | None, lines: int | None, follow: bool, raw: bool, keeper: bool, folder: Path | None
) -> None:
    """Print the output of a session, also of one that has ended.

    Prints what the terminal showed, line by line: with colours on a terminal, as text in a pipe. The last
    8 MiB are kept ('remuda start --history-bytes'). The beginning of a NAME is enough. Without a NAME it is
    the session started last. HOST/NAME is a session on another machine of your fleet.

    \b
    Examples:
      remuda logs build
      remuda logs -f -n 20 build
      remuda logs --keeper build
      remuda logs -f build7/work
    """
    if raw and keeper:
        raise InvalidOptions("--raw does not go with --keeper", hint="use one of them")
    host, session = split_host(name) if name is not None and folder is None else (None, name)
    if host is not None and keeper:
        tail = _KEEPER_LINES if lines is None else lines
        _print_keeper_log_elsewhere(host, str(session), tail, follow=follow)
        return
    if host is not None:
        print_output_elsewhere(host, str(session), lines, follow=follow, raw=raw)
        return
    where = find_folder(folder)
    paths = SessionPaths.of(pick_session(session, where), where)
    if keeper:
        _print_keeper_log(paths, _KEEPER_LINES if lines is None else lines, follow=follow)
        return
    print_output(paths, lines, follow=follow, raw=raw)


def print_output(
    paths: SessionPaths, lines: int | None = None, *, follow: bool = False, raw: bool = False
) -> None:
    with contextlib.ExitStack() as stack:
        client = flush_history(paths, stack)
        reader = stack.enter_context(open_history(paths))
        is_live = follow and client is not None
        _print(reader, lines, changes(paths.history, client) if is_live and client else None, raw=raw)
        if reader.damaged:
            complain(f"{paths.history} is damaged; some of the output could not be read")


def print_output_elsewhere(
    host: str, name: str, lines: int | None = None, *, follow: bool = False, raw: bool = False
) -> None:
    with HistoryStream(host, name, follow=follow) as reader:
        _print(reader, lines, reader.changes() if follow else None, raw=raw)
        if reader.damaged:
            complain(f"the history of '{name}' is damaged; some of the output could not be read")


def _print(
    reader: HistoryReader | HistoryStream, lines: int | None, updates: Iterator[None] | None, *, raw: bool
) -> None:
    (_print_raw if raw else _print_rendered)(reader, lines, updates)


def history_lines(paths: SessionPaths) -> list[str]:
    """Return all stored output as text."""
    with contextlib.ExitStack() as stack:
        flush_history(paths, stack)
        return _plain_lines(stack.enter_context(open_history(paths)))


def history_lines_elsewhere(host: str, name: str) -> list[str]:
    with HistoryStream(host, name) as reader:
        return _plain_lines(reader)


def _plain_lines(reader: HistoryReader | HistoryStream) -> list[str]:
    transcript = open_transcript(styled=False, unwrap=True)
    return list(_all_lines(transcript.take(reader.read()), transcript.rest))


def _print_rendered(
    reader: HistoryReader | HistoryStream, lines: int | None, updates: Iterator[None] | None
) -> None:
    transcript = open_transcript(styled=sys.stdout.isatty(), unwrap=True)
    if updates is None:
        _print_last(_all_lines(transcript.take(reader.read()), transcript.rest), lines, print_lines)
        return
    first = True
    for _ in updates:
        some = _all_lines(transcript.take(reader.read()), transcript.settled)
        _print_last(some, lines if first else None, print_lines)
        first = False
    print_lines(transcript.rest())


def _all_lines(lines: Iterator[str], more: Callable[[], Iterator[str]]) -> Iterator[str]:
    yield from lines
    yield from more()


def _print_raw(
    reader: HistoryReader | HistoryStream, lines: int | None, updates: Iterator[None] | None
) -> None:
    first = True
    for _ in updates if updates is not None else iter((None,)):
        pieces = _raw_pieces(reader.read())
        if first and lines is not None:
            found = re.finditer(rb"[^\n]*\n|[^\n]+", b"".join(pieces))
            pieces = iter(deque((line[0] for line in found), maxlen=lines))
        for piece in pieces:
            print_bytes(piece)
        first = False


def _raw_pieces(events: Iterator[HistoryEvent]) -> Iterator[bytes]:
    for event in events:
        if isinstance(event, Output):
            yield event.data
        elif isinstance(event, Gap):
            complain(gap_line(event))


def _print_last(lines: Iterable[str], count: int | None, show: Callable[[Iterable[str]], None]) -> None:
    show(lines if count is None else deque(lines, maxlen=count))


# ── the keeper's own log ──


def _print_keeper_log(paths: SessionPaths, lines: int, *, follow: bool) -> None:
    path = keeper_log(paths)
    with RotatedFile(path) as log:
        _print_log_lines(log, lines)
        if follow:
            _follow_keeper_log(log, path, paths)


def _follow_keeper_log(log: RotatedFile, path: Path, paths: SessionPaths) -> None:
    try:
        with KeeperClient.connect(paths.name, paths.folder, read_only=True) as client:
            for _ in changes(path, client):
                _print_log_lines(log)
            wait_for_end(paths)
    except (SessionNotFound, SessionDead, SessionUnreachable):
        if read_holder(paths) is not None:
            raise
    _print_log_lines(log)


def _print_log_lines(log: RotatedFile, count: int | None = None) -> None:
    for line in deque(read_log(log), maxlen=count):
        echo(line.decode(errors="replace"), nl=False)


def _print_keeper_log_elsewhere(host: str, name: str, lines: int, *, follow: bool) -> None:
    tunnel = open_tunnel(host, name, "logs", keeper=True, lines=lines, follow=follow)
    tunnel.sock.settimeout(None)
    with tunnel.sock, tunnel.sock.makefile(encoding="utf-8", errors="replace", newline="\n") as log:
        for line in log:
            echo(line, nl=False)
        if (why := why_closed(tunnel)) is not None:
            raise why
