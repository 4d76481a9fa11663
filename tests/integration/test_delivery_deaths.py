"""Ends of a delivery that are no answer, and deaths: of the agent, of its keeper, of its hooks."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from remuda.inbox.journal import Inbox
from remuda.paths import SessionPaths
from remuda.testing.scripted_agent.probe import whole_records
from support.delivery import Bench, answer, attempts, busy, idle, in_flight, kill_keeper, pause
from support.keeper import Start, until
from support.messages import CHAIN, Post, stages, step

ESC = b"\x1b"


@pytest.fixture
def bench(start: Start, tmp_path: Path) -> Bench:
    return Bench(start, tmp_path)


# ── ends that are no answer ──


def test_rate_limit_delays_the_message_and_every_session_of_the_account(bench: Bench, home: Path) -> None:
    first, second = idle(bench.start()), idle(bench.start(name="e"))
    limited = first.put("err 429")
    nacked = first.reached(limited, "nacked")
    assert stages(nacked) == ["accepted", "written", "submitted", "recorded", "ended", "nacked"]
    assert step(nacked, "ended")["failure"] == "rate_limited"
    assert step(nacked, "nacked")["due"] > step(nacked, "ended")["at"] + 5
    waiting = second.put_held("me too", "the account has reached its rate limit")
    [account] = (home / "accounts").iterdir()
    account.unlink()
    assert stages(second.ended(waiting)) == CHAIN


CONTINUES = "Your claude.ai usage limit has reset. Continue the task you were working on."


@pytest.fixture
def limited(bench: Bench, home: Path) -> Post:
    """A session that waits for the end of a limit, to hand over again what met it."""
    post = idle(bench.start())
    post.reached(post.put("err 429"), "nacked")
    [account] = (home / "accounts").iterdir()
    account.write_text(json.dumps({"until": time.time() + 3600, "reason": "for long"}))
    return post


def test_agent_does_not_go_on_by_itself_with_a_message_that_waits_for_the_end_of_a_limit(
    bench: Bench, limited: Post
) -> None:
    limited.watcher.paste(CONTINUES)
    limited.watcher.until_shows("It does not run twice.")
    assert bench.prompts(limited) == ["err 429"]


def test_agent_goes_on_by_itself_with_what_a_human_asked_for_before_a_limit(limited: Post) -> None:
    limited.watcher.paste("mine")
    limited.watcher.until_shows("to: mine")
    limited.watcher.paste(CONTINUES)
    limited.watcher.until_shows(f"to: {CONTINUES}")


@pytest.mark.parametrize(
    ("prompt", "stage", "failure"),
    [
        ("err 400", "dead", "invalid_request"),
        ("err 401", "dead", "authentication"),
        ("err 529", "nacked", "overloaded"),
    ],
)
def test_error_of_the_service_decides_what_becomes_of_the_message(
    bench: Bench, prompt: str, stage: str, failure: str
) -> None:
    post = idle(bench.start())
    found = post.reached(post.put(prompt), stage)
    assert step(found, "ended")["failure"] == failure
    assert step(found, stage)["reason"].startswith(("API Error", "Please run /login"))


def test_interrupt_by_a_human_is_a_dead_letter(bench: Bench) -> None:
    post = idle(bench.start())
    message = post.put("SLOW 20")
    post.watcher.until("streaming")
    post.watcher.press(ESC)
    found = post.ended(message)
    assert found.stage == "dead"
    assert step(found, "ended")["end"] == "interrupted"
    assert stages(post.send("next")) == CHAIN


def test_turn_without_a_sign_of_life_is_interrupted_and_the_next_goes_on(bench: Bench) -> None:
    post = idle(bench.start(turn_timeout=10.0, draft_patience=0.5))
    found = post.send("THINK 60")
    assert found.stage == "dead"
    assert step(found, "ended")["end"] == "timeout"
    assert stages(post.send("next")) == CHAIN


def test_tool_that_runs_is_a_sign_of_life(bench: Bench) -> None:
    post = idle(bench.start(turn_timeout=8.0))
    assert stages(post.send("RUNBASH sleep 11; echo done")) == CHAIN


# ── deaths ──


@pytest.mark.parametrize(
    ("on_orphan", "stage"), [("deadletter", "dead"), ("drop", "dropped"), ("retry", "nacked")]
)
def test_agent_that_is_killed_leaves_its_message_to_the_policy(
    bench: Bench, on_orphan: str, stage: str
) -> None:
    post = idle(bench.start(on_orphan=on_orphan))
    message = post.put("SLOW 60")
    waiting = post.put("behind it")
    post.reached(message, "recorded")
    os.kill(post.kept.child_pid, signal.SIGKILL)
    assert post.kept.keeper.ended()
    found = post.trace(message)
    assert found.stage == stage
    assert step(found, "ended")["end"] == "died"
    assert stages(post.trace(waiting)) == ["accepted"]


def test_session_that_ended_keeps_what_waits_for_the_next(bench: Bench) -> None:
    post = busy(bench.start())
    waiting = [post.put("one"), post.put("two")]
    post.client.request("kill", grace=5.0)
    assert post.kept.keeper.ended()
    assert [entry.id for entry in post.inbox.waiting()] == waiting
    resumed = bench.start(resume=True)
    assert [stages(resumed.ended(one)) for one in waiting] == [CHAIN, CHAIN]


def test_keeper_killed_after_the_answer_recovers_it(bench: Bench) -> None:
    post = idle(bench.start(env={"MOCK_DELAY_STOP": "60000"}))
    message = post.put_until("hello", "recorded")
    until(lambda: transcript_has(post, "REPLY#1"), "the answer in the transcript")
    kill_keeper(post)
    resumed = bench.start(resume=True)
    found = resumed.ended(message)
    assert found.stage == "acked"
    ended = step(found, "ended")
    assert ended["recovered"] is True
    assert ended["usage"]["output_tokens"] > 0
    assert answer(found) == "REPLY#1 to: hello"
    assert bench.typed().count(b"hello") == 1


def transcript_has(post: Post, text: str) -> bool:
    path = Path(post.client.describe()["conversation"]["transcript_path"])
    return any(one.get("type") == "assistant" and text in str(one) for one in whole_records(path))


def test_keeper_killed_after_the_answer_to_an_argument_recovers_it(bench: Bench, home: Path) -> None:
    message = Inbox(SessionPaths(home / "sessions", "d").inbox).put("hello").id
    post = bench.start(env={"MOCK_DELAY_STOP": "60000"})
    assert step(post.reached(message, "recorded"), "written")["transport"] == "argument"
    until(lambda: transcript_has(post, "REPLY#1"), "the answer in the transcript")
    kill_keeper(post)
    found = bench.start(resume=True).ended(message)
    assert found.stage == "acked"
    assert answer(found) == "REPLY#1 to: hello"


@pytest.mark.parametrize(
    ("on_orphan", "stage"), [("deadletter", "dead"), ("drop", "dropped"), ("retry", "acked")]
)
def test_keeper_killed_after_the_submission_leaves_it_to_the_policy(
    bench: Bench, on_orphan: str, stage: str
) -> None:
    post = idle(bench.start(env={"MOCK_DELAY_STOP": "0"}))
    message = post.put_until("SLOW 60", "recorded")
    kill_keeper(post)
    resumed = bench.start(resume=True, on_orphan=on_orphan, env={"MOCK_RESPONSE": "done"})
    found = resumed.ended(message)
    assert found.stage == stage
    assert stages(found).count("written") == (2 if on_orphan == "retry" else 1)
    assert step(found, stage)["attempt"] == len(attempts(found))


def stuck_in_flight(post: Post, text: str) -> str:
    """A message that was handed to an agent which stands still."""
    pause(post)
    message = post.put(text)
    until(lambda: in_flight(post), "the message in flight")
    return message


HANDED_OVER_AGAIN = ["accepted", "written", "ended", "nacked", *CHAIN[1:]]


def test_keeper_killed_before_the_submission_hands_it_over_again(bench: Bench) -> None:
    post = bench.start()
    message = stuck_in_flight(post, "hello")
    kill_keeper(post)
    found = bench.start(resume=True).ended(message)
    assert stages(found) == HANDED_OVER_AGAIN
    assert attempts(found) == list(range(1, len(attempts(found)) + 1))


def test_keeper_killed_does_not_take_the_answer_to_the_same_words_for_this_one(bench: Bench) -> None:
    post = idle(bench.start())
    assert stages(post.send("the same")) == CHAIN
    message = stuck_in_flight(post, "the same")
    kill_keeper(post)
    found = bench.start(resume=True).ended(message)
    assert stages(found) == HANDED_OVER_AGAIN


def test_agent_killed_does_not_take_the_answer_to_the_same_words_for_this_one(bench: Bench) -> None:
    post = idle(bench.start())
    assert stages(post.send("the same")) == CHAIN
    message = stuck_in_flight(post, "the same")
    os.kill(post.kept.child_pid, signal.SIGKILL)
    assert post.kept.keeper.ended()
    assert stages(post.trace(message)) == ["accepted", "written", "ended", "nacked"]


# ── without hooks ──


def without_hooks(bench: Bench, **more: Any) -> Post:
    settings = bench.folder / "claude" / "settings.json"
    settings.write_text(json.dumps({"disableAllHooks": True}))
    post = idle(bench.start(**more))
    assert post.client.describe()["degraded"]
    return post


def test_session_without_hooks_delivers_by_its_transcript(bench: Bench) -> None:
    post = without_hooks(bench)
    for number in (1, 2):
        found = post.send(f"number {number}")
        assert stages(found) == CHAIN
        assert step(found, "submitted")["by"] == "transcript"
        assert answer(found) == f"REPLY#{number} to: number {number}"


def test_session_without_hooks_recovers_an_answer_by_its_transcript(bench: Bench) -> None:
    post = without_hooks(bench, env={"MOCK_DELAY_STOP": "60000"})
    message = post.put("hello")
    path = Path(step(post.reached(message, "recorded"), "submitted")["transcript_path"])
    until(lambda: "REPLY#1" in path.read_text(), "the answer in the transcript")
    kill_keeper(post)
    found = bench.start(resume=True).ended(message)
    assert (found.stage, answer(found)) == ("acked", "REPLY#1 to: hello")
