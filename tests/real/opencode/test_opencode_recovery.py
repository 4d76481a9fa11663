"""A keeper or a server of opencode is killed between a call and its answer."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from remuda.agents.opencode.messages import info_of, text_of
from remuda.agents.opencode.server import request_now
from support.delivery import attempts
from support.keeper import Start
from support.lossy_server import LossyServer
from support.messages import CHAIN, Post, stages, step
from support.opencode import Opencode, kill, server_address

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]
_SOAK = pytest.mark.soak(only=True)


def _turns(post: Post, prompt: str) -> tuple[list[str], list[str]]:
    """Return the ids of the messages with this prompt, and of those that were answered."""
    base, secret, conversation = server_address(post)
    _, found = request_now(base, secret, "GET", f"/session/{conversation}/message")
    messages: list[dict[str, Any]] = found
    ids = [str(info_of(one)["id"]) for one in messages if text_of(one) == prompt]
    return ids, [one for one in ids if any(info_of(other).get("parentID") == one for other in messages)]


@pytest.mark.parametrize("victim", [pytest.param("keeper", marks=_SOAK), "server"])
@pytest.mark.parametrize("lost", ["answer", pytest.param("call", marks=_SOAK)])
def test_call_without_an_answer_is_searched_for_before_it_is_called_again(
    opencode: Opencode, start: Start, victim: str, lost: Literal["call", "answer"]
) -> None:
    """Its turn has ended when the keeper or the server dies; or there was none."""
    proxy = LossyServer(opencode.binary, opencode.folder)
    given: dict[str, Any] = {"program": proxy.program, "on_orphan": "retry"}
    post = opencode.start(start, **given)
    assert stages(post.send("the first")) == CHAIN
    post.watcher.settled("idle")
    proxy.lose(lost)
    with opencode.model.hold(lambda request: request.prompt == "the second"):
        message = post.put("the second")
        proxy.lost()
        if lost == "answer":
            post.watcher.until("thinking")
    if lost == "answer":
        post.watcher.until("idle")  # its events came
    assert stages(post.trace(message)) == ["accepted", "written"]
    kill(post, victim)
    if victim == "keeper":
        post = opencode.start(start, resume=True, **given)
    found = post.ended(message)
    assert (found.stage, attempts(found)) == ("acked", [1] if lost == "answer" else [1, 2])
    turn = step(found, "ended")["prompt_id"]
    assert _turns(post, "the second") == ([turn], [turn])
    assert step(found, "ended").get("recovered", False) is (lost == "answer")
    assert stages(post.send("the third")) == CHAIN
    assert opencode.prompts() == ["the first", "the second", "the third"]
