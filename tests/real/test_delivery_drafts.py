"""A human at the keys of a session that messages are delivered to: neither gets into the other."""

from __future__ import annotations

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support.keeper import Start, until, until_equal
from support.messages import CHAIN, Post, prompts, stages
from support.real_sessions import keep

pytestmark = pytest.mark.real


def test_draft_is_waited_for_then_laid_aside_and_comes_back_behind_the_message(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, cli, draft_patience=8.0))
    post.watcher.settled("idle")
    post.watcher.press(b"half a thought")
    until_equal(post.draft, "half a thought", "the draft in the composer")
    message = post.put_held("meanwhile", "a draft is in the composer")
    assert stages(post.ended(message)) == CHAIN
    until_equal(post.draft, "half a thought", "the draft back in the composer")
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
        until_equal(post.draft, before, "the draft back in the composer")
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
        message = post.put_until(text, "written")
        post.watcher.press(b"my own words")
        assert post.ended(message).stage == "acked"
        until_equal(post.draft, "my own words", "the keys in the composer")
        post.watcher.press(b"\x15")  # Ctrl+U takes the line away
        until_equal(post.draft, "", "an empty composer")
    assert [request.prompt for request in model.main_requests] == sent


def shows(post: Post, text: str) -> bool:
    return any(text in line for line in post.lines())


def leave_agents_view(post: Post) -> None:
    """As a human would: it may say that the session is not there yet, and wants to be asked again."""
    early = "Still starting"
    while shows(post, "describe a task"):
        post.watcher.press(b"\x1b")
        until(lambda: shows(post, early) or not shows(post, "describe a task"), "an answer to Esc")
        if shows(post, early):
            type_task(post, "again")


def type_task(post: Post, text: str) -> None:
    """Into the box of the agents view, and away again."""
    post.watcher.press(text.encode())
    until(lambda: shows(post, f"❯ {text}"), "the keys in the box")
    post.watcher.press(b"\x15")
    until(lambda: shows(post, "describe a task"), "an empty box")


def test_agents_view_is_no_composer_nothing_is_pressed_there_and_the_message_comes_behind_it(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    """It has a box that looks like one. Ctrl+S would order its list, and a prompt begin another session."""
    post = Post(keep(start, cli, draft_patience=0.1))
    post.watcher.settled("idle")
    post.watcher.press(b"\x1b[D")
    until(lambda: shows(post, "describe a task"), "the agents view")
    message = post.put_held("not as a task", "the screen shows no composer")
    type_task(post, "a task of my own")
    post.held("the screen shows no composer")
    assert any(line.startswith("Needs input") for line in post.lines()), "the list is ordered as it was"
    leave_agents_view(post)
    assert stages(post.ended(message)) == CHAIN
    assert prompts(model) == ["not as a task"]
