"""The real opencode in a session: receipts, states, interrupts, permissions, and what is not safe.

A start takes some seconds, so that a test shows much on one session.
"""

from __future__ import annotations

import re
import signal
import time
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from socket import socket
from typing import Any

import pytest

from remuda.agents.opencode.messages import make_message_id
from remuda.agents.opencode.server import request_now
from remuda.errors import InvalidOptions
from remuda.testing.script import ToolResult
from support.budgets import show_pause
from support.delivery import answer, attempts
from support.keeper import Start, event_named, until
from support.messages import CHAIN, Post, check_account_waits, stages, step
from support.opencode import PATIENCE, QUESTION, Opencode, bash, screen, server_address, server_of
from support.watcher import TOOL_TURN

pytestmark = pytest.mark.real


@pytest.mark.shows("the usage of a turn is known")
@pytest.mark.shows("a rate limit gives the message back for later")
def test_message_chain_draft_human_turn_interrupt_and_errors(opencode: Opencode, start: Start) -> None:
    post = opencode.start(start, draft_patience=1.0)
    post.watcher.until("idle")
    text = "hello\n  and\tmore /help !ls @x \x1b[201~ "
    found = post.send(text)
    assert stages(found) == CHAIN
    assert answer(found).startswith("REPLY#")
    assert opencode.prompts() == [text]
    assert step(found, "written")["transport"] == "call"
    assert step(found, "submitted")["prompt_id"] == step(found, "ended")["prompt_id"]
    assert step(found, "ended")["usage"]["output_tokens"] == 7
    assert "degraded" not in step(found, "ended")
    until(lambda: "hello" in screen(post), "the turn in the terminal")

    # A draft stays, and a turn of a human and ours do not mix.
    post.watcher.press(b"half a thought")
    until(lambda: "half a thought" in screen(post), "the draft")
    assert answer(post.send("with a draft")).endswith("to: with a draft")
    until(lambda: "┃  half a thought" in screen(post), "the draft again")
    post.watcher.press(b"\x15SLOW 1 human\r")
    opencode.model.wait_for(lambda request: request.prompt == "SLOW 1 human", PATIENCE)
    assert answer(post.send("after the human")).endswith("to: after the human")
    assert opencode.prompts()[1:] == ["with a draft", "SLOW 1 human", "after the human"]

    # An interrupt on request, and the next message.
    message = post.put_until("SLOW 60 stop me", "recorded")
    opencode.model.wait_for("SLOW 60 stop me", PATIENCE)
    post.client.request("interrupt", id=message)
    found = post.ended(message)
    assert (step(found, "ended")["end"], found.reason) == ("interrupted", "interrupted on request")
    # Hazard 1: after a turn that a user ended, and after one that failed, the next prompt comes at once.
    # One that opencode stored and did not run would be deleted after 15 s, and sent a second time.
    message, waiting = post.put("SLOW 60 escaped"), post.put("right after Esc")
    opencode.model.wait_for("SLOW 60 escaped", PATIENCE)
    until(lambda: "esc interrupt" in screen(post), "its work on the screen")
    post.watcher.press(b"\x1b")
    until(lambda: "esc again" in screen(post), "the question for a second key")
    post.watcher.press(b"\x1b")
    assert step(post.ended(message), "ended")["end"] == "interrupted"
    at_once = post.ended(waiting)
    assert (answer(at_once).endswith("to: right after Esc"), attempts(at_once)) == (True, [1])
    first, second = post.put("err 400 broken"), post.put("right after it")
    failed = post.ended(first)
    assert (step(failed, "ended")["end"], step(failed, "ended")["failure"]) == ("failed", "invalid_request")
    assert failed.reason == "broken"
    at_once = post.ended(second)
    assert (answer(at_once).endswith("to: right after it"), attempts(at_once)) == (True, [1])
    # What was not answered stays in the conversation, and the receipts say so.
    last = {text for _, text in opencode.model.main_requests[-1].texts}
    assert {"SLOW 60 stop me", "err 400 broken"} <= last
    assert all(step(one, "ended")["in_conversation"] for one in (found, failed))
    _is_given_back(post, "err 429 90 limited", "rate_limited")
    post.watcher.until("limited")
    assert post.kept.complaints() == []


@pytest.mark.soak(only=True)
def test_limit_holds_other_sessions_of_the_account(opencode: Opencode, start: Start) -> None:
    post, other = opencode.start(start), opencode.start(start, "other")
    other.watcher.settled("idle")
    message = post.put_until("err 429 900 limited", "nacked")
    check_account_waits(post, message, other)


def _is_given_back(post: Post, prompt: str, failure: str) -> None:
    """Hazard 5: opencode would try for long. The message is given back and tried later."""
    found = post.reached(post.put(prompt), "nacked")
    assert step(found, "ended")["failure"] == failure


