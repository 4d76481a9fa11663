"""Open or create the database of the boss, or rename a file that cannot be used.

A file that is damaged, or that a later version made, gets another name, which is reported. It is never
written to.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import sqlite3
import time
from pathlib import Path

from remuda.errors import StoreFailed

from . import rows

log = logging.getLogger("remuda.boss.records.store")

Connection = sqlite3.Connection
DatabaseError = sqlite3.Error

_APPLICATION = 0x524D4442
_LOG_PAGES = 1500
"""A connection that makes the log longer than this copies it into the database, unless that was done."""
_LOG_BYTES = 6_500_000
_ROOM = 10
"""How many times the size of the log must be free: on a disk that is almost full, others need the rest."""


def open_database(path: Path) -> tuple[sqlite3.Connection, Path | None]:
    """Connect to a database of our version.

    Also returns the new name of a file that had to be renamed for it.
    """
    try:
        return _prepared(path), None
    except _Unusable as error:
        aside = _lay_aside(path, error.label)
        log.error("%s: %s; renamed to %s", path, error, aside)
        return _prepared(path), aside


class _Unusable(Exception):
    def __init__(self, what: str, label: str) -> None:
        super().__init__(what)
        self.label = label


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}").fetchall()
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Connect for reading alone, from any thread."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5.0)


def lay_out_log(path: Path, connection: sqlite3.Connection) -> None:
    """Give the log its final size: overwriting it is synced in half the time of a log that grows.

    Appends zeros. For SQLite a log ends at the first frame with a wrong checksum.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")  # no other process writes to it now
        try:
            _fill_up(f"{path}-wal", _LOG_BYTES)
        finally:
            connection.rollback()
    except (OSError, sqlite3.Error) as error:
        log.warning("the log of %s was not given its final size: %s", path, error)


def _fill_up(path: str, size: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        if (missing := size - os.fstat(fd).st_size) > 0:
            disk = os.fstatvfs(fd)
            if disk.f_bavail * disk.f_frsize < _ROOM * size:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.write(fd, bytes(missing))
            os.fsync(fd)
    finally:
        os.close(fd)


def _prepared(path: Path) -> sqlite3.Connection:
    """Connect to a database of our version; create it if it is missing."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # SQLite gives its files this mode
    connection: sqlite3.Connection | None = None
    try:
        connection = connect(path)
        _check(connection)
    except sqlite3.DatabaseError as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
            raise StoreFailed(f"cannot open {path}: {error}") from error
        raise _Unusable(f"the database is damaged ({error})", "damaged") from error
    except _Unusable:
        if connection is not None:
            connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection) -> None:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > rows.VERSION:
        raise _Unusable(f"a later version wrote it (schema {version})", f"version-{version}")
    if version:
        result = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if result != "ok":
            raise sqlite3.DatabaseError(f"malformed: {result}")
        _migrate(connection)
        return
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise _Unusable("it is not a database of Remuda", "foreign")
    script = f"BEGIN IMMEDIATE; {rows.SCHEMA} {''.join(rows.MIGRATIONS)} PRAGMA user_version={rows.VERSION};"
    connection.executescript(f"{script} PRAGMA application_id={_APPLICATION}; COMMIT;")


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring a database of an earlier version to ours, in one transaction: all steps, or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read again: another process may have been faster.
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        for step in rows.MIGRATIONS[version - 1 :]:
            for statement in filter(str.strip, step.split(";")):
                connection.execute(statement)
        if version < rows.VERSION:
            connection.execute(f"PRAGMA user_version={rows.VERSION}")
            log.info("migrated the database from version %d to %d", version, rows.VERSION)
        connection.commit()
    except sqlite3.Error:
        connection.rollback()
        raise


def _lay_aside(path: Path, label: str) -> Path:
    """Rename the file and its log, which may hold more than the file itself.

    Never overwrites another file.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.name}.{label}-{stamp}")
    for number in itertools.count(1):
        if not aside.exists():
            break
        aside = path.with_name(f"{path.name}.{label}-{stamp}-{number}")
    for ending in ("-wal", "-shm", ""):
        try:
            os.rename(f"{path}{ending}", f"{aside}{ending}")
        except FileNotFoundError:
            pass
    return aside
