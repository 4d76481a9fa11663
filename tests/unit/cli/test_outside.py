"""Names of agents outside of sessions: what `ls` prints means that agent and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remuda.cli import outside


def session(number: str, cwd: str, **more: Any) -> dict[str, Any]:
    known = {"name": None, "origin": "foreign", "replaced_by": None, "repo": None}
    return {"id": number, "cwd": cwd, "ended": None, "first_seen": 0, **known, **more}


@pytest.mark.parametrize(
    ("folder", "other"),
    [
        ("proj", session("bbbb2222", "/x/proj", name="kept1", origin="kept")),
        ("%5", session("bbbb2222", "/x/other", pane="%5")),
        ("bbbb", session("bbbb2222", "/x/other")),
        ("item7", session("bbbb2222", "/x/other")),
    ],
)
def test_a_folder_that_may_mean_another_agent_is_not_a_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str, other: dict[str, Any]
) -> None:
    class FakeBoss:
        def __init__(self, **_: object) -> None:
            pass

        def get(self, what: str, **_: object) -> Any:
            items = [{"id": "item7", "session_id": "bbbb2222"}]
            found = [session("aaaa1111", f"/y/{folder}"), other]
            return {"items": items} if what == "queue" else {"sessions": found}

    monkeypatch.setenv("REMUDA_HOME", str(tmp_path))
    monkeypatch.setattr(outside, "BossClient", FakeBoss)
    names = {one.session["id"]: one.name for one in outside.list_outside()}
    assert names["aaaa1111"] == "aaaa1111"
