"""A kept copilot: messages with receipts, states, permissions, interrupts, and what is refused."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.agents.copilot.prompting import ESCAPE
from remuda.agents.copilot.screen import is_working, open_dialog, read_composer
from remuda.errors import RemudaError
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli.copilot import RealCopilot
from support import messages
from support.boss import KEPT, RunningBoss
from support.both_sides import is_too_late
from support.copilot import MakeCopilot, keep_copilot, shell
from support.keeper import Start, until, until_equal
from support.messages import CHAIN, Post, check_account_waits, prompts, stages, step
from support.real_sessions import tool
from support.watcher import TOOL_TURN

pytestmark = pytest.mark.real


@pytest.fixture
def boss(home: Path) -> Iterator[RunningBoss]:
    with RunningBoss(home, (KEPT,)) as one:
        yield one


def _asked(post: Post) -> dict[str, Any]:
    found: list[dict[str, Any]] = until(lambda: post.client.request("asks")["asks"], "a request")
    return found[0]


def _draft(post: Post) -> str:
    return read_composer(post.lines()).text


@pytest.mark.shows("the usage of a turn is known")
def test_messages_are_exact_unsafe_ones_refused_and_dialogs_left_alone(
    copilot: RealCopilot, start: Start, model: LoopbackModel
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
    sent = [text.replace("\t", "    ") for text in texts]
    assert prompts(model) == sent
    assert post.client.describe()["degraded"] == []
    _unsafe_prompts_are_refused(post, copilot)
    assert prompts(model) == sent
    _rewind_dialog_gets_no_prompt(post)
    assert any("hello copilot" in text for _, text in model.main_requests[-1].texts)
    failed = post.reached(post.put("err 400 nonsense"), "ended")
    assert step(failed, "ended")["end"] == "failed"
    assert step(failed, "ended")["failure"] == "invalid_request"
    assert post.client.describe()["state"] == "error"
    # It stays in the conversation, and the receipt says so.
    assert stages(post.send("after it")) == CHAIN
    assert any("err 400 nonsense" in text for _, text in model.main_requests[-1].texts)
    assert step(failed, "ended")["in_conversation"] is True


def _unsafe_prompts_are_refused(post: Post, copilot: RealCopilot) -> None:
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
        assert step(post.send(text), "ended")["end"] == "refused", text[:30]
    assert not mark.exists()


def _rewind_dialog_gets_no_prompt(post: Post) -> None:
    """Enter there would lose the last turns."""
    until(lambda: is_working(post.lines()) is False, "rest on the screen")
    post.watcher.press(ESCAPE * 2)
    until(lambda: open_dialog(post.lines()) == "rewind dialog", "the dialog")
    sent = post.put_held("not into the dialog", "dialog")
    post.watcher.press(ESCAPE)
    assert stages(post.ended(sent)) == CHAIN


@pytest.mark.shows("a permission request is decided from elsewhere")
@pytest.mark.shows("it is allowed with an edited input", refused=True)
def test_permission_from_elsewhere_cancel_and_draft(
    copilot: RealCopilot, start: Start, model: LoopbackModel
) -> None:
    post = keep_copilot(start, copilot, "--allow-tool=shell(echo:*)", draft_patience=1.5)
    post.watcher.settled("idle")
    post.watcher.forget()
    go = copilot.project / "go"
    os.mkfifo(go)
    command = "read line < go; touch allowed"
    sent = post.put(shell(command))
    asked = _asked(post)
    post.watcher.until("waiting_permission", source="hook")
    assert (asked["tool"], asked["input"]) == ("bash", {"command": command})
    assert post.client.describe()["state"] == "waiting_permission"
    # Its file is written up to 0.15 s later: what is shorter is over before it is seen.
    with model.hold() as gate:
        post.client.request("answer", id=asked["id"], behavior="allow")
        post.watcher.until("tool_use")
        go.write_text("on\n")
        gate.wait_reached()
        post.watcher.until("thinking")
    assert step(post.ended(sent), "ended")["end"] == "answered"
    post.watcher.until("idle", source="hook")
    # That a tool begins may be read after the hook that asks for permission.
    assert post.watcher.lasting_states() in (TOOL_TURN, [*TOOL_TURN[:2], *TOOL_TURN[3:]])
    go.unlink()

    # What its user has allowed by a flag waits for no one: copilot asks hooks about that too.
    assert stages(post.send(shell("echo by a rule"))) == CHAIN
    assert "by a rule" in str(model.main_requests[-1].said)

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

    sent = post.put("SLOW 60 words")
    until(lambda: any("word1" in line for line in post.lines()), "its text")
    post.client.request("interrupt", id=sent)
    interrupted = post.ended(sent)
    assert step(interrupted, "ended")["end"] == "interrupted"
    assert "abort" in [record["type"] for record in copilot.events()]

    until(lambda: _draft(post) == "" and is_working(post.lines()) is False, "an empty composer")
    post.watcher.press(b"half a thought")
    until(lambda: _draft(post) == "half a thought", "the draft")
    assert stages(post.send("with a draft")) == CHAIN
    until(lambda: _draft(post) == "half a thought", "the draft again")
    assert prompts(model)[-1] == "with a draft"
    assert any("SLOW 60 words" in text for _, text in model.main_requests[-1].texts)
    assert step(interrupted, "ended")["in_conversation"] is True


def test_permission_unanswered_dialog_opens_and_no_prompt_is_typed_into_it(
    copilot: RealCopilot, start: Start, model: LoopbackModel, boss: RunningBoss
) -> None:
    """Before that no dialog is open, and after it nothing but the terminal decides."""
    post = keep_copilot(start, copilot, env={"REMUDA_COPILOT_ASK_SECONDS": "1"})
    post.watcher.settled("idle")
    post.watcher.paste(shell("touch byhand"))  # by a user: a message in flight would hold back the next one
    until(lambda: open_dialog(post.lines()) == "permission dialog", "the dialog")
    until(lambda: not post.client.request("asks")["asks"], "the end of the request")
    (request,) = until(lambda: boss.client.get("approvals")["approvals"], "the request in the ledger")
    is_too_late(boss, request["id"])
    until_equal(lambda: [one["reason"] for one in boss.waiting()], ["permission"], "its place in the queue")
    later = post.put_held("later", "a dialog is open: permission dialog")
    assert stages(post.trace(later)) == ["accepted"]
    assert post.client.describe()["state"] == "waiting_permission"
    assert not (copilot.project / "byhand").exists()
    post.watcher.press(b"\r")
    assert stages(post.ended(later)) == CHAIN
    assert (copilot.project / "byhand").exists()
    assert prompts(model)[-1] == "later"
    until_equal(lambda: [one["reason"] for one in boss.waiting()], ["stopped"], "its answer in the queue")


def test_untrusted_folder_waits_for_a_word_and_a_dead_session_resumes(
    make_copilot: MakeCopilot, start: Start, model: LoopbackModel
) -> None:
    cli = make_copilot(trust=False)
    post = keep_copilot(start, cli)
    sent = post.put_held("remember blue", "trusted")
    assert not model.main_requests
    post.watcher.press(b"\r")
    assert stages(post.ended(sent)) == CHAIN
    post.kept.keeper.kill()
    config = cli.home / ".copilot" / "config.json"
    assert not config.exists() or str(cli.project) not in config.read_text()  # asked again, and answered
    # This setting does not keep our hooks from running.
    settings = cli.home / ".copilot" / "settings.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "disableAllHooks": True}))
    again = keep_copilot(start, cli, resume=True, trust=True, prompt="- which colour", message_id="m1")
    assert stages(again.ended("m1")) == CHAIN
    again.watcher.until("idle", source="hook")
    assert again.client.describe()["degraded"] == []
    assert prompts(model) == ["remember blue", "- which colour"]
    assert any("remember blue" in text for _, text in model.main_requests[-1].texts)


@pytest.mark.soak(only=True)
@pytest.mark.timeout(300)
@pytest.mark.shows("a rate limit gives the message back for later")
def test_rate_limit_gives_the_message_back(
    copilot: RealCopilot, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tries five times in about a minute before it says so."""
    monkeypatch.setattr(messages, "PATIENCE", 150.0)
    post = keep_copilot(start, copilot)
    other = keep_copilot(start, copilot, name="other")
    found = post.reached(post.put("err 429 1 limited"), "nacked")
    assert step(found, "ended")["failure"] == "rate_limited"
    assert post.client.describe()["state"] == "limited"
    check_account_waits(post, found.id, other)


