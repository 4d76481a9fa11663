"""Requests at their sender: what an older version left, a full disk, and two changes at once."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from remuda.errors import FolderUnusable
from remuda.fleet.requests import MAX_ATTEMPTS, SentRequests

END = {"do": "end", "attempt": 1, "result": {"text": "done"}}


def put(folder: Path, number: str, **more: Any) -> Path:
    """Write a request as an earlier run of the boss has left it."""
    now = time.time()
    document = {"id": number, "profile": "p", "payload": {"prompt": "x"}, "created": now, "outcome": None}
    document |= {"deadline": now + 60.0, "state": "queued", "hosts": [], **more}
    (folder / "requests").mkdir(mode=0o700, exist_ok=True)
    path = folder / "requests" / f"{number}.json"
    path.write_text(json.dumps(document))
    return path


def fill_disk(folder: Path) -> None:
    """Have nothing be written to the requests, until `free_disk`."""
    (folder / "requests").rename(folder / "away")
    (folder / "requests").write_text("")


def free_disk(folder: Path) -> None:
    (folder / "requests").unlink()
    (folder / "away").rename(folder / "requests")


def test_requests_of_an_older_version_are_kept_and_can_be_ended(tmp_path: Path) -> None:
    for number, state in (("r1", "running"), ("r2", "queued")):
        path = put(tmp_path, number, state=state, host="build7", attempts=1)
        document = json.loads(path.read_text())
        del document["hosts"]
        path.write_text(json.dumps(document))
    requests = SentRequests(tmp_path)
    running, queued = sorted(requests.listing(), key=lambda one: one["id"])
    assert (running["host"], running["attempts"]) == ("build7", 1)
    assert (queued["host"], queued["attempts"]) == (None, 1)
    assert asyncio.run(requests._carry_out("r1", "build8", END)) == {"gone": True}
    assert asyncio.run(requests._carry_out("r1", "build7", END)) == {"ok": True}
    assert SentRequests(tmp_path).listing()[-1]["outcome"]["result"]["host"] == "build7"


def test_an_end_that_the_disk_does_not_take_is_not_confirmed(tmp_path: Path) -> None:
    async def go() -> None:
        put(tmp_path, "r1", state="running", hosts=["build7"])
        requests = SentRequests(tmp_path)
        fill_disk(tmp_path)
        for _ in range(2):  # the host keeps the end, and reports it again
            with pytest.raises((OSError, FolderUnusable)):
                await requests._carry_out("r1", "build7", END)
        # The one who waits for it has it.
        assert (await requests.follow("r1", 0, 0.0))["outcome"]["result"]["text"] == "done"
        free_disk(tmp_path)
        assert await requests._carry_out("r1", "build7", END) == {"gone": True}
        assert SentRequests(tmp_path).listing()[0]["state"] == "ended"

    asyncio.run(go())


def test_a_claim_that_the_disk_does_not_take_is_no_attempt(tmp_path: Path) -> None:
    async def go() -> None:
        put(tmp_path, "r1")
        requests = SentRequests(tmp_path)
        fill_disk(tmp_path)
        for _ in range(MAX_ATTEMPTS + 1):
            with pytest.raises((OSError, FolderUnusable)):
                await requests._carry_out("r1", "build7", {"do": "claim"})
        free_disk(tmp_path)
        assert (await requests._carry_out("r1", "build7", {"do": "claim"}))["attempt"] == 1

    asyncio.run(go())


def test_events_that_no_pool_sends_are_dropped(tmp_path: Path) -> None:
    """The one who follows would end with a KeyError, or take one for the end."""

    async def go() -> None:
        put(tmp_path, "r1", state="running", hosts=["build7"])
        requests = SentRequests(tmp_path)
        token = {"type": "token", "text": "a"}
        bad: list[dict[str, Any]] = [
            {},
            {"type": ["token"]},
            {"type": "token"},
            {"type": "tool_use", "id": 1},
        ]
        bad += [
            {"type": "done", "result": {"text": "x"}},
            {"type": "error"},
            {"type": "retry", "lost": "desk"},
        ]
        report = {"do": "events", "attempt": 1, "from": 0, "events": [*bad, token, 7]}
        for _ in range(2):  # reported again, they are known
            assert await requests._carry_out("r1", "build7", report) == {"ok": True}
        assert (await requests.follow("r1", 0, 0.0))["events"] == [token]

    asyncio.run(go())


def test_a_request_that_is_claimed_and_cancelled_at_once_is_cancelled_on_the_disk(tmp_path: Path) -> None:
    async def go() -> None:
        for number in range(30):
            path = put(tmp_path, f"r{number}")
            requests = SentRequests(tmp_path)
            claim = requests._carry_out(path.stem, "build7", {"do": "claim"})
            await asyncio.gather(claim, requests.cancel(path.stem))
            kept = json.loads(path.read_text())
            assert (kept["state"], kept["payload"]) == ("ended", None)

    asyncio.run(go())
