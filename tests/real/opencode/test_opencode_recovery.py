"""A keeper or a server of opencode is killed between a call and its answer."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from remuda.agents.opencode.messages import info_of, text_of
from remuda.agents.opencode.server import request_now
from support.keeper import Start
from support.lossy_server import Loss, LossyServer
from support.lost_calls import find_turn_of_lost, lose_call
from support.messages import Post
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
    opencode: Opencode, start: Start, victim: str, lost: Loss
) -> None:
    """Its turn has ended when the keeper or the server dies; or there was none."""
    proxy = LossyServer(opencode.binary, opencode.folder)
    given: dict[str, Any] = {"program": proxy.program, "on_orphan": "retry"}
    post = opencode.start(start, **given)
    hold = partial(opencode.model.hold, lambda request: request.prompt == "the second")
    message = lose_call(post, proxy, lost, hold)
    kill(post, victim)
    if victim == "keeper":
        post = opencode.start(start, resume=True, **given)
    turn = find_turn_of_lost(post, message, lost)
    assert _turns(post, "the second") == ([turn], [turn])
    assert opencode.prompts() == ["the first", "the second", "the third"]
