"""An account at its limit: its messages wait, everybody is told until when, and it goes on by itself."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.durable import replace_file
from remuda.keeper.environment import session_environment
from support.boss import KEPT, RunningBoss
from support.commands import Commands
from support.keeper import Start, until
from support.messages import Post, stages, step

AGENT = [sys.executable, "-P", "-m", "remuda.testing.scripted_agent"]
LIMIT = "err 429 1 too much, try again in 2 hours"


@pytest.fixture
def boss(home: Path) -> Iterator[RunningBoss]:
    with RunningBoss(home, (KEPT,)) as one:
        yield one


class Ranch:
    """Kept scripted agents; those with the same configuration folder share an account."""

    def __init__(self, start: Start, folder: Path) -> None:
        self._start = start
        self._folder = folder

    def keep(self, name: str, account: str = "one") -> Post:
        config, project = self._folder / account, self._folder / "project"
        config.mkdir(exist_ok=True)
        project.mkdir(exist_ok=True)
        own = {"CLAUDE_CONFIG_DIR": str(config), "MOCK_TIME_SCALE": "0.01"}
        env = session_environment({**os.environ, **own}, name, "HEIMDALL", {})
        given: dict[str, Any] = {"agent": "demo", "classifier": "claude", "cols": 100, "rows": 30}
        post = Post(self._start(name, AGENT, cwd=str(project), env=env, **given))
        post.watcher.settled("idle")
        return post


@pytest.fixture
def ranch(start: Start, tmp_path: Path) -> Ranch:
    return Ranch(start, tmp_path)


def limited(boss: RunningBoss) -> dict[str, Any]:
    (found,) = boss.client.get("health")["limits"]
    assert boss.client.get("queue")["limits"] == [found]
    return dict(found)


def test_limit_of_an_account_is_shown_with_all_that_waits_for_its_end_and_ends_by_itself(
    remuda: Commands, boss: RunningBoss, ranch: Ranch, home: Path
) -> None:
    first, second, other = ranch.keep("first"), ranch.keep("second"), ranch.keep("other", "two")
    assert boss.client.get("health")["limits"] == []
    before = time.time()
    refused = first.put(LIMIT)
    assert step(first.reached(refused, "nacked"), "ended")["failure"] == "rate_limited"
    waiting = second.put_held("me too", "the account has reached its rate limit")

    found = limited(boss)
    assert before + 7200 <= found["until"] <= time.time() + 7205.1
    assert (found["sessions"], found["messages"]) == (["first", "second"], 2)
    assert "too much, try again in 2 hours" in found["reason"]
    (item,) = until(lambda: [one for one in boss.waiting() if one["reason"] == "limited"], "the queue")
    assert (item["session"]["name"], round(item["detail"]["until"] - found["until"], -2)) == ("first", 0)
    assert b"\nremuda_boss_accounts_limited 1\n" in boss.ask("GET", "/metrics").body

    when = r"until (\w+ )?\d\d:\d\d"
    told = remuda("queue").out
    assert re.search(rf"^first +limited {when} ", told, re.MULTILINE)
    assert re.search(
        rf"^limited: account \w{{8}} {when} \(\d\w+ more\): API Error.* too much", told, re.MULTILINE
    )
    assert "\n  2 messages for first, second will be delivered then\n" in told
    told = remuda("status").out
    assert re.search(rf"^limited    account \w{{8}} {when} ", told, re.MULTILINE)
    assert "\n           2 messages for first, second will be delivered then\n" in told
    told = remuda("status", "second").out
    assert re.search(
        rf"^held +messages are waiting: the account has reached its rate limit {when}$", told, re.MULTILINE
    )

    other.run("of another account")
    assert stages(second.trace(waiting)) == ["accepted"]
    behind = first.put("when it is over")
    assert limited(boss)["messages"] == 3
    first.client.request("interrupt", id=refused)  # it would only meet the same again
    assert first.ended(refused).stage == "dropped"

    (account,) = (path for path in (home / "accounts").iterdir() if path.suffix == ".json")
    replace_file(account, json.dumps({"until": time.time() + 1, "reason": "almost over"}).encode())
    assert second.ended(waiting).stage == first.ended(behind).stage == "acked"
    assert boss.client.get("health")["limits"] == boss.client.get("queue")["limits"] == []
    until(lambda: {one["reason"] for one in boss.waiting()} == {"stopped"}, "the end of the limit")
    assert "limited" not in remuda("queue").out


def test_session_that_begins_while_its_account_is_limited_waits_as_well(
    boss: RunningBoss, ranch: Ranch, home: Path
) -> None:
    first = ranch.keep("first")
    first.reached(first.put(LIMIT), "nacked")
    late = ranch.keep("late")
    waiting = late.put("hello")
    until(lambda: limited(boss)["sessions"] == ["first", "late"], "the one that came later")
    assert stages(late.trace(waiting)) == ["accepted"]
    boss.end()  # nothing of it is the boss's alone
    boss.start()
    assert limited(boss)["sessions"] == ["first", "late"]
