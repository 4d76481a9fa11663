"""A kept codex: messages with receipts, states, interrupts and permissions."""

from __future__ import annotations

import asyncio
import json

import pytest

from remuda.agents.codex.asking import CodexPermissions
from remuda.errors import InvalidOptions
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli.codex import RealCodex
from remuda.testing.script import Fail, Reply
from support.codex import call, escalated, keep, press_until_gone
from support.keeper import Start, event_named
from support.messages import CHAIN, stages, step
from support.watcher import TOOL_TURN

pytestmark = pytest.mark.real


@pytest.mark.shows("the usage of a turn is known")
def test_message_is_called_with_the_whole_chain(codex: RealCodex, start: Start, model: LoopbackModel) -> None:
    post = keep(start, codex)
    with model.hold():  # the usage of a turn that is over before it is subscribed to is unknown
        message = post.put_until("! hello\tcodex\n/second line  ", "recorded")
    sent = post.ended(message)
    assert stages(sent) == CHAIN
    # It was put before the composer worked, which would have lost keys.
    assert step(sent, "written")["transport"] == "call"
    assert model.main_requests[0].prompt == "! hello\tcodex\n/second line  "
    assert step(sent, "ended")["usage"]["output_tokens"] > 0


@pytest.mark.shows("a permission request is decided from elsewhere")
@pytest.mark.shows("it is allowed with an edited input", refused=True)
def test_turn_with_a_permission_is_decided_here_or_at_the_terminal(
    codex: RealCodex, start: Start, model: LoopbackModel
) -> None:
    post = keep(start, codex)
    watcher, client = post.watcher, post.kept.hello()
    client.request("watch")
    watcher.settled("idle")
    watcher.forget()
    made = codex.project.parent / "outside"

    message = post.put(escalated(f"touch {made}"))
    asked = event_named(client, "ask", tool="Bash")
    assert asked["input"] == {"command": f"touch {made}", "description": "it must"}
    watcher.until("waiting_permission", source="hook")
    watcher.until_shows("Would you like to run the following command?")
    with pytest.raises(InvalidOptions, match="codex cannot run an edited input"):
        client.request("answer", id=asked["id"], behavior="allow", input={"command": "id"})
    client.request("answer", id=asked["id"], behavior="allow")
    assert stages(post.ended(message)) == CHAIN
    watcher.until("idle", source="hook")
    assert made.exists()
    assert watcher.lasting_states() == TOOL_TURN

    message = post.put(escalated(f"touch {made}2"))
    asked = event_named(client, "ask", tool="Bash")
    watcher.until_shows(f"touch {made}2")
    watcher.until_shows("Would you like to run the following command?")
    press_until_gone(post, b"y", "Would you like to run")
    assert event_named(client, "ask_ended", id=asked["id"])
    assert stages(post.ended(message)) == CHAIN

    message = post.put(escalated("echo no"))
    asked = event_named(client, "ask", tool="Bash")
    client.request("answer", id=asked["id"], behavior="deny", message="use the other way")
    assert post.ended(message).steps[-1]["stage"] == "acked"
    assert any("use the other way" in text for _, text in model.main_requests[-1].texts)


def test_interrupt_and_errors(codex: RealCodex, start: Start, model: LoopbackModel) -> None:
    post = keep(start, codex)
    message = post.put_until("SLOW 30 words", "recorded")
    post.watcher.until("streaming")
    post.client.request("interrupt", id=message)
    ended = post.ended(message)
    assert step(ended, "ended")["end"] == "interrupted"
    refused = post.send("err 400")
    assert step(refused, "ended")["failure"] == "invalid_request"
    model.next(Reply((Fail(429, "usage_limit_reached", "You hit it", {"retry-after": "3600"}),)))
    limited = post.put_until("limit me", "nacked")
    assert step(post.trace(limited), "ended")["failure"] == "rate_limited"
    # What was not answered stays in the conversation, and the receipts say so.
    assert {("user", "SLOW 30 words"), ("user", "err 400")} <= {*model.main_requests[-1].texts}
    assert all(step(one, "ended")["in_conversation"] for one in (ended, refused))


async def plan_turn(path: str, thread: str, prompt: str) -> None:
    """Start a turn in plan mode, as the terminal does for a user who chose that."""
    settings = {"model": "loopback-model", "reasoning_effort": None, "developer_instructions": None}
    await call(
        path,
        "turn/start",
        threadId=thread,
        input=[{"type": "text", "text": prompt}],
        collaborationMode={"mode": "plan", "settings": settings},
    )


@pytest.mark.shows("a question is answered from elsewhere")
def test_question_is_answered_from_elsewhere(codex: RealCodex, start: Start, model: LoopbackModel) -> None:
    post = keep(start, codex)
    assert stages(post.send("first")) == CHAIN
    client = post.kept.hello()
    client.request("watch")
    question = {
        "id": "colour",
        "header": "Colour",
        "question": "Which colour?",
        "options": [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}],
    }
    asking = f"TOOL {json.dumps({'name': 'request_user_input', 'input': {'questions': [question]}})}"
    thread = post.client.describe()["conversation"]["session_id"]
    asyncio.run(plan_turn(str(post.kept.paths.scratch / "s"), thread, asking))
    asked = event_named(client, "ask", tool="request_user_input")
    assert asked["reason"] == "question"
    post.watcher.until("waiting_answer", source="hook")
    given = CodexPermissions().with_answers(asked["input"], {"Colour": "Blue"})
    client.request("answer", id=asked["id"], behavior="allow", input=given)
    post.watcher.until("idle", source="hook")
    assert "Blue" in str(model.main_requests[-1].said)