@pytest.mark.shows("a permission request is decided from elsewhere")
@pytest.mark.shows("it is allowed with an edited input", refused=True)
@pytest.mark.shows("a question is answered from elsewhere")
def test_permissions_and_questions_are_answered_from_both_sides(opencode: Opencode, start: Start) -> None:
    post = opencode.start(start)
    post.client.request("watch")
    post.watcher.settled("idle")
    post.watcher.forget()

    message = post.put(bash("echo allowed > a"))
    ask = event_named(post.client, "ask", tool="bash")
    post.watcher.until("waiting_permission", source="hook")
    assert ask["input"]["command"] == "echo allowed > a"
    until(lambda: "Permission required" in screen(post), "the dialog")
    with pytest.raises(InvalidOptions, match="opencode cannot run an edited input"):
        post.client.request("answer", id=ask["id"], behavior="allow", input={"command": "echo other > a"})
    post.client.request("answer", id=ask["id"], behavior="allow")
    assert "tool_result" in answer(post.ended(message))
    post.watcher.until("idle", source="hook")
    assert post.watcher.lasting_states() == TOOL_TURN
    assert (opencode.project / "a").read_text() == "allowed\n"
    until(lambda: "Permission required" not in screen(post), "a closed dialog")

    message = post.put(bash("echo denied > b"))
    ask = event_named(post.client, "ask", tool="bash")
    post.client.request("answer", id=ask["id"], behavior="deny", message="not that one")
    assert "rejected permission" in answer(post.ended(message))
    assert not (opencode.project / "b").exists()

    # At the terminal: the first row allows once. A message waits meanwhile.
    message = post.put(bash("echo typed > c"))
    ask = event_named(post.client, "ask", tool="bash")
    until(lambda: "Permission required" in screen(post), "the dialog")
    waiting = post.put("not into the dialog")
    post.watcher.press(b"\r")
    assert event_named(post.client, "ask_ended")["id"] == ask["id"]
    assert "tool_result" in answer(post.ended(message))
    assert answer(post.ended(waiting)).endswith("to: not into the dialog")
    assert (opencode.project / "c").read_text() == "typed\n"

    message = post.put(QUESTION)
    ask = event_named(post.client, "ask", reason="question")
    post.watcher.until("waiting_answer")
    until(lambda: "enter submit  esc dismiss" in screen(post), "the dialog")
    waiting = post.put("not an answer")
    answers = {"Which color?": "Blue"}
    post.client.request("answer", id=ask["id"], behavior="allow", input={**ask["input"], "answers": answers})
    results = [one.said.text for one in opencode.model.main_requests if isinstance(one.said, ToolResult)]
    assert post.ended(message).stage == "acked"
    results = [one.said.text for one in opencode.model.main_requests if isinstance(one.said, ToolResult)]
    assert "Blue" in results[-1]
    assert answer(post.ended(waiting)).endswith("to: not an answer")
    _is_given_back(post, "err 529 90 overloaded", "overloaded")
    assert post.kept.complaints() == []


def test_server_that_dies_in_a_turn_is_started_again(opencode: Opencode, start: Start) -> None:
    # Hazard 7: the first prompt is there before the server is.
    post = opencode.start(start, prompt="one", message_id="m1")
    assert answer(post.ended("m1")).endswith("to: one")
    message = post.put_until("SLOW 60 cut", "recorded")
    opencode.model.wait_for("SLOW 60 cut", PATIENCE)
    server = server_of(post)
    server.signal(signal.SIGKILL)
    found = post.ended(message)
    assert step(found, "ended")["end"] == "interrupted"
    server.close()
    found = post.send("two")
    assert (answer(found).endswith("to: two"), attempts(found)) == (True, [1])
    assert opencode.prompts() == ["one", "SLOW 60 cut", "two"]
    _is_given_back(post, "err 500 90 broken", "api_error")
    # What its terminal draws then is up to opencode: on a busy machine it takes more than half a minute.


@pytest.mark.soak(only=True)
@pytest.mark.timeout(600)
def test_plugin_without_a_network_delays_the_start(opencode: Opencode, start: Start) -> None:
    """Hazard 8: it tries to install a package first, for a minute or two, and answers nothing meanwhile."""
    plugin = opencode.home / ".config" / "opencode" / "plugins" / "none.js"
    plugin.parent.mkdir()
    plugin.write_text("export const None = async () => ({})\n")
    post = opencode.start(start)
    assert answer(post.send("hello")).endswith("to: hello")
    (log,) = (opencode.home / ".local" / "share" / "opencode" / "log").glob("*.log")
    before, failed = re.findall(
        r"timestamp=(\S+)", log.read_text().partition("dependency install failed")[0]
    )[-2:]
    # As long as the server was waited for once, which was too short.
    assert datetime.fromisoformat(failed) - datetime.fromisoformat(before) > timedelta(seconds=30)


def test_same_id_twice_adds_text_and_runs_nothing(opencode: Opencode, start: Start) -> None:
    """Why each attempt has an id of its own: a second call with the same one is taken, and never run."""
    with socket() as other:
        taken = ""
        with suppress(OSError):  # a server of another test has it, and may end before ours starts
            other.bind(("127.0.0.1", 4096))
            taken = ":4096"
        post = opencode.start(start)  # hazard 7: every server wants that port
    assert answer(post.send("one")).endswith("to: one")
    base, secret, conversation = server_address(post)
    assert not taken or not base.endswith(taken)
    body: dict[str, Any] = {
        "messageID": make_message_id("m", time.time()),
        "parts": [{"type": "text", "text": "twice"}],
    }
    for _ in range(2):
        status, _ = request_now(base, secret, "POST", f"/session/{conversation}/prompt_async", body)
        assert status == 204
        until(lambda: "twice" in opencode.prompts(), "its request")
        until(lambda: post.client.describe()["state"] == "idle", "its end")
    # In another conversation too: the words arrive in this one.
    _, made = request_now(base, secret, "POST", "/session", {})
    body["parts"] = [{"type": "text", "text": "of another conversation"}]
    assert request_now(base, secret, "POST", f"/session/{made['id']}/prompt_async", body)[0] == 204
    assert answer(post.send("after")).endswith("to: after")
    assert opencode.prompts() == ["one", "twice", "after"]
    texts = [text for _, text in opencode.model.main_requests[-1].texts]
    assert (texts.count("twice"), texts.count("of another conversation")) == (2, 1)


@pytest.mark.soak(only=True)
def test_opencode_over_its_budget_is_paused_until_a_human_allows_more(
    opencode: Opencode, start: Start, home: Path
) -> None:
    show_pause(opencode.start(start), home)
