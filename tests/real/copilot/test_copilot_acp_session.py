"""Copilot's ACP mode as a session: turns, permissions, cancel and resume, without copilot's own terminal."""

from __future__ import annotations

from typing import Any

import pytest

from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli.copilot import RealCopilot
from support.acp_agent import draft, shows
from support.copilot import keep_copilot, shell
from support.keeper import Start, until
from support.messages import CHAIN, Post, prompts, stages, step

pytestmark = pytest.mark.real


def _keep(start: Start, copilot: RealCopilot, **more: Any) -> Post:
    post = keep_copilot(start, copilot, "--acp", "--no-auto-update", agent="acp", **more)
    until(lambda: draft(post) is not None, "the row for lines")
    return post


def _asked(post: Post) -> dict[str, Any]:
    found: list[dict[str, Any]] = until(lambda: post.client.request("asks")["asks"], "a request")
    return found[0]


def test_turns_permissions_cancel_and_resume(
    copilot: RealCopilot, start: Start, model: LoopbackModel
) -> None:
    post = _keep(start, copilot)
    ended = post.send("hello copilot")
    assert stages(ended) == CHAIN, ended
    assert ended.answer is not None
    assert ended.answer["text"].startswith("REPLY")
    assert ended.answer["usage"]["output_tokens"] == 7

    sent = post.put(shell("touch allowed"))
    asked = _asked(post)
    assert (asked["tool"], asked["input"]["command"]) == ("execute", "touch allowed")
    assert [one["kind"] for one in asked["suggestions"]] == ["allow_once", "allow_always", "reject_once"]
    assert post.client.describe()["state"] == "waiting_permission"
    post.client.request("answer", id=asked["id"], behavior="allow")
    assert step(post.ended(sent), "ended")["end"] == "answered"

    sent = post.put(shell("touch denied"))
    _asked(post)
    shows(post, "3  ")
    post.watcher.press(b"3\r")
    post.ended(sent)
    assert {path.name for path in copilot.project.iterdir()} == {"allowed"}

    # Hazard 5: an error of its service is an answer, as far as ACP says.
    failed = post.send("err 400 boom")
    assert failed.answer is not None
    assert failed.answer["text"].startswith("Error: 400")
    assert "may report an error of its service" in step(failed, "ended")["degraded"][0]
    assert "degraded" not in step(ended, "ended")

    sent = post.put_until("SLOW 60 words", "submitted")
    post.client.request("interrupt", id=sent)
    assert step(post.ended(sent), "ended")["end"] == "interrupted"

    post.watcher.press(b"typed by hand\r")
    until(lambda: "typed by hand" in prompts(model), "the prompt at the model")
    post.watcher.until("idle")
    post.client.request("kill")
    assert post.kept.keeper.ended()

    again = _keep(start, copilot, resume=True)
    shows(again, "hello copilot")
    assert stages(again.send("once more")) == CHAIN
    assert any("hello copilot" in text for _, text in model.main_requests[-1].texts)
