"""The plan of a request whose hook has none: from the transcript, if it is certain which call it is."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.boss import RunningBoss
from support.keeper import until

PLAN = "# Plan\n\n1. measure\n2. cut"


@pytest.fixture
def planning(home: Path) -> Iterator[RunningBoss]:
    with RunningBoss(home, ("remuda.boss.evidence.plans:Plans",)) as one:
        yield one


class Transcript:
    """What the agent records of its conversation."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "conversation.jsonl"
        self.path.touch()

    def write(self, kind: str, *blocks: dict[str, Any], ago: float = 0.0, **more: Any) -> None:
        at = datetime.fromtimestamp(time.time() - ago, UTC).isoformat().replace("+00:00", "Z")
        fields = {"type": kind, "uuid": f"u{time.time_ns()}", "timestamp": at, **more}
        message = {"role": kind, "id": f"m{time.time_ns()}", "content": list(blocks)}
        with self.path.open("a") as file:
            file.write(json.dumps({**fields, "message": message}) + "\n")

    def call(self, plan: str, number: str = "t1", **more: Any) -> None:
        block = {"type": "tool_use", "id": number, "name": "ExitPlanMode", "input": {"plan": plan}}
        self.write("assistant", block, **more)

    def end(self, number: str) -> None:
        block = {"type": "tool_result", "tool_use_id": number, "content": "no", "is_error": True}
        self.write("user", block)

    def request(self) -> dict[str, Any]:
        payload = {"session_id": "s1", "cwd": "/tmp", "hook_event_name": "PermissionRequest"}
        more = {"tool_name": "ExitPlanMode", "tool_input": {}, "transcript_path": str(self.path)}
        return {"payload": {**payload, **more}}


def asked(boss: RunningBoss) -> dict[str, Any]:
    (found,) = boss.client.get("approvals", state="open")["approvals"]
    return dict(found)


def test_plan_that_is_recorded_after_the_request_is_shown_and_can_be_approved(
    planning: RunningBoss, tmp_path: Path
) -> None:
    transcript = Transcript(tmp_path)
    transcript.call("an older plan", "t0")
    transcript.end("t0")
    with planning.holding(transcript.request()) as hook:
        request = asked(planning)
        assert request["input"] == {}
        transcript.call(PLAN)
        until(lambda: asked(planning)["input"] == {"plan": PLAN}, "the plan")
        assert asked(planning)["detail"]["plan_from"] == "transcript"
        planning.client.post("approvals", request["id"], "answer", body={"behavior": "allow"})
        decision = hook.result()["output"]["hookSpecificOutput"]["decision"]
        # The agent has its plan: it gets the input of its own request back.
        assert decision == {"behavior": "allow", "updatedInput": {}}


@pytest.mark.parametrize("case", ["two calls", "an old call", "of a subagent", "empty"])
def test_plan_that_is_not_certain_is_not_shown(planning: RunningBoss, tmp_path: Path, case: str) -> None:
    transcript = Transcript(tmp_path)
    match case:
        case "two calls":
            transcript.call("one", "t1")
            transcript.call("other", "t2")
        case "an old call":
            transcript.call("of yesterday", ago=86400.0)
        case "of a subagent":
            transcript.call("not ours", isSidechain=True)
        case _:
            transcript.call(" \n")
    with planning.holding(transcript.request()) as hook:
        session = planning.client.get("sessions", "s1")["session"]
        assert session["transcript_path"] == str(transcript.path)
        # One that is certain, in another conversation, was looked for after this one.
        (tmp_path / "other").mkdir()
        other = Transcript(tmp_path / "other")
        other.call(PLAN)
        told = other.request()
        told["payload"]["session_id"] = "s2"
        planning.client.post("hooks", body=told)
        until(lambda: any(_plans(planning)), "the plan of the other")
        assert _plans(planning).count(PLAN) == 1
        request = next(one for one in _open(planning) if one["session_id"] == "s1")
        assert request["input"] == {}
        planning.client.post("approvals", request["id"], "answer", body={"behavior": "deny"})
        hook.result()


def _open(boss: RunningBoss) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = boss.client.get("approvals", state="open")["approvals"]
    return found


def _plans(boss: RunningBoss) -> list[str]:
    return [one["input"].get("plan", "") for one in _open(boss)]
