"""On a machine that has joined no fleet, neither a command nor the boss imports anything of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.commands import Commands

IMPORTED = re.compile(r"^import time:.*\| +(nats|nkeys|remuda\.fleet)(\.\S+)?$", re.MULTILINE)
COMMANDS = [
    ("ls",),
    ("ls", "--all", "--json"),
    ("queue",),
    ("status",),
    ("start", "more", "--detach", "--", "cat"),
    ("show", "work"),
    ("logs", "work"),
    ("messages", "work"),
    ("send", "work", "hello"),
    ("kill", "more"),
]


def imported(report: str) -> list[str]:
    """Return what a process imported of a fleet; it reported every import."""
    assert "| remuda" in report or "| site" in report, report
    return [found[0].rpartition("|")[2].strip() for found in IMPORTED.finditer(report)]


@pytest.mark.timeout(300)
def test_commands_and_boss_without_a_hub_import_nothing_of_a_fleet(home: Path) -> None:
    remuda = Commands(home)
    remuda.env["PYTHONPROFILEIMPORTTIME"] = "1"
    try:
        assert imported(remuda("up", "--detach", "--port", "0").err) == []
        remuda.start("work", "--agent", "demo", "--", "--permission-mode", "default")
        for words in COMMANDS:
            assert imported(remuda(*words).err) == [], words
        remuda("down")
        assert imported((home / "boss" / "boss.err").read_text()) == []
    finally:
        remuda.close()
