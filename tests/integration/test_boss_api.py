"""`remuda.Boss` and `remuda.AsyncBoss`: the queue, permission requests and replies, for a program."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from remuda import (
    AlreadyAnswered,
    AsyncBoss,
    Boss,
    BossDown,
    InputError,
    InvalidOptions,
    NotInQueue,
    NotSafe,
    WaitTimeout,
)
from remuda.agents.attention import digest
from support.boss import RunningBoss, event
from support.heimdall_client import PATIENCE
from support.keeper import Start, until
from support.messages import Post

AGENT = [sys.executable, "-P", "-m", "remuda.testing.scripted_agent", "--permission-mode", "default"]
SESSION = "11112222-0000"
QUESTION = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [{"label": "Blue", "description": "b"}, {"label": "Red", "description": "r"}],
    "multiSelect": False,
}


def asked(tool: str = "Bash", given: dict[str, Any] | None = None) -> dict[str, Any]:
    payload = {
        "session_id": SESSION,
        "hook_event_name": "PermissionRequest",
        "tool_name": tool,
        "tool_input": {"command": "touch x"} if given is None else given,
        "cwd": "/srv",
    }
    return {"payload": payload, "id": f"ask:{digest(tool, payload['tool_input'])}"}


def decision(hook: Any) -> dict[str, Any]:
    found: dict[str, Any] = hook.result(PATIENCE)["output"]["hookSpecificOutput"]["decision"]
    return found


@pytest.fixture
def api(boss: RunningBoss) -> Boss:
    return Boss(folder=boss.folder.path, timeout=PATIENCE)


def one_request(api: Boss) -> Any:
    until(api.permissions, "a permission request")
    (request,) = api.permissions()
    return request


def test_permission_is_approved_once_and_the_second_decision_is_an_error(
    boss: RunningBoss, api: Boss
) -> None:
    with boss.holding(asked()) as hook:
        request = one_request(api)
        assert (request.tool, request.input, request.state) == ("Bash", {"command": "touch x"}, "open")
        assert api.permission("11112222") == request
        (item,) = api.queue()
        assert (item.reason, item.session_id) == ("permission", SESSION)
        done = api.approve(request, by="a test", input={"command": "touch y"})
        assert (done.state, done.by) == ("answered", "api: a test")
        assert decision(hook) == {"behavior": "allow", "updatedInput": {"command": "touch y"}}
    with pytest.raises(AlreadyAnswered):
        api.deny(request.id)
    assert api.permissions() == []
    assert [one.id for one in api.permissions(all=True)] == [request.id]
    with pytest.raises(NotInQueue, match="no open permission request"):
        api.approve("11112222")


def test_permission_is_denied_with_a_message(boss: RunningBoss, api: Boss) -> None:
    with boss.holding(asked()) as hook:
        api.deny(one_request(api), "use the staging database", interrupt=True)
        assert decision(hook) == {
            "behavior": "deny",
            "message": "use the staging database",
            "interrupt": True,
        }


def test_question_is_answered(boss: RunningBoss, api: Boss) -> None:
    with boss.holding(asked("AskUserQuestion", {"questions": [QUESTION]})) as hook:
        assert one_request(api).reason == "question"
        api.approve("11112222", answers={"Which colour?": "Blue"})
        assert decision(hook)["updatedInput"]["answers"] == {"Which colour?": "Blue"}


def test_plan_that_is_not_shown_is_approved_only_when_that_is_said(boss: RunningBoss, api: Boss) -> None:
    with boss.holding(asked("ExitPlanMode", {})) as hook:
        request = one_request(api)
        with pytest.raises(NotSafe):
            api.approve(request)
        api.approve(request, unseen=True)
        assert decision(hook)["behavior"] == "allow"


def test_waiting_item_is_put_off_in_three_ways(boss: RunningBoss, api: Boss) -> None:
    boss.tell(event("seen", 1.0, session=SESSION), event("stopped", 2.0, session=SESSION, message="done"))
    (item,) = api.queue()
    assert (item.reason, item.message) == ("stopped", "done")
    assert api.later(item, "end").skip_until
    assert api.later("11112222", "2h30m").snooze_until
    assert api.queue() == []
    assert [one.id for one in api.queue(hidden=True)] == [item.id]
    assert api.later(item, "never").resolution == "dismissed"
    assert api.queue(hidden=True) == []
    with pytest.raises(NotInQueue, match="is not waiting"):
        api.later("11112222")
    with pytest.raises(InvalidOptions, match="when is 'soon'"):
        api.later(item, "soon")


def test_reply_to_a_kept_session_goes_into_its_inbox(
    start: Start, home: Path, boss: RunningBoss, api: Boss
) -> None:
    own = {"CLAUDE_CONFIG_DIR": str(home / "claude"), "MOCK_TIME_SCALE": "0.01"}
    post = Post(
        start("work", AGENT, agent="demo", classifier="claude", env={**os.environ, **own}, cwd=str(home))
    )
    boss.client.post(
        "events",
        body={"events": [{"kind": "seen", "session_id": "x", "facts": {"name": "work", "origin": "kept"}}]},
    )
    result = api.reply("work", "hello")
    assert (result.via, result.stage, result.session, result.alive) == ("inbox", "accepted", "work", True)
    assert result.id is not None
    assert post.ended(result.id).stage == "acked"
    with pytest.raises(InputError, match="pass command=True to run it"):
        api.reply("work", "/clear")
    with pytest.raises(NotInQueue):
        api.reply("nobody", "hello")


def test_async_form_does_the_same(boss: RunningBoss) -> None:
    async def work() -> None:
        api = AsyncBoss(folder=boss.folder.path, timeout=PATIENCE)
        while not (found := await api.permissions()):
            await asyncio.sleep(0.05)
        assert await api.permission(found[0].id) == found[0]
        assert [one.reason for one in await api.queue()] == ["permission"]
        assert (await api.later("11112222")).snooze_until
        assert (await api.approve(found[0])).state == "answered"
        with pytest.raises(AlreadyAnswered):
            await api.deny(found[0])
        with pytest.raises(NotInQueue):
            await api.reply("nobody", "hello")

    with boss.holding(asked()) as hook:
        asyncio.run(work())
        assert decision(hook) == {"behavior": "allow"}


def test_bad_arguments_are_our_errors(boss: RunningBoss, api: Boss) -> None:
    for call in (lambda: api.later(""), lambda: api.permission(""), lambda: api.reply("", "hi")):
        with pytest.raises(InvalidOptions, match="is empty"):
            call()
    assert boss.process is not None
    boss.process.signal(signal.SIGSTOP)
    try:
        with pytest.raises(WaitTimeout, match="did not answer within 0 s"):
            asyncio.run(AsyncBoss(folder=boss.folder.path, timeout=0).queue())
    finally:
        boss.process.signal(signal.SIGCONT)
    with boss.holding(asked()) as hook:
        request = one_request(api)
        with pytest.raises(InvalidOptions, match="input must be a mapping, not str"):
            api.approve(request, input="notadict")  # type: ignore[arg-type]
        api.approve(request)
        assert decision(hook) == {"behavior": "allow"}


def test_boss_that_does_not_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BossDown):
        Boss(folder=tmp_path).queue()
