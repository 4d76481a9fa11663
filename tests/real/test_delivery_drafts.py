"""A human at the keys of a session that messages are delivered to: neither gets into the other."""

from __future__ import annotations

import pytest

from benches import keep
from keeping import Start, until
from posting import CHAIN, Post, prompts, stages
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli

pytestmark = pytest.mark.real


def test_draft_is_waited_for_then_laid_aside_and_comes_back_behind_the_message(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, cli, draft_patience=2.0))
    post.watcher.settled("idle")
    post.watcher.press(b"half a thought")
    until(lambda: post.draft() == "half a thought", "the draft in the composer")
    message = post.put("meanwhile")
    post.held("a draft is in the composer")
    assert stages(post.ended(message)) == CHAIN
    until(lambda: post.draft() == "half a thought", "the draft back in the composer")
    assert [request.prompt for request in model.main_requests] == ["meanwhile"]
    post.watcher.press(b" and the rest\r")
    model.wait_for("half a thought and the rest")
    assert prompts(model) == ["meanwhile", "half a thought and the rest"]


def test_draft_of_many_lines_is_never_sent_and_never_lost(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, cli, draft_patience=1.0))
    post.watcher.settled("idle")
    post.watcher.press(b"\x1b[200~first line\n\n  third line\x1b[201~")
    until(lambda: "third line" in post.draft(), "the draft in the composer")
    before = post.draft()
    for text in ("one", "two"):
        assert stages(post.send(text)) == CHAIN
        until(lambda: post.draft() == before, "the draft back in the composer")
    assert [request.prompt for request in model.main_requests] == ["one", "two"]


def test_message_waits_while_somebody_types_and_what_they_send_is_theirs_alone(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, cli))
    post.watcher.settled("idle")
    post.watcher.press(b"typed by ")
    message = post.put("not before they are done")
    for word in (b"a ", b"human ", b"hand"):
        post.watcher.press(word)
    post.watcher.press(b"\r")
    assert stages(post.ended(message)) == CHAIN
    assert prompts(model) == ["typed by a human hand", "not before they are done"]


def test_keys_at_the_moment_of_hand_over_stay_with_their_human(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    """They come before, while or after the message is typed: it waits for them, or they for it."""
    post = Post(keep(start, cli, draft_patience=1.0))
    post.watcher.settled("idle")
    sent = [f"message {number}" for number in range(4)]
    for text in sent:
        message = post.put(text)
        post.reached(message, "written")
        post.watcher.press(b"my own words")
        assert post.ended(message).stage == "acked"
        until(lambda: post.draft() == "my own words", "the keys in the composer")
        post.watcher.press(b"\x15")  # Ctrl+U takes the line away
        until(lambda: post.draft() == "", "an empty composer")
    assert [request.prompt for request in model.main_requests] == sent
