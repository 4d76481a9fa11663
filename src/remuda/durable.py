"""Files: read what may be anything, and write what survives a crash at any instant.

A clone or another program can put a pipe, a device or a symbolic link where a file is expected. What is read
here is a regular file of a bounded size; what is written here is a new file, and no link is followed to it.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MOST_BYTES = 64 << 20
_READ_BYTES = 4096


def open_regular(path: str | os.PathLike[str], *, own: bool = False) -> int:
    """Open a regular file for reading, also through links, and never wait for a pipe. Raises OSError, with
    `own` also for a file of another user, root's too.

    The null device is an empty file: `--config /dev/null` means no configuration.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) and not _is_null(status):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
    if own and status.st_uid != os.getuid():
        os.close(fd)
        raise PermissionError(errno.EACCES, "it belongs to another user", os.fspath(path))
    return fd


def _is_null(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == os.stat(os.devnull).st_rdev


def read_regular(path: str | os.PathLike[str], most_bytes: int = MOST_BYTES, *, own: bool = False) -> bytes:
    """Return all of a regular file. Raises OSError, also for one that is larger than `most_bytes`, and with
    `own` for one of another user."""
    fd = open_regular(path, own=own)
    try:
        data = b""
        size = max(os.fstat(fd).st_size, _READ_BYTES)
        while len(data) <= most_bytes and (piece := os.read(fd, min(size, most_bytes) + 1)):
            data += piece
    finally:
        os.close(fd)
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes", os.fspath(path))
    return data


def open_new(path: Path, mode: int = 0o600) -> int:
    """Open a new file for writing. An older file with this name, left by a crash or put there, is removed."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    os.fchmod(fd, mode)  # whatever the umask
    return fd


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write `data` to `path` atomically. It is on the disk when this returns."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fd = open_new(temporary, mode)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
