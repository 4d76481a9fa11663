"""`remuda cancel` on the real Claude Code: what waits never reaches the model, what runs is stopped."""

from __future__ import annotations

import subprocess

import pytest

from remuda.testing.loopback_model import Gate, LoopbackModel
from remuda.testing.real_cli import RealCli
from remuda.testing.script import Hold, Reply
from support.commands import COMMAND
from support.heimdall_client import PATIENCE
from support.keeper import Start
from support.messages import CHAIN, Post, prompts, stages, step
from support.real_sessions import keep

pytestmark = pytest.mark.real


def cancel(post: Post, what: str) -> str:
    argv = [*COMMAND, "cancel", what, "--socket-dir", str(post.kept.folder)]
    done = subprocess.run(argv, capture_output=True, timeout=3 * PATIENCE, check=True, text=True)
    return done.stdout


def test_cancel_takes_back_what_waits_and_interrupts_what_runs(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, cli))
    with Gate() as gate:
        model.next(Reply.of("the first words ", Hold(gate), "and the rest"))
        first = post.put("tell me all")
        gate.wait_reached()
        post.reached(first, "recorded")
        waits = post.put("never mind")
        assert cancel(post, waits[:-4]) == f"{waits}: cancelled before the agent saw it\n"
        assert cancel(post, first) == f"{first}: turn interrupted\n"
    found = post.trace(first)
    assert (found.stage, step(found, "ended")["end"], found.reason) == (
        "dead",
        "interrupted",
        "interrupted on request",
    )
    with Gate() as gate:  # before the first word the CLI puts the prompt back into the composer
        model.next(Reply.of(Hold(gate), "too late"))
        silent = post.put("say something")
        gate.wait_reached()
        post.reached(silent, "submitted")
        assert cancel(post, "c") == f"{silent}: turn interrupted\n"
    assert stages(post.send("hello")) == CHAIN
    assert post.draft() == ""
    assert prompts(model) == ["tell me all", "say something", "hello"]


def test_cancel_interrupts_a_turn_that_a_human_began(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    # If the words are not shown yet, the CLI puts the prompt back, and that is a draft of the human's.
    post = Post(keep(start, cli, draft_patience=1.0))
    post.watcher.settled("idle")
    with Gate() as gate:
        model.next(Reply.of("the first words ", Hold(gate), "and the rest"))
        post.watcher.paste("typed by hand")
        gate.wait_reached()
        post.watcher.until("thinking")
        assert cancel(post, "c") == "turn interrupted\n"
    assert stages(post.send("hello")) == CHAIN
    assert prompts(model) == ["typed by hand", "hello"]
