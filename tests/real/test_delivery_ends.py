"""How a turn ends on the real Claude Code, and what becomes of its message: each end has its own receipt."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from remuda.errors import WaitTimeout
from remuda.testing.loopback_model import Gate, LoopbackModel
from remuda.testing.real_cli import RealCli
from remuda.testing.script import Hold, Reply, failure
from support.keeper import Start, event_named, until, until_equal
from support.messages import CHAIN, Post, prompts, requests_with, stages, step
from support.real_sessions import keep, outcomes

pytestmark = pytest.mark.real

QUICK = {"CLAUDE_CODE_MAX_RETRIES": "1"}


def hook(event: str, program: str) -> dict[str, Any]:
    """A user's own hook: `program` has the payload in `p` and prints its decision."""
    script = f"import json, sys; p = json.load(sys.stdin); {program}"
    return {"hooks": {event: [{"hooks": [{"type": "command", "command": f'python3 -c "{script}"'}]}]}}


def settings(document: Mapping[str, Any]) -> tuple[str, str]:
    return "--settings", json.dumps(document)


# ── answered, and refused ──


@pytest.mark.shows("the usage of a turn is known")
def test_answered_has_the_answer_and_its_usage_in_the_outbox(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, cli))
    found = post.send("hello there")
    assert stages(found) == CHAIN
    assert found.answer is not None
    assert found.answer["text"] == "REPLY#1 to: hello there"
    assert found.answer["session_id"] == model.main_requests[0].session_id
    assert found.answer["usage"]["output_tokens"] == 7
    assert step(found, "submitted")["prompt_id"] == step(found, "ended")["prompt_id"]


