"""Following a session's history while its files change."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest

from remuda.inotify import Inotify
from remuda.keeper.client import KeeperClient
from remuda.keeper.history_stream import changes as follow_file
from remuda.paths import SessionPaths

LATE = 5.0


class Quiet:
    """A keeper that tells nothing."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def receive(self) -> list[Any]:
        return []


@pytest.mark.parametrize("missing", [True, False])
def test_history_that_cannot_be_watched_now_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: bool
) -> None:
    """The keeper exchanges the files in that moment, or the user has no watch left."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no more inotify watches are allowed")

    paths = SessionPaths(tmp_path, "x")
    if not missing:
        paths.history.touch()
        monkeypatch.setattr(Inotify, "add", refuse)
    reading, writing = os.pipe()
    late = threading.Timer(LATE, os.write, (writing, b"x"))
    late.start()
    try:
        changes = follow_file(paths.history, cast(KeeperClient, Quiet(reading)))
        next(changes)
        began = time.monotonic()
        next(changes)
        assert time.monotonic() - began < LATE / 2
        del changes
    finally:
        late.cancel()
        late.join()
        os.close(reading)
        os.close(writing)
