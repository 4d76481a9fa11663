"""A keeper or an agent is killed with a message under way: the transcript decides what becomes of it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from remuda.testing.scripted_agent.probe import whole_records
from support.keeper import Process, Start, until
from support.messages import CHAIN, Post, prompts, requests_with, stages, step
from support.real_sessions import keep

pytestmark = pytest.mark.real

Again = Callable[..., Post]


@pytest.fixture
def again(cli: RealCli, start: Start) -> Again:
    """The session, started or started again where it was."""

    def one(**spec: Any) -> Post:
        return Post(keep(start, cli, **spec))

    return one


def kill_keeper(post: Post) -> None:
    """Outright; its terminal goes with it, and the agent with that."""
    post.kept.keeper.kill()


def test_keeper_killed_before_the_agent_took_the_prompt_delivers_it_on_the_second_attempt(
    again: Again, model: LoopbackModel
) -> None:
    post = again()
    assert stages(post.send("the first")) == CHAIN
    post.watcher.settled("idle")
    agent = Process(post.kept.child_pid)
    agent.signal(signal.SIGSTOP)  # it reads nothing of what is typed from here on
    message = post.put_until("typed and never read", "written")
    kill_keeper(post)
    agent.kill()
    agent.close()
    found = again(resume=True).ended(message)
    assert found.stage == "acked"
    assert stages(found).count("written") == 2
    assert "before it was submitted" in step(found, "nacked")["reason"]
    assert prompts(model) == ["the first", "typed and never read"]


@pytest.mark.parametrize("policy", ["deadletter", "retry", "drop"])
def test_keeper_killed_after_the_prompt_was_submitted_follows_the_policy(
    again: Again, model: LoopbackModel, policy: str
) -> None:
    post = again(on_orphan=policy)
    with model.hold() as gate:
        message = post.put("was it answered?")
        gate.wait_reached()
        post.reached(message, "submitted")
        kill_keeper(post)
        post = again(on_orphan=policy, resume=True)
        found = post.ended(message) if policy != "retry" else post.reached(message, "nacked")
    assert step(found, "ended")["end"] == "died"
    assert "before it was answered" in step(found, "nacked" if policy == "retry" else found.stage)["reason"]
    if policy == "retry":
        found = post.ended(message)
        assert found.stage == "acked"
        assert stages(found).count("written") == 2
        assert len(requests_with(model, "was it answered?")) == 2
    else:
        assert found.stage == ("dead" if policy == "deadletter" else "dropped")
        assert stages(post.send("the next one")) == CHAIN
        assert len(requests_with(model, "was it answered?")) == 1
    assert len(list(post.inbox.dead_letters())) == (1 if policy == "deadletter" else 0)


@pytest.mark.versions
def test_keeper_killed_between_the_answer_and_its_receipt_finds_it_in_the_transcript(
    again: Again, model: LoopbackModel
) -> None:
    post = again()
    with model.hold() as gate:
        message = post.put("the word is swordfish")
        gate.wait_reached()
        post.reached(message, "recorded")
        transcript = Path(post.client.describe()["conversation"]["transcript_path"])
        post.kept.keeper.signal(signal.SIGSTOP)  # it hears nothing of the answer
    until(lambda: answered(transcript), "the answer in the transcript")
    kill_keeper(post)
    assert stages(post.trace(message))[-1] == "recorded"
    post = again(resume=True)
    found = post.ended(message)
    assert found.stage == "acked"
    ended = step(found, "ended")
    assert ended["recovered"] is True
    assert ended["usage"]["output_tokens"] > 0
    assert "degraded" not in ended
    assert found.answer is not None
    assert found.answer["text"] == "REPLY#1 to: the word is swordfish"
    assert stages(post.send("which word was it?")) == CHAIN
    assert any("swordfish" in text for _, text in model.main_requests[-1].texts)
    assert prompts(model) == ["the word is swordfish", "which word was it?"]


def answered(transcript: Path) -> bool:
    records = [record for record in whole_records(transcript) if record.get("type") == "assistant"]
    return any(record["message"].get("stop_reason") == "end_turn" for record in records)


def test_messages_put_while_the_session_is_dead_are_delivered_when_it_is_back(
    again: Again, model: LoopbackModel
) -> None:
    post = again()
    assert stages(post.send("before")) == CHAIN
    post.client.request("kill")
    assert post.kept.keeper.ended()
    messages = [post.put("while it was dead"), post.put("and one more")]
    assert [stages(post.trace(message)) for message in messages] == [["accepted"]] * 2
    post = again(resume=True)
    for message in messages:
        assert stages(post.ended(message)) == CHAIN
    assert prompts(model) == ["before", "while it was dead", "and one more"]
    assert any("before" in text for _, text in model.main_requests[-1].texts)


def test_session_whose_agent_died_before_its_first_message_was_recorded_comes_back(
    again: Again, model: LoopbackModel
) -> None:
    post = again()
    assert stages(post.send("before")) == CHAIN
    transcript = Path(post.client.describe()["conversation"]["transcript_path"])
    post.client.request("kill")
    assert post.kept.keeper.ended()
    lines = transcript.read_bytes().splitlines(keepends=True)
    first = next(n for n, line in enumerate(lines) if b'"type":"user"' in line)
    transcript.write_bytes(b"".join(lines[:first]))  # the CLI refuses to resume this
    assert stages(again(resume=True).send("after")) == CHAIN
    assert prompts(model) == ["before", "after"]