def test_prompt_that_a_users_hook_blocks_is_refused_with_its_reason(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    block = hook(
        "UserPromptSubmit",
        "print(json.dumps({'decision': 'block', 'reason': 'not here'} if 'apple' in p['prompt'] else {}))",
    )
    post = Post(keep(start, cli, *settings(block), draft_patience=1.0))
    refused = post.send("bring me an apple")
    assert refused.stage == "dead"
    assert step(refused, "ended")["end"] == "refused"
    assert "not here" in refused.reason
    assert stages(post.send("bring me a pear")) == CHAIN
    assert prompts(model) == ["bring me a pear"]


APPLES = hook(
    "UserPromptSubmit",
    "print(json.dumps({'decision': 'block', 'reason': 'not here'} if 'apple' in p['prompt'] else {}))",
)


@pytest.mark.parametrize(
    "prompt",
    ["bring me an apple", "an apple\n\n  and another", "!apple", "apple " + "and many words more " * 200],
    ids=["line", "lines", "shell", "long"],
)
def test_prompt_that_a_hook_blocks_does_not_stay_in_the_composer(
    cli: RealCli, start: Start, model: LoopbackModel, prompt: str
) -> None:
    """The CLI puts it back there. No one is asked to wait for it as for a draft."""
    post = Post(keep(start, cli, *settings(APPLES), draft_patience=3600.0))
    for _ in range(2):
        assert post.send(prompt).stage == "dead"
    assert stages(post.send("bring me a pear")) == CHAIN
    assert post.draft() == ""
    assert prompts(model) == ["bring me a pear"]


def test_draft_survives_a_prompt_that_a_hook_blocks(cli: RealCli, start: Start, model: LoopbackModel) -> None:
    post = Post(keep(start, cli, *settings(APPLES), draft_patience=1.0))
    post.watcher.settled("idle")
    post.watcher.press(b"half a thought")
    until_equal(post.draft, "half a thought", "the draft in the composer")
    assert post.send("bring me an apple").stage == "dead"
    assert stages(post.send("bring me a pear")) == CHAIN
    until(lambda: post.draft().startswith("half a thought"), "the draft back in the composer")
    assert prompts(model) == ["bring me a pear"]


def test_prompt_that_a_hook_blocks_is_left_to_whoever_typed_meanwhile(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    slow = hook(
        "UserPromptSubmit",
        "import os, time; open('asked', 'w').close()\n"
        "while not os.path.exists('go'): time.sleep(0.05)\n"
        "print(json.dumps({'decision': 'block', 'reason': 'not here'}))",
    )
    post = Post(keep(start, cli, *settings(slow)))
    message = post.put_until("bring me an apple", "submitted")
    until((cli.project / "asked").exists, "the hook runs")
    post.watcher.press(b"words of mine")
    until(lambda: any("words of mine" in line for line in post.lines()), "the keys on the screen")
    (cli.project / "go").touch()
    assert post.ended(message).stage == "dead"
    until(lambda: "words of mine" in post.draft(), "the keys in the composer")


# ── the service fails ──


@pytest.mark.parametrize(("status", "failure"), [(400, "invalid_request"), (401, "authentication")])
def test_error_that_would_come_again_is_a_dead_letter(
    cli: RealCli, start: Start, status: int, failure: str
) -> None:
    post = Post(keep(start, cli, env=QUICK))
    found = post.send(f"err {status}")
    assert found.stage == "dead"
    assert step(found, "ended")["failure"] == failure
    assert str(status) in found.reason
    assert stages(post.send("the next one")) == CHAIN


@pytest.mark.shows("a rate limit gives the message back for later")
def test_rate_limit_gives_the_message_back_and_the_whole_account_waits(
    cli: RealCli, start: Start, model: LoopbackModel, home: Path
) -> None:
    post = Post(keep(start, cli, env=QUICK))
    limited = post.put("err 429")
    nacked = step(post.reached(limited, "nacked"), "nacked")
    assert nacked["due"] > nacked["at"]
    assert "429" in nacked["reason"]
    assert step(post.trace(limited), "ended")["failure"] == "rate_limited"
    behind = post.put_held("of the same account", "the account has reached its rate limit")
    assert stages(post.trace(behind)) == ["accepted"]
    (account,) = (home / "accounts").glob("*.json")
    os.unlink(account)  # the limit is over
    assert stages(post.ended(behind)) == CHAIN


def test_overload_is_tried_again_after_the_time_that_the_service_names(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, cli, env=QUICK))
    busy = Reply((failure(529, message="too many, try again in 5 seconds"),))
    model.next(busy, busy)  # the CLI itself tries twice
    overloaded = post.put("in a moment")
    assert step(post.reached(overloaded, "ended"), "ended")["failure"] == "overloaded"
    nacked = step(post.reached(overloaded, "nacked"), "nacked")
    assert nacked["due"] - nacked["at"] < 6.0  # without a time named it would be longer
    found = post.ended(overloaded)
    assert found.stage == "acked"
    assert stages(found).count("written") == 2
    outcomes(model)
    assert [request.outcome for request in model.main_requests] == ["failed", "failed", "answered"]


# ── the agent ends ──


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_agent_that_dies_in_a_turn_leaves_a_dead_letter_with_the_reason(
    cli: RealCli, start: Start, model: LoopbackModel, number: signal.Signals
) -> None:
    post = Post(keep(start, cli))
    with model.hold() as gate:
        message = post.put("too late")
        gate.wait_reached()
        post.reached(message, "submitted")
        os.kill(post.kept.child_pid, number)
        found = post.ended(message)
    assert found.stage == "dead"
    assert step(found, "ended")["end"] == "died"
    assert "before it was answered" in found.reason
    assert len(requests_with(model, "too late")) == 1


def test_turn_without_a_sign_of_life_times_out_and_the_next_one_is_delivered(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, cli, turn_timeout=15.0, draft_patience=1.0))
    with model.hold() as gate:
        message = post.put("no answer to this")
        gate.wait_reached()
        found = post.ended(message)
        assert found.stage == "dead"
        assert step(found, "ended")["end"] == "timeout"
        # Delivered is everything that is asked of it: on a busy machine its own turn may be too slow as well.
        post.reached(post.put("the next one"), "submitted")
        model.wait_for("the next one")
    assert prompts(model) == ["no answer to this", "the next one"]


# ── what looks like an end and is none ──


