"""The sole right to hand out the messages of an inbox, held for as long as its holder lives.

A keeper holds it for its session. The Stop hook does not: it takes turns with other ticks, and stands back
while somebody holds this.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from remuda.errors import FolderUnusable, InboxBusy
from remuda.paths import private_folder

from .stop_hook import Files, Lock, consumer_of, encode_json, open_file


class ConsumerLock:
    """Gone with its process; `release` gives it back sooner."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def take(cls, folder: Path | str, who: str) -> ConsumerLock:
        """Never waits for the holder: raises `InboxBusy` with its name while it lives.

        `who` is what the others are told, such as "the keeper of session x".
        """
        folder = private_folder(Path(folder))
        files = Files(str(folder / "inbox.jsonl"))
        try:
            # Under the lock of the ticks: they look at ours only while they hold theirs, and a look is a
            # lock for an instant.
            with Lock(files):
                return cls(_locked(files, who))
        except OSError as error:
            raise FolderUnusable(f"cannot write to the inbox {folder}: {error.strerror}") from error

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> ConsumerLock:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


def holder(folder: Path | str) -> str | None:
    """Who hands out the messages of this inbox, with its pid; None when nobody alive does."""
    files = Files(str(Path(folder) / "inbox.jsonl"))
    if not os.path.exists(files.consumer):
        return None
    with Lock(files):
        return consumer_of(files)


def _locked(files: Files, who: str) -> int:
    fd = open_file(files.consumer, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, encode_json({"pid": os.getpid(), "who": who}).encode() + b"\n", 0)
    except BlockingIOError:
        os.close(fd)
        busy = consumer_of(files) or "another consumer"
        raise InboxBusy(
            f"the inbox {files.folder} is served by {busy}", hint="stop that consumer first"
        ) from None
    except OSError:
        os.close(fd)
        raise
    return fd
