"""The ledger of MCP: its last lines, over both of its files."""

from __future__ import annotations

from pathlib import Path

from remuda.mcp.ledger import read_ledger, record_call


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
