"""A keeper that is killed between a call and its answer: the message is searched for before it is retried."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.delivery import answer, attempts
from support.keeper import Process, Start
from support.messages import Post, stages, step
from support.second_agent import Corral, installed


@pytest.fixture
def corral(start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Corral]:
    with installed(monkeypatch) as home:
        yield Corral(start, home, tmp_path, "mustang")


def kill_keeper(post: Post) -> None:
    """With SIGKILL. Its terminal is gone with it, and the kernel ends its server."""
    record = json.loads(post.kept.paths.record.read_text())
    others = [Process(record["companion_pid"]), Process(record["child_pid"])]
    post.kept.keeper.kill()
    others[1].signal(signal.SIGKILL)
    for process in others:
        process.gone()


def test_call_that_was_not_taken_is_called_again(corral: Corral) -> None:
    post = corral.start()
    corral.hold("before")
    message = post.put("hello")
    corral.holding()
    kill_keeper(post)
    assert corral.runs() == []
    corral.hold("")
    found = corral.start(resume=True).ended(message)
    assert (answer(found), attempts(found)) == ("MUSTANG#1 to: hello", [1, 2])
    assert corral.runs() == ["hello"]


def test_call_that_was_taken_and_answered_in_vain_is_not_called_again(corral: Corral) -> None:
    """The turn has ended when the keeper dies, which never got the answer to its call."""
    post = corral.start(on_orphan="retry")
    corral.hold("after")
    message = post.put("hello")
    corral.holding()
    post.watcher.until("idle")  # after the turn: its reports come, the answer to the call does not
    assert stages(post.trace(message)) == ["accepted", "written"]
    kill_keeper(post)
    corral.hold("")
    found = corral.start(resume=True, on_orphan="retry").ended(message)
    assert (answer(found), attempts(found)) == ("MUSTANG#1 to: hello", [1])
    assert step(found, "ended")["recovered"] is True
    assert corral.runs() == ["hello"]


@pytest.mark.parametrize(("on_orphan", "runs"), [("deadletter", 1), ("retry", 2)])
def test_turn_that_was_cut_is_tried_again_only_if_the_user_chose_so(
    corral: Corral, on_orphan: str, runs: int
) -> None:
    """Also without the answer to the call: the trail has the prompt, so it counts as submitted."""
    post = corral.start(on_orphan=on_orphan)
    corral.hold("after")
    message = post.put("WALK 1.5")
    corral.holding()
    assert stages(post.trace(message)) == ["accepted", "written"]
    kill_keeper(post)
    corral.hold("")
    found = corral.start(resume=True, on_orphan=on_orphan).ended(message)
    assert (corral.runs(), attempts(found)) == (["WALK 1.5"] * runs, list(range(1, runs + 1)))
    if on_orphan == "retry":
        assert answer(found) == "MUSTANG#2 to: WALK 1.5"
    else:
        assert (found.stage, found.reason) == ("dead", "its session died before it was answered")


def test_message_is_left_to_recovery_when_its_session_ends_before_the_answer(corral: Corral) -> None:
    post = corral.start()
    corral.hold("before")
    message = post.put("hello")
    corral.holding()
    post.client.request("kill")
    assert post.kept.keeper.ended()
    assert stages(post.trace(message)) == ["accepted", "written"]
    corral.hold("")
    found = corral.start(resume=True).ended(message)
    assert (answer(found), corral.runs()) == ("MUSTANG#1 to: hello", ["hello"])


def test_message_is_searched_for_in_the_conversation_that_it_was_handed_to(corral: Corral) -> None:
    """The next session starts a new conversation; the old one has the answer."""
    post = corral.start(on_orphan="retry")
    assert answer(post.send("first")) == "MUSTANG#1 to: first"
    corral.hold("after")
    message = post.put("hello")
    corral.holding()
    kill_keeper(post)
    corral.hold("")
    found = corral.start(on_orphan="retry").ended(message)
    assert (answer(found), attempts(found)) == ("MUSTANG#2 to: hello", [1])
    assert corral.runs() == ["first", "hello"]
