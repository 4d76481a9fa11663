"""The real opencode in a session: receipts, states, interrupts, permissions, and what is not safe."""

from __future__ import annotations

import signal

import pytest

from support.delivery import answer, attempts
from support.keeper import Start, event_named, until
from support.messages import CHAIN, stages, step
from support.opencode import QUESTION, Opencode, bash, screen, server_of

pytestmark = pytest.mark.real


def test_message_goes_through_the_whole_chain(opencode: Opencode, start: Start) -> None:
    post = opencode.start(start)
    found = post.send("hello\n  and\tmore ")
    assert stages(found) == CHAIN
    assert answer(found).startswith("REPLY#")
    assert opencode.prompts() == ["hello\n  and\tmore "]
    assert step(found, "written")["transport"] == "call"
    assert step(found, "submitted")["prompt_id"] == step(found, "ended")["prompt_id"]
    assert step(found, "ended")["usage"]["output_tokens"] == 7
    assert "degraded" not in step(found, "ended")
    until(lambda: "hello" in screen(post), "the turn in the terminal")
    assert post.watcher.states()[-1] == "idle"
