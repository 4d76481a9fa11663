"""The ledger of MCP: its last lines, over both of its files; and the lock for starts."""

from __future__ import annotations

import os
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from remuda.errors import NotSafe
from remuda.mcp.ledger import mcp_folder, only_one, read_ledger, record_call
from remuda.tasks import Abandoned


def test_last_lines_are_read_in_order_over_both_files_without_broken_ones(home: Path) -> None:
    assert read_ledger(3) == []
    for number in range(3):
        record_call(f"old{number}", "send", "ok")
    path = home / "mcp" / "ledger.jsonl"
    path.rename(path.with_name("ledger.jsonl.1"))
    record_call("new0", "send", "ok")
    with path.open("ab") as file:
        file.write(b"{broken\n")
    record_call("new1", "send", "REFUSED")
    assert [one["who"] for one in read_ledger(4)] == ["old1", "old2", "new0", "new1"]
    assert [one["who"] for one in read_ledger(1)] == ["new1"]
    assert len(read_ledger(100)) == 5


def test_lines_over_the_end_of_a_block_are_read_whole(home: Path) -> None:
    record_call("a", "send", "ok")
    path = home / "mcp" / "ledger.jsonl"
    line = path.read_bytes()
    path.write_bytes(b"".join(line.replace(b'"a"', b'"%d"' % number) for number in range(3000)))
    assert path.stat().st_size > 2 << 16
    assert [one["who"] for one in read_ledger(2999)] == [str(number) for number in range(1, 3000)]


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
