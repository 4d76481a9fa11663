"""A kept copilot: messages with receipts, states, permissions, interrupts, and what is refused."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from remuda.agents.copilot.screen import open_dialog, read_composer
from remuda.errors import RemudaError
from remuda.testing.loopback_model import LoopbackModel
from support.copilot import CopilotCli, MakeCopilot, keep_copilot, shell
from support.keeper import Start, until
from support.messages import CHAIN, Post, prompts, stages, step

pytestmark = pytest.mark.real


def _asked(post: Post) -> dict[str, Any]:
    found: list[dict[str, Any]] = until(lambda: post.client.request("asks")["asks"], "a request")
    return found[0]


def _draft(post: Post) -> str:
    return read_composer(post.lines()).text


def test_messages_receipt_chain_with_usage_and_exact_text(
    copilot: CopilotCli, start: Start, model: LoopbackModel
) -> None:
    post = keep_copilot(start, copilot)
    texts = ["hello copilot", "two\nlines\n" + "x\n" * 20 + "end", "tab\there é 😀 @nofile", "y" * 9000]
    for text in texts:
        ended = post.send(text)
        assert stages(ended) == CHAIN, ended
        assert step(ended, "ended")["end"] == "answered"
        assert ended.answer is not None
        assert ended.answer["text"].startswith("REPLY")
        assert ended.answer["usage"] == {
            "input_tokens": 12,
            "output_tokens": 7,
            "cache_read_input_tokens": 3,
            "cache_creation_input_tokens": 0,
        }
    assert prompts(model) == [text.replace("\t", "    ") for text in texts]
    assert post.client.describe()["degraded"] == []


def test_unsafe_prompts_refused_and_nothing_reaches_the_agent(
    copilot: CopilotCli, start: Start, model: LoopbackModel
) -> None:
    post = keep_copilot(start, copilot)
    mark = copilot.project / "ran"
    unsafe = [
        f"!touch {mark}",
        f"  \n!touch {mark}",
        f"\u200b!touch {mark}",
        f"x\x1b[201~!touch {mark}\r",
        "/clear",
        " /nosuch x",
        "quit",
        "z" * 29_000,
    ]
    for text in unsafe:
        ended = post.send(text)
        assert step(ended, "ended")["end"] == "refused", text[:30]
    assert stages(post.send("a word before !")) == CHAIN
    assert prompts(model) == ["a word before !"]
    assert not mark.exists()


def test_permission_allowed_and_denied_from_elsewhere_what_it_cannot_take_is_an_error(
    copilot: CopilotCli, start: Start
) -> None:
    post = keep_copilot(start, copilot, env={"REMUDA_COPILOT_ASK_SECONDS": "30"})
    sent = post.put(shell("touch allowed"))
    asked = _asked(post)
    assert (asked["tool"], asked["input"]) == ("bash", {"command": "touch allowed"})
    assert post.client.describe()["state"] == "waiting_permission"
    post.client.request("answer", id=asked["id"], behavior="allow")
    assert step(post.ended(sent), "ended")["end"] == "answered"
    assert (copilot.project / "allowed").exists()

    sent = post.put(shell("touch denied"))
    post.client.request("answer", id=_asked(post)["id"], behavior="deny", message="not now")
    ended = post.ended(sent)
    assert ended.answer is not None
    assert "not now" in ended.answer["text"]

    sent = post.put(shell("touch edited"))
    asked = _asked(post)
    with pytest.raises(RemudaError, match="edited input"):
        post.client.request("answer", id=asked["id"], behavior="allow", input={"command": "touch other"})
    with pytest.raises(RemudaError, match="for good"):
        post.client.request("answer", id=asked["id"], behavior="allow", always=True)
    post.client.request("answer", id=asked["id"], behavior="deny", interrupt=True)
    assert step(post.ended(sent), "ended")["end"] == "interrupted"
    assert {path.name for path in copilot.project.iterdir()} == {"allowed"}


def test_permission_unanswered_dialog_opens_and_no_prompt_is_typed_into_it(
    copilot: CopilotCli, start: Start, model: LoopbackModel
) -> None:
    post = keep_copilot(start, copilot, env={"REMUDA_COPILOT_ASK_SECONDS": "1"})
    sent = post.put(shell("touch byhand"))
    until(lambda: open_dialog(post.lines()) == "permission dialog", "the dialog")
    until(lambda: not post.client.request("asks")["asks"], "the end of the request")
    later = post.put("later")
    assert post.client.describe()["state"] == "waiting_permission"
    assert not (copilot.project / "byhand").exists()
    post.watcher.press(b"\r")
    assert step(post.ended(sent), "ended")["end"] == "answered"
    assert (copilot.project / "byhand").exists()
    assert stages(post.ended(later)) == CHAIN
    assert prompts(model)[-1] == "later"


def test_cancel_interrupts_turn_and_next_message_is_alone(
    copilot: CopilotCli, start: Start, model: LoopbackModel
) -> None:
    post = keep_copilot(start, copilot)
    sent = post.put("SLOW 30 words")
    post.reached(sent, "submitted")
    until(lambda: any("word3" in line for line in post.lines()), "its text")
    post.client.request("interrupt", id=sent)
    ended = post.ended(sent)
    assert step(ended, "ended")["end"] == "interrupted"
    assert "abort" in [record["type"] for record in copilot.events()]
    assert stages(post.send("after it")) == CHAIN
    assert prompts(model)[-1] == "after it"


def test_error_fails_turn_with_its_kind_and_state(copilot: CopilotCli, start: Start) -> None:
    post = keep_copilot(start, copilot)
    sent = post.put("err 400 nonsense")
    failed = post.reached(sent, "ended")
    assert step(failed, "ended")["end"] == "failed"
    assert step(failed, "ended")["failure"] == "invalid_request"
    assert post.client.describe()["state"] == "error"


def test_draft_is_stashed_for_a_message_and_comes_back(
    copilot: CopilotCli, start: Start, model: LoopbackModel
) -> None:
    post = keep_copilot(start, copilot, draft_patience=1.5)
    assert stages(post.send("first")) == CHAIN
    post.watcher.press(b"half a thought")
    until(lambda: _draft(post) == "half a thought", "the draft")
    assert stages(post.send("second")) == CHAIN
    until(lambda: _draft(post) == "half a thought", "the draft again")
    assert prompts(model) == ["first", "second"]


def test_rewind_dialog_no_prompt_is_typed_into_it(
    copilot: CopilotCli, start: Start, model: LoopbackModel
) -> None:
    post = keep_copilot(start, copilot)
    assert stages(post.send("keep this turn")) == CHAIN
    post.watcher.press(b"\x1b[27u\x1b[27u")
    until(lambda: open_dialog(post.lines()) == "rewind dialog", "the dialog")
    sent = post.put("not into the dialog")
    post.held("dialog")
    post.watcher.press(b"\x1b[27u")
    assert stages(post.ended(sent)) == CHAIN
    assert any("keep this turn" in text for _, text in model.main_requests[-1].texts)


def test_untrusted_folder_message_waits_and_trust_is_for_this_session_only(
    make_copilot: MakeCopilot, start: Start, model: LoopbackModel
) -> None:
    cli = make_copilot(trust=False)
    post = keep_copilot(start, cli)
    sent = post.put("hello")
    post.held("trusted")
    assert not model.main_requests
    post.watcher.press(b"\r")
    assert stages(post.ended(sent)) == CHAIN
    assert (
        not (cli.home / ".copilot" / "config.json").exists()
        or str(cli.project) not in (cli.home / ".copilot" / "config.json").read_text()
    )


def test_start_with_trust_and_prompt_answers_dialog_and_runs_it(
    make_copilot: MakeCopilot, start: Start, model: LoopbackModel
) -> None:
    post = keep_copilot(
        start, make_copilot(trust=False), trust=True, prompt="- first prompt", message_id="m1"
    )
    assert stages(post.ended("m1")) == CHAIN
    assert prompts(model) == ["- first prompt"]


def test_resume_after_death_keeps_the_conversation(
    copilot: CopilotCli, start: Start, model: LoopbackModel
) -> None:
    post = keep_copilot(start, copilot)
    assert stages(post.send("remember blue")) == CHAIN
    post.kept.keeper.signal(signal.SIGKILL)
    assert post.kept.keeper.ended()
    again = keep_copilot(start, copilot, resume=True)
    assert stages(again.send("which colour")) == CHAIN
    assert any("remember blue" in text for _, text in model.main_requests[-1].texts)