def test_waiting_for_a_permission_is_no_end_and_allowed_it_is_answered(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, cli, turn_timeout=8.0))
    message = post.put("RUNBASH touch asked-for; echo done")
    post.watcher.until("waiting_permission")
    post.watcher.settled("waiting_permission")
    # Longer than the session's own patience with a turn: that counts only while no one is asked.
    with pytest.raises(WaitTimeout):
        post.ended(message, 10.0)
    post.watcher.answer(b"1")
    found = post.ended(message)
    assert stages(found) == CHAIN
    assert found.answer is not None
    assert "tool_result" in found.answer["text"]


def test_stop_that_a_users_hook_blocks_is_not_the_end(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    go_on = hook(
        "Stop",
        "print(json.dumps({} if p['stop_hook_active'] else {'decision': 'block', 'reason': 'go on please'}))",
    )
    post = Post(keep(start, cli, *settings(go_on)))
    first = post.put("the first")
    second = post.put("the second")
    found = post.ended(first)
    assert stages(found) == CHAIN
    assert found.answer is not None
    assert found.answer["text"] == "REPLY#2 to: Stop hook feedback: go on please"
    assert stages(post.ended(second)) == CHAIN
    sent = [request.prompt for request in model.main_requests]
    feedback = "Stop hook feedback:\ngo on please"
    assert sent == ["the first", feedback, "the second", feedback]


def test_subagent_in_the_background_keeps_the_turn_open(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, cli, "--allowedTools", "Agent,Task"))
    call = {
        "name": "Agent",
        "input": {"description": "d", "prompt": "SLOW 3 sub", "subagent_type": "general-purpose"},
    }
    first = post.put(f"TOOL {json.dumps(call)}")
    second = post.put("only when all is done")
    assert stages(post.ended(first)) == CHAIN
    assert stages(post.ended(second)) == CHAIN
    sub = next(request for request in model.main_requests if request.said == "SLOW 3 sub")
    (last,) = requests_with(model, "only when all is done")
    assert sub.answered is not None
    assert sub.answered < last.received


def test_shell_in_the_background_keeps_the_turn_open_until_the_agent_heard_of_its_end(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, cli, "--allowedTools", "Bash"))
    command = "until [ -e stop ]; do python3 -c 'import time; time.sleep(0.1)'; done; echo finished"
    call = {"name": "Bash", "input": {"command": command, "description": "x", "run_in_background": True}}
    first = post.put_until(f"TOOL {json.dumps(call)}", "recorded")
    second = post.put("only when all is done")
    post.watcher.settled("idle")
    with pytest.raises(WaitTimeout):
        post.ended(first, 2.5)
    assert stages(post.trace(second)) == ["accepted"]
    (cli.project / "stop").touch()
    assert stages(post.ended(first)) == CHAIN
    assert stages(post.ended(second)) == CHAIN
    assert prompts(model)[-1] == "only when all is done"
    until(lambda: not post.client.describe()["delivery"]["in_flight"], "nothing in flight")


def test_message_with_work_in_its_background_keeps_its_answer_when_a_human_goes_on(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    """It waits for what may wake the agent; the human's turn, and its interrupt, are not its own."""
    post = Post(keep(start, cli, "--allowedTools", "Bash"))
    given = {"command": "tail -f /dev/null", "description": "x", "run_in_background": True}
    post.client.request("watch")
    message = post.put(f"TOOL {json.dumps({'name': 'Bash', 'input': given})}")
    assert event_named(post.client, "stopped", id=message)["background"]
    post.watcher.settled("idle")
    with Gate() as gate:
        model.next(Reply.of("the first words ", Hold(gate), "and the rest"))
        post.watcher.paste("a question of mine")
        gate.wait_reached()
        post.watcher.until("thinking")  # no line is complete yet, so that `streaming` may never be seen
        post.watcher.press(b"\x1b")
        post.watcher.until("interrupted")
        found = post.ended(message)
    assert stages(found) == CHAIN
    assert found.answer is not None
    assert found.answer["text"].startswith("REPLY#2 to: tool_result")
