"""The conversation and the usage of the real Claude Code, as the boss shows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.testing.real_cli import RealCli
from support.boss import KEPT, USAGE, RunningBoss
from support.keeper import Start, until
from support.real_sessions import keep
from support.watcher import Watcher

pytestmark = pytest.mark.real

SOURCES = (
    KEPT,
    USAGE,
    "remuda.boss.evidence.messages:Messages",
)


@pytest.fixture
def boss(home: Path) -> Iterator[RunningBoss]:
    with RunningBoss(home, SOURCES) as one:
        yield one


def test_conversation_and_usage_are_those_of_the_transcript(
    boss: RunningBoss, cli: RealCli, start: Start
) -> None:
    kept = keep(start, cli)
    name = kept.spec.name
    Watcher(kept.hello()).settled("idle")
    until(
        lambda: name in [one["name"] for one in boss.client.get("sessions")["sessions"]], "the boss to know"
    )
    for prompt in ("RUNBASH ls -d .", "hello again"):
        sent = boss.client.post("sessions", name, "reply", body={"text": prompt})
        until(lambda sent=sent: boss.client.get("sessions", name, "messages", sent["id"])["ended"], "its end")  # type: ignore[misc]

    def look() -> dict[str, Any]:
        found: dict[str, Any] = boss.client.get("sessions", name, "conversation")
        answers = [one for one in found["entries"] if one["kind"] == "answer"]
        return found if any("hello again" in one["text"] for one in answers) else {}

    entries = until(look, "the last answer in the conversation")["entries"]
    assert [one["text"] for one in entries if one["kind"] == "prompt"] == ["RUNBASH ls -d .", "hello again"]
    (call,) = [one for one in entries if one["kind"] == "tool_call"]
    (result,) = [one for one in entries if one["kind"] == "tool_result"]
    assert (call["tool"], call["input"]["command"]) == ("Bash", "ls -d .")
    assert (result["call"], result["ok"], result["text"]) == (call["call"], True, ".")
    used = [one for one in entries if one["kind"] == "usage"]
    assert len({one["id"] for one in used}) == len(used) == 3  # two of the turn with a tool, one of the other
    total = {
        kind: sum(one["tokens"][kind] for one in used)
        for kind in ("input", "output", "cache_read", "cache_write")
    }

    def counted() -> bool:
        return bool(boss.client.get("usage", by="session")["total"]["tokens"] == total)

    until(counted, "all of it counted")
    usage = boss.client.get("usage", by="turn", session=name)
    assert (usage["total"]["messages"], usage["total"]["turns"]) == (3, 2)
    assert {row["model"] for row in usage["rows"]} == {used[0]["model"]}
    assert usage["total"]["cost"] is None
