"""The lock for starts: a server that holds it for too long does not block all others."""

from __future__ import annotations

import os
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from remuda.errors import NotSafe
from remuda.mcp.ledger import mcp_folder, only_one
from remuda.tasks import Abandoned


def _abandon() -> None:
    raise Abandoned


def test_start_lock_of_a_stopped_server_ends_the_wait_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REMUDA_HOME", str(tmp_path / "home"))
    fd = os.open(mcp_folder() / "start.lock", os.O_RDWR | os.O_CREAT, 0o600)
    flock(fd, LOCK_EX)

    with pytest.raises(NotSafe, match="starting a session"), only_one(lambda: None, timeout=0.0):
        pass
    with pytest.raises(Abandoned), only_one(_abandon):
        pass
    os.close(fd)
    with only_one(_abandon):
        pass
