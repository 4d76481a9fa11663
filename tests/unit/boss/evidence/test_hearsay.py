"""Events posted with Trail Boss's token: nothing that they name becomes evidence, now or after a restart."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from remuda.agents.claude.sources import ClaudeSources
from remuda.boss.answers.idle_proof import check_registry
from remuda.boss.attention.model import BossSession
from remuda.boss.evidence.jobs import Jobs
from remuda.boss.evidence.registry import AgentRegistry
from remuda.boss.evidence.transcripts import open_tail
from remuda.boss.evidence.watches import Watches
from remuda.boss.service import BossService
from remuda.durable import open_regular
from remuda.errors import NotSafe
from support.boss import event, with_service

NOBODY = 65534
FORGED: dict[str, Any] = {"transcript_path": "/evil/projects/p/s.jsonl", "pid": 1, "name": "work"}
as_root = pytest.mark.skipif(os.getuid() != 0, reason="NOT TESTED: only root can give a file away")


def session_after(folder: Path, *events: Any) -> BossSession:
    async def work(service: BossService) -> BossSession:
        await service.take(*events)
        return service.session("s")

    return with_service(folder, work)


def test_hearsay_names_pane_folder_and_transcript_and_no_process(tmp_path: Path) -> None:
    session = session_after(
        tmp_path, event("stopped", 10, hearsay=True, pane="%1", cwd="/srv", agent="other", **FORGED)
    )
    assert (session.pane, session.cwd, session.agent) == ("%1", "/srv", "other")
    assert (session.transcript_path, session.pid, session.name) == (FORGED["transcript_path"], None, None)


def test_hearsay_changes_nothing_that_the_agent_said(tmp_path: Path) -> None:
    own = event("registered", 10, cwd="/own", pane="%1", pid=7, transcript_path="/t", agent="claude")
    session = session_after(tmp_path, own, event("stopped", 20, hearsay=True, cwd="/x", pane="%2", **FORGED))
    assert (session.cwd, session.pane, session.pid, session.transcript_path) == ("/own", "%1", 7, "/t")


def test_agent_itself_counts_more_than_later_hearsay(tmp_path: Path) -> None:
    heard = event("stopped", 20, hearsay=True, cwd="/x", pane="%2")
    session = session_after(tmp_path, heard, event("working", 15, cwd="/own"))
    assert (session.cwd, session.pane) == ("/own", "%2")


def test_newer_hearsay_replaces_older(tmp_path: Path) -> None:
    heard = [event("stopped", at, hearsay=True, pane=f"%{at}") for at in (20, 30, 10)]
    assert session_after(tmp_path, *heard).pane == "%30"


@pytest.mark.parametrize("is_old", [True, False])
def test_path_on_the_disk_counts_if_this_version_wrote_it(tmp_path: Path, is_old: bool) -> None:
    assert session_after(tmp_path, event("registered", 10, transcript_path="/t")).transcript_path == "/t"
    connection = sqlite3.connect(tmp_path / "boss.db")
    with connection:
        connection.execute("DELETE FROM event")
        found = json.loads(connection.execute("SELECT document FROM session").fetchone()[0])
        if is_old:  # as version 0.1 stores it, from any source
            del found["dated"]["trusted transcript_path"]
        connection.execute("UPDATE session SET document = ?", (json.dumps(found),))
    connection.close()
    session = session_after(tmp_path)
    assert session.transcript_path == (None if is_old else "/t")
    assert ("transcript_path" in session.dated) is not is_old


def test_process_in_a_stored_event_of_hearsay_does_not_come_back(tmp_path: Path) -> None:
    session_after(tmp_path, event("registered", 10, hearsay=True, **FORGED))
    session = session_after(tmp_path)
    assert session.pid is None


# ── files of another user ──


def _give_away(path: Path) -> None:
    os.chown(path, NOBODY, NOBODY)


@as_root
def test_transcript_of_another_user_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text('{"type": "user"}\n')
    assert list(open_tail(str(path)).read()) == [{"type": "user"}]
    _give_away(path)
    assert list(open_tail(str(path)).read()) == []
    os.close(open_regular(path))
    with pytest.raises(PermissionError, match="belongs to another user"):
        open_regular(path, own=True)


@as_root
def test_registry_of_another_user_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sessions" / f"{os.getpid()}.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"sessionId": "s", "status": "idle", "pid": os.getpid()}))
    transcript = tmp_path / "projects" / "p" / "s.jsonl"
    session = BossSession("s", pid=os.getpid(), transcript_path=str(transcript))
    check_registry(session, ClaudeSources())
    assert _entry(path.parent) is not None
    _give_away(path)
    assert _entry(path.parent) is None
    with pytest.raises(NotSafe, match="cannot read"):
        check_registry(session, ClaudeSources())


def _entry(folder: Path) -> object:
    class Unwatched(Watches):
        def __init__(self) -> None:
            pass

        def folder(self, *_: Any) -> int | None:
            return None

    registry = AgentRegistry(Unwatched(), lambda _events: None, lambda _pid: False)
    registry.add_folder(folder, ClaudeSources(), 1.0)
    return registry.entry(os.getpid())


@as_root
def test_job_of_another_user_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "jobs" / "j" / "state.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(JOB))
    assert _job(tmp_path) is not None
    _give_away(path)
    assert _job(tmp_path) is None


JOB = {"sessionId": "s", "state": "working", "updatedAt": "2026-01-01T00:00:00Z"}


def _job(folder: Path) -> object:
    jobs = Jobs()
    jobs.add_registry(folder / "sessions", ClaudeSources())
    return jobs.of_session("s")
