"""A message whose call, or the answer to it, is lost on the way to codex or opencode."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from support.delivery import attempts
from support.lossy_server import Loss, LossyServer
from support.messages import CHAIN, Post, stages, step

Hold = Callable[[], AbstractContextManager[object]]


def lose_call(post: Post, proxy: LossyServer, lost: Loss, hold: Hold) -> str:
    """Send the second message, and wait for the end of its turn if the agent got it.

    `hold` holds the model's answer to it, from when it is called.
    """
    assert stages(post.send("the first")) == CHAIN
    post.watcher.settled("idle")
    proxy.lose(lost)
    with hold():
        message = post.put("the second")
        proxy.lost()
        if lost == "answer":
            post.watcher.until("thinking")
    if lost == "answer":
        post.watcher.until("idle")  # its events came
    reached = post.trace(message)
    assert stages(reached) == ["accepted", "written"], reached
    return message


def find_turn_of_lost(post: Post, message: str, lost: Loss) -> str:
    """Return the one turn of the message, which is called again only if the agent never got it."""
    found = post.ended(message)
    assert (found.stage, attempts(found)) == ("acked", [1] if lost == "answer" else [1, 2])
    ended = step(found, "ended")
    assert ended.get("recovered", False) is (lost == "answer")
    assert stages(post.send("the third")) == CHAIN
    return str(ended["prompt_id"])
