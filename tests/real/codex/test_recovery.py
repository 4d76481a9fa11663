"""A keeper, a server or a terminal of codex is killed with a message under way."""

from __future__ import annotations

import json

import pytest

from remuda.errors import SpawnFailed
from remuda.proctree import descendants
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli.codex import RealCodex
from support.codex import keep, kill, stored_turns_with, turns_with
from support.keeper import Start, until
from support.lossy_server import Loss, LossyServer
from support.lost_calls import find_turn_of_lost, lose_call
from support.messages import CHAIN, prompts, stages, step

pytestmark = pytest.mark.real


def test_server_killed_in_a_turn_runs_nothing_twice_and_goes_on(
    codex: RealCodex, start: Start, model: LoopbackModel
) -> None:
    post = keep(start, codex)
    assert stages(post.send("the first")) == CHAIN
    with model.hold() as gate:
        message = post.put("held")
        gate.wait_reached()
        post.reached(message, "recorded")
        kill(post, "server")
        found = post.ended(message)
    assert found.stage == "dead"
    assert "the agent's server died" in step(found, "dead")["reason"]
    assert stages(post.send("the second")) == CHAIN
    assert prompts(model) == ["the first", "held", "the second"]
    assert len(turns_with(model, "held")) == 1
    record = json.loads(post.kept.paths.record.read_text())
    assert record["companion_pid"] in descendants(post.kept.keeper_pid)  # the new one: `kill` finds it
    post.watcher.until_shows("the second")  # the terminal found the new server


@pytest.mark.parametrize("policy", [pytest.param("deadletter", marks=pytest.mark.soak(only=True)), "retry"])
def test_keeper_killed_in_a_turn_and_resumed_follows_the_policy(
    codex: RealCodex, start: Start, model: LoopbackModel, policy: str
) -> None:
    post = keep(start, codex, "-m", "other-model")
    assert stages(post.send("the first")) == CHAIN
    before = post.client.describe()["conversation"]["session_id"]
    with model.hold() as gate:
        message = post.put("held")
        gate.wait_reached()
        post.reached(message, "recorded")
        kill(post, "keeper", "terminal")
    again = keep(start, codex, "-m", "other-model", resume=True, on_orphan=policy)
    found = again.ended(message)
    assert found.stage == ("acked" if policy == "retry" else "dead")
    assert stages(again.send("after")) == CHAIN
    assert again.client.describe()["conversation"]["session_id"] == before
    assert prompts(model) == ["the first", "held", *(["held"] if policy == "retry" else []), "after"]
    assert len(turns_with(model, "held")) == (2 if policy == "retry" else 1)
    last = model.main_requests[-1]
    assert ("user", "the first") in last.texts
    assert last.model == "other-model"


def test_message_to_a_session_whose_terminal_was_killed_runs_after_resume(
    codex: RealCodex, start: Start, model: LoopbackModel
) -> None:
    post = keep(start, codex)
    until(lambda: post.client.describe()["state"] == "idle", "its composer")
    kill(post, "terminal")
    assert post.kept.keeper.ended()
    message = post.put("for later")
    again = keep(start, codex, resume=True)  # a conversation without a turn is not kept by codex: a new one
    assert stages(again.ended(message)) == CHAIN
    assert prompts(model) == ["for later"]
    # A conversation that is gone is not replaced without a word.
    kill(again, "terminal")
    assert again.kept.keeper.ended()
    (rollout,) = codex.rollouts()
    rollout.unlink()
    with pytest.raises(SpawnFailed, match="codex has no conversation"):
        keep(start, codex, resume=True)


_SOAK = pytest.mark.soak(only=True)


@pytest.mark.parametrize("victim", ["keeper", "server"])
@pytest.mark.parametrize("lost", ["answer", pytest.param("call", marks=_SOAK)])
def test_call_without_an_answer_is_searched_for_before_it_is_called_again(
    codex: RealCodex, start: Start, model: LoopbackModel, victim: str, lost: Loss
) -> None:
    """Its turn has ended when the keeper or the server dies; or there was none."""
    proxy = LossyServer(codex.binary, codex.folder)
    post = keep(start, codex, program=proxy.program, on_orphan="retry")
    message = lose_call(post, proxy, lost, model.hold)
    kill(post, *(("keeper", "terminal") if victim == "keeper" else ("server",)))
    if victim == "keeper":
        post = keep(start, codex, program=proxy.program, on_orphan="retry", resume=True)
    turn = find_turn_of_lost(post, message, lost)
    assert stored_turns_with(post, message) == [turn]
    assert prompts(model) == ["the first", "the second", "the third"]
