"""The real Claude Code asleep: what a wake brings back, and what keeps it awake."""

from __future__ import annotations

from pathlib import Path

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support.keeper import Process, Start, until, until_equal
from support.messages import CHAIN, Post, phase, put_to_sleep, stages, step, why_awake
from support.real_sessions import keep, tool

pytestmark = pytest.mark.real


def command_line(post: Post) -> list[str]:
    return Path(f"/proc/{post.client.describe()['pid']}/cmdline").read_bytes().decode().split("\0")


def test_idle_agent_falls_asleep_and_a_message_wakes_it_with_conversation_and_model(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, cli, "--model", "haiku", sleep_after=1.0))
    agent = Process(post.kept.child_pid)
    first = post.send("the word is swordfish")
    post.watcher.until("asleep")
    assert agent.ended()
    agent.close()
    until_equal(lambda: phase(post), "asleep", "sleep")
    before = model.wait_for("the word is swordfish")

    found = post.send("which word was it?")
    assert stages(found) == CHAIN
    assert step(found, "written")["woken"] is True
    assert step(found, "submitted")["session_id"] == step(first, "submitted")["session_id"]
    request = model.wait_for("which word was it?")
    assert any("swordfish" in text for _, text in request.texts)
    assert request.model == before.model
    assert "haiku" in request.model
    # The start of an agent that is woken with a prompt is not reported; that of a new conversation is.
    before = post.client.describe()["conversation"]["session_id"]
    assert post.send("/clear", command=True).stage == "acked"
    assert post.client.describe()["conversation"]["session_id"] != before


def test_permission_mode_that_a_human_chose_is_there_after_the_wake(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, cli))
    post.watcher.settled("idle")
    post.send("hello")
    post.watcher.settled("idle")
    post.watcher.until_shows("manual mode on")
    for _ in range(2):
        post.watcher.press(b"\x1b[Z")
    post.watcher.until_shows("plan mode on")
    put_to_sleep(post)

    post.watcher.press(b"half a thought")  # a key wakes it
    until_equal(post.draft, "half a thought", "the draft")
    post.watcher.until_shows("plan mode on")
    words = command_line(post)
    assert words[words.index("--permission-mode") + 1] == "plan"
    post.watcher.press(b"\r")
    assert model.wait_for("half a thought").prompt == "half a thought"
    post.watcher.until("idle", source="hook")
    assert post.client.request("cleanliness")["permission_mode"] == "plan"


def test_shell_in_the_background_keeps_it_awake_until_it_has_ended(cli: RealCli, start: Start) -> None:
    post = Post(keep(start, cli, "--allowedTools", "Bash"))
    fifo = cli.project / "go"
    post.watcher.settled("idle")
    # By a human: a message would be in flight as long as the shell runs, for up to a minute.
    post.watcher.paste(tool("Bash", command=f"mkfifo {fifo}; cat {fifo}", run_in_background=True))
    until(lambda: "in the background" in why_awake(post.client), "the reason")
    until(fifo.exists, "the shell")
    fifo.write_text("done\n")
    put_to_sleep(post)


def test_model_that_was_changed_by_a_command_keeps_it_awake(cli: RealCli, start: Start) -> None:
    post = Post(keep(start, cli))
    post.watcher.settled("idle")
    post.send("/model haiku", command=True)
    post.send("hello")
    until(lambda: "/model" in why_awake(post.client), "the reason")
