"""remuda logs"""

from __future__ import annotations

import select
import sys
from collections import deque
from io import BufferedReader
from pathlib import Path

import click

from remuda.errors import SessionDead, SessionNotFound, SessionUnreachable
from remuda.keeper.claim import read_holder
from remuda.keeper.client import KeeperClient
from remuda.keeper.record import SessionRecord
from remuda.paths import SessionPaths

from .common import find_folder, folder_option, session_argument

# A log is written to by another process that tells nobody. State changes are told, and looked for in between.
_FOLLOW_INTERVAL = 0.5


@click.command("logs")
@session_argument
@click.option(
    "-n", "--lines", type=click.IntRange(min=0), default=50, show_default=True, help="How many lines."
)
@click.option("-f", "--follow", is_flag=True, help="Go on until the session ends.")
@folder_option
def command(name: str, lines: int, follow: bool, folder: Path | None) -> None:
    """Print what a session's keeper wrote down: starts, changes of state, sizes, the end.

    What the program itself printed is on its screen ('remuda screen') or in a recording ('start --record').

    \b
    Examples:
      remuda logs work
      remuda logs -f work
    """
    paths = SessionPaths.of(name, find_folder(folder))
    record = SessionRecord.load(paths.record)
    path = Path(record.log_file) if record and record.log_file else paths.log
    if not path.is_file():
        raise SessionNotFound(
            f"there is no log of a session '{name}'", hint="'remuda ls --all' lists sessions"
        )
    with open(path, "rb") as log:
        for line in deque(log, maxlen=lines):
            _print(line)
        if follow:
            _follow(log, paths)


def _print(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _follow(log: BufferedReader, paths: SessionPaths) -> None:
    try:
        with KeeperClient.connect(paths.name, paths.folder, read_only=True) as client:
            if client.speaks_ours:
                client.request("watch")
            while read_holder(paths) is not None:
                select.select([client], [], [], _FOLLOW_INTERVAL)
                list(client.receive())
                _print(log.read())
    except EOFError:
        pass
    except (SessionNotFound, SessionDead, SessionUnreachable):
        if read_holder(paths) is not None:
            raise
    _print(log.read())
