"""A database of an earlier version is migrated in one transaction: complete, or not at all."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from remuda.boss.records import rows
from remuda.boss.service import BossService
from support.boss import Clock, with_service

OLD = Path(__file__).parent.parent / "data" / "boss_76f0a55.sql"
"""What the boss of commit 76f0a55 wrote: three agents, one that asks, one that is snoozed, one at work."""
_TABLES = ("approval", "base", "claim", "event", "item", "note", "session")
_KILLED = """
import os, signal, sqlite3, sys
from pathlib import Path
from remuda.boss.records import database

left = int(sys.argv[2])
connect = sqlite3.connect

class Connection(sqlite3.Connection):
    def execute(self, sql, *values):
        global left
        done = super().execute(sql, *values)
        if self.in_transaction:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return done

sqlite3.connect = lambda *words, **named: connect(*words, factory=Connection, **named)
database.open_database(Path(sys.argv[1]))
"""


def _make(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(OLD.read_text())


def _content(path: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(path)) as connection:
        return {
            name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall() for name in _TABLES
        }


def _version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


async def _nothing(_service: BossService) -> None:
    return None


async def _look(service: BossService) -> tuple[list[str], list[str], list[tuple[str, str]]]:
    queue = [f"{item.session_id} {item.reason}" for item in service.queue(hidden=True)]
    shown = [item.session_id for item in service.queue()]
    states = sorted((one.id, str(service.agent_state(one))) for one in service.sessions())
    return queue, shown, states


def test_database_of_76f0a55_is_migrated_with_all_that_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "boss.db"
    _make(path)
    before = _content(path)
    with_service(tmp_path, _nothing)
    after = _content(path)
    own = [row for row in after["note"] if row[0] != "states_until"]  # a figure of the new version
    assert {**after, "note": own} == before
    assert _version(path) == rows.VERSION
    queue, shown, states = with_service(tmp_path, _look)
    assert queue == ["a stopped", "b permission"]
    assert shown == ["b"]
    assert states == [("a", "idle"), ("b", "waiting_permission"), ("c", "thinking")]
    assert not list(tmp_path.glob("boss.db.*"))


@pytest.mark.parametrize("statement", range(1, 12))
def test_killed_in_the_middle_of_the_migration_nothing_is_lost(tmp_path: Path, statement: int) -> None:
    path = tmp_path / "boss.db"
    _make(path)
    before = _content(path)
    done = subprocess.run([sys.executable, "-c", _KILLED, str(path), str(statement)], check=False)
    assert done.returncode in (0, -signal.SIGKILL)
    assert _version(path) == (1 if done.returncode else rows.VERSION)
    assert _content(path) == before
    queue, _, _ = with_service(tmp_path, _look)
    assert queue == ["a stopped", "b permission"]
    assert _version(path) == rows.VERSION


def test_kills_meet_every_statement_of_the_migration() -> None:
    statements = [one for step in rows.MIGRATIONS for one in step.split(";") if one.strip()]
    assert 2 + len(statements) < 12  # BEGIN, and the version


def test_new_database_has_the_tables_of_a_migrated_one(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    _make(tmp_path / "old" / "boss.db")

    def tables(name: str) -> list[Any]:
        with_service(tmp_path / name, _nothing, Clock())
        with closing(sqlite3.connect(tmp_path / name / "boss.db")) as connection:
            return connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()

    def plain(found: list[Any]) -> list[Any]:
        return [(kind, name, " ".join((sql or "").split())) for kind, name, sql in found]

    assert plain(tables("old")) == plain(tables("new"))