def test_question_gets_no_prompt(copilot: RealCopilot, start: Start, model: LoopbackModel) -> None:
    """Enter there would answer with the first option."""
    post = keep_copilot(start, copilot)
    schema = {"type": "object", "properties": {"colour": {"type": "string", "enum": ["Red", "Blue"]}}}
    asking = post.put(tool("ask_user", message="Which colour?", requestedSchema=schema))
    until(lambda: open_dialog(post.lines()) == "question", "the question")
    waiting = post.put("not an answer")
    post.watcher.until("waiting_answer")
    assert stages(post.trace(waiting)) == ["accepted"]
    assert open_dialog(post.lines()) == "question"
    press_until_closed(post, ESCAPE)
    post.ended(asking)
    assert stages(post.ended(waiting)) == CHAIN
    assert prompts(model)[-1] == "not an answer"
    assert not [text for request in model.main_requests for _, text in request.texts if '"Red"}' in text]


def press_until_closed(post: Post, key: bytes) -> None:
    """Close a dialog as a user does: again, if it is still there a moment later."""
    pressed = 0.0

    def is_closed() -> bool:
        nonlocal pressed
        if open_dialog(post.lines()) is None:
            return True
        if time.monotonic() > pressed + 2.0:
            post.watcher.press(key)
            pressed = time.monotonic()
        return False

    until(is_closed, "the end of the dialog")


def test_prompt_of_a_user_and_ours_never_mix(
    copilot: RealCopilot, start: Start, model: LoopbackModel
) -> None:
    """Prompts that are typed during a turn become one request."""
    post = keep_copilot(start, copilot)
    assert stages(post.send("first")) == CHAIN
    with model.hold() as gate:
        post.watcher.paste("typed by a user")
        gate.wait_reached()
        ours = post.put_held("ours", "the session is")
        assert stages(post.trace(ours)) == ["accepted"]
    assert stages(post.ended(ours)) == CHAIN
    assert prompts(model) == ["first", "typed by a user", "ours"]
