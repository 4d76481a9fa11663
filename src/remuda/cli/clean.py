"""remuda clean"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import click

from remuda.errors import InvalidOptions, RemudaError
from remuda.inbox.journal import Inbox, Overview
from remuda.inbox.writer import has_writer
from remuda.keeper.claim import live_names, read_holder
from remuda.keeper.hidden import keepers_in
from remuda.keeper.listing import dead_records
from remuda.keeper.record import SessionRecord
from remuda.keeper.restart import comes_back
from remuda.names import is_name
from remuda.paths import SessionPaths

from .common import find_folder, folder_option, time_span
from .output import complain, echo

_SUFFIXES = (".log.1", ".log", ".history.1", ".history", ".json", ".d", ".acp", ".inbox")
_FOLDERS = (".d", ".acp", ".inbox")
_GONE = ".removed"
_FILE = "inbox.jsonl"


@click.command("clean")
@click.option(
    "--older-than",
    default="24h",
    show_default=True,
    metavar="TIME",
    help="Remove only what is older than TIME (90, 45m, 7d).",
)
@click.option("--force", is_flag=True, help="Remove the files; without it they are only listed.")
@folder_option
def command(older_than: str, force: bool, folder: Path | None) -> None:
    """Remove logs, history, records and inboxes of sessions that ended a while ago.

    Without --force it shows what it would remove.

    'resume' needs the record of a session. Sessions with waiting messages, and those that will be restarted,
    are kept.

    \b
    Examples:
      remuda clean
      remuda clean --older-than 7d --force
    """
    window = time_span(older_than)
    if window == 0:
        raise InvalidOptions("--older-than must be longer than zero")
    where = find_folder(folder)
    live = {*live_names(where), *keepers_in(where)}
    old, young = [], 0
    busy = set(_with_messages(where))
    for name in sorted(busy - live):
        _print_kept(name)
    wanted = {record.name for record in dead_records(where, live) if comes_back(record)} - busy
    for name in sorted(wanted):
        echo(f"kept: {name}, which will be restarted; 'remuda kill {name}' ends that")
    for path in _leftovers(where, live | busy | wanted):
        if time.time() - path.lstat().st_mtime >= window:
            old.append(path)
        else:
            young += 1
    if force:
        _sweep(where)
        _summary(
            sum(_remove_session(where, *one) for one in _by_name(old)),
            len(live),
            young,
            older_than,
            force=True,
        )
        return
    for path in old:
        echo(f"would remove: {path}")
    _summary(len(old), len(live), young, older_than, force=False)


def _with_messages(folder: Path) -> Iterator[str]:
    """Yield the names of sessions whose inbox is not empty. Dead letters count: a user may redrive them."""
    for path in folder.glob("*.inbox"):
        try:
            overview = Inbox(path).overview()
        except (OSError, RemudaError):
            yield path.name.removesuffix(".inbox")  # an inbox that cannot be read is not removed
            continue
        if not _is_empty(overview):
            yield path.name.removesuffix(".inbox")


def _is_empty(overview: Overview) -> bool:
    return not (overview.waiting or overview.in_flight or overview.dead)


def _print_kept(name: str) -> None:
    echo(f"kept: {name}, which has waiting or dead-lettered messages; 'remuda messages {name}' lists them")


def _leftovers(folder: Path, live: set[str]) -> Iterator[Path]:
    try:
        entries = sorted(os.listdir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        suffix = next((suffix for suffix in _SUFFIXES if entry.endswith(suffix)), None)
        if suffix is None or entry.startswith("."):
            continue
        name = entry.removesuffix(suffix)
        if not _is_of_a_session(folder / entry, name, suffix):
            continue
        # Checked again: the session may have been started since the list was made.
        if name not in live and read_holder(SessionPaths(folder, name)) is None:
            yield folder / entry


def _is_of_a_session(path: Path, name: str, suffix: str) -> bool:
    """Whether a keeper made the file. The user may have named a folder with other files in it."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    if status.st_uid != os.getuid() or not is_name(name):
        return False
    if suffix in _FOLDERS:
        return stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o700
    if suffix == ".json":
        record = SessionRecord.load(path)
        return record is not None and record.name == name
    # Logs and history have no mark of ours. Only the mode that keepers give them says so.
    return stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o600


def _by_name(paths: list[Path]) -> list[tuple[str, list[Path]]]:
    by_name: dict[str, list[Path]] = {}
    for path in paths:
        suffix = next(suffix for suffix in _SUFFIXES if path.name.endswith(suffix))
        by_name.setdefault(path.name.removesuffix(suffix), []).append(path)
    return list(by_name.items())


def _remove_session(folder: Path, name: str, paths: list[Path]) -> int:
    """Return how many files were removed: none if the session was started or got a message since."""
    session = SessionPaths(folder, name)
    if read_holder(session) is not None:
        return 0
    if not session.inbox.is_dir():
        return sum(map(_remove, paths))
    try:
        with Inbox(session.inbox).quiet() as overview:
            if not _is_empty(overview):
                _print_kept(name)
                return 0
            # The inbox first: it needs the other files.
            if session.inbox in paths and not _remove_inbox(session.inbox):
                echo(f"kept: {name}; another program has its inbox open for writing")
                return 0
            rest = [path for path in paths if path != session.inbox]
            return len(paths) - len(rest) + sum(map(_remove, rest))
    except (OSError, RemudaError) as error:
        complain(f"{session.inbox} was kept: {error}")
        return 0


def _sweep(folder: Path) -> None:
    """Finish what a killed `clean` did not."""
    for path in folder.glob(f".*{_GONE}"):
        kind = path.name.removesuffix(_GONE)
        if not kind.endswith(_FOLDERS) or not path.is_dir():
            continue
        if kind.endswith(".inbox") and _came_late(path):
            complain(f"{path} was written to during its removal; its messages are in {_FILE} there")
            continue
        shutil.rmtree(path, ignore_errors=True)


def _came_late(path: Path) -> bool:
    try:
        return has_writer(str(path / _FILE)) or not _is_empty(Inbox(path).overview())
    except RemudaError:
        return True


def _remove_inbox(path: Path) -> bool:
    """Remove the inbox, unless a process without a lock has it open: its message would be lost.

    The inbox is renamed first, so that a sender creates a new one and does not write into this one. A process
    that opened it just before is found after that.
    """
    file, gone = path / _FILE, _out_of_sight(path)
    if has_writer(str(file)):
        return False
    before = _size(file)
    echo(f"removing: {path}")
    path.rename(gone)
    file = gone / _FILE
    if has_writer(str(file)) or _size(file) != before:
        gone.rename(path)
        return False
    shutil.rmtree(gone, ignore_errors=True)
    return True


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _out_of_sight(path: Path) -> Path:
    return path.with_name(f".{path.name}{_GONE}")


def _remove(path: Path) -> bool:
    echo(f"removing: {path}")
    if path.is_dir() and not path.is_symlink():
        gone = _out_of_sight(path)
        shutil.rmtree(gone, ignore_errors=True)
        path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    return True


def _summary(old: int, live: int, young: int, older_than: str, *, force: bool) -> None:
    kept = f"{live} live session{'s' * (live != 1)}, {young} files younger than {older_than}"
    if not old:
        echo(f"nothing to clean ({kept})")
    elif force:
        echo(f"cleaned {old} files")
    else:
        echo(f"dry run: {old} files; --force removes them (kept: {kept})")
