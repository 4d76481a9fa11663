"""The hazards of Claude Code's terminal, each met by a message on its way into a kept session."""

from __future__ import annotations

import base64
import json
import os
import signal
from collections.abc import Callable

import pytest

from remuda.agents.claude.screen import open_dialog, read_trust_choice
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import VERSION, RealCli
from support.keeper import Process, Start, until, until_equal
from support.messages import CHAIN, Post, choose_trust, prompts, requests_with, stages, step
from support.real_sessions import QUESTION, MakeCli, keep
from support.watcher import LOSES_ENTER

pytestmark = pytest.mark.real

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)


@pytest.fixture
def post(cli: RealCli, start: Start) -> Post:
    return Post(keep(start, cli, draft_patience=2.0))


# ── 0: a lost Enter ──


@pytest.mark.versions
def test_enter_that_is_lost_is_pressed_again_at_once(post: Post, model: LoopbackModel) -> None:
    """2.1.197 and 2.1.240 lose the Enter of the first paste. How soon: tests/unit/turns/test_following.py."""
    assert [stages(post.send(text)) for text in ("the first", "the second")] == [CHAIN] * 2
    again = [line for line in post.kept.log().splitlines() if "Enter had no effect" in line]
    assert again or VERSION not in LOSES_ENTER
    assert not any("timeout" in line for line in again)
    assert prompts(model) == ["the first", "the second"]


# ── 1: dialogs ──


@pytest.mark.versions
def test_message_waits_at_a_permission_dialog_and_does_not_answer_it(
    post: Post, cli: RealCli, model: LoopbackModel
) -> None:
    asking = post.put("RUNBASH touch asked-for; echo done")
    post.watcher.until("waiting_permission")
    post.watcher.settled("waiting_permission")
    waiting = post.put("behind the dialog")
    until(lambda: open_dialog(post.lines()), "the dialog on the screen")
    post.watcher.answer(b"1")
    assert stages(post.ended(asking)) == CHAIN
    assert stages(post.ended(waiting)) == CHAIN
    assert (cli.project / "asked-for").exists()
    assert prompts(model) == ["RUNBASH touch asked-for; echo done", "behind the dialog"]


@pytest.mark.versions
def test_message_waits_at_a_dialog_of_a_human_turn(post: Post, cli: RealCli, model: LoopbackModel) -> None:
    post.watcher.settled("idle")
    post.watcher.paste("RUNBASH touch asked-for")
    post.watcher.until("waiting_permission")
    waiting = post.put_held("behind the dialog", "a dialog is open")
    until(lambda: open_dialog(post.lines()), "the dialog on the screen")
    assert stages(post.trace(waiting)) == ["accepted"]
    assert not (cli.project / "asked-for").exists()
    post.watcher.answer(b"\x1b")
    assert stages(post.ended(waiting)) == CHAIN
    assert not (cli.project / "asked-for").exists()
    assert prompts(model) == ["RUNBASH touch asked-for", "behind the dialog"]


@pytest.mark.versions
def test_message_is_not_taken_for_the_answer_to_a_question(post: Post, model: LoopbackModel) -> None:
    post.watcher.settled("idle")
    post.watcher.paste(f"TOOL {json.dumps(QUESTION)}")
    post.watcher.until("waiting_answer")
    waiting = post.put_held("no colour at all", "a dialog is open")
    assert stages(post.trace(waiting)) == ["accepted"]
    post.watcher.answer(b"2")
    assert stages(post.ended(waiting)) == CHAIN
    results = [str(request.said) for request in model.main_requests if not isinstance(request.said, str)]
    assert "Blue" in results[0]
    assert "no colour" not in results[0]


@pytest.mark.versions
def test_command_that_the_agent_does_not_know_is_refused_in_its_own_words(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, cli))
    refused = post.send("/no-such-command", command=True)
    assert step(refused, "ended")["end"] == "refused"
    assert "/no-such-command" in refused.reason
    assert not model.main_requests


# ── 1 and 4: the trust dialog ──


@pytest.mark.versions
def test_trust_dialog_stays_open_and_the_message_is_held_until_a_human_says_yes(
    make_cli: MakeCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, make_cli(trust=False)))
    waiting = post.put_held("may I come in", "--trust")
    assert read_trust_choice(post.lines()) is not None
    assert stages(post.trace(waiting)) == ["accepted"]
    assert not model.main_requests
    choose_trust(post)
    assert stages(post.ended(waiting)) == CHAIN
    assert prompts(model) == ["may I come in"]


@pytest.mark.versions
def test_dialog_that_speaks_of_trust_is_not_answered_where_the_user_allowed_trust(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    script = cli.project / "trust.sh"
    script.write_text("#!/bin/sh\ntouch PWNED\n")
    script.chmod(0o755)
    post = Post(keep(start, cli, trust=True))
    post.watcher.settled("idle")
    post.watcher.paste("RUNBASH ./trust.sh 'No, exit'")
    post.watcher.settled("waiting_permission")
    until(lambda: open_dialog(post.lines()) is not None, "the dialog is drawn")
    waiting = post.put_held("behind the dialog", "a dialog is open")
    assert post.watcher.settled("waiting_permission")
    assert not (cli.project / "PWNED").exists()
    post.watcher.answer(b"\x1b")
    assert stages(post.ended(waiting)) == CHAIN
    assert not (cli.project / "PWNED").exists()


@pytest.mark.versions
def test_trust_dialog_is_answered_by_its_rows_where_the_user_allowed_it(
    make_cli: MakeCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, make_cli(trust=False), trust=True))
    assert stages(post.send("straight in")) == CHAIN
    assert prompts(model) == ["straight in"]


# ── 2 and 3: a prompt is data ──

ESCAPING = "harmless\x1b[201~\x15!touch PWNED\r"
COMMANDS = [
    "/cost",
    " /clear",
    "\u00a0/clear",
    "\u3000\u2003/exit",
    "\u2028/exit",
    "\n\t/clear",
    "\u2060/clear",
    "\ufeff/compact now",
    "\u200b/exit",
    " \u00ad/exit",
    "\ufe0f/cost",
    "/no-such-command x",
]


@pytest.mark.versions
def test_text_that_would_break_out_of_a_paste_is_refused_and_nothing_runs(
    post: Post, cli: RealCli, model: LoopbackModel
) -> None:
    for prompt in (ESCAPING, "a\x9b201~b", "bell\x07", "rubbed\x7fout"):
        refused = post.send(prompt)
        assert stages(refused) == ["accepted", "written", "ended", "dead"]
        assert "control character" in refused.reason
    assert stages(post.send("still here")) == CHAIN
    assert prompts(model) == ["still here"]
    assert not (cli.project / "PWNED").exists()


@pytest.mark.versions
def test_leading_bang_arrives_as_text_and_runs_nothing(
    post: Post, cli: RealCli, model: LoopbackModel
) -> None:
    texts = [
        "!touch PWNED",
        "\u2060!touch PWNED 2",
        "!",
        "\ufe0f\u00ad!touch PWNED 3",
        "\u200b\n!touch PWNED 4",
    ]
    for text in texts:
        found = post.send(text)
        assert stages(found) == CHAIN
        taken = step(found, "submitted")
        assert taken["normalised"] is True
        assert taken["reported"] == model.main_requests[-1].prompt
        assert "!" in taken["reported"]
    assert len(prompts(model)) == len(texts)
    assert not (cli.project / "PWNED").exists()


@pytest.mark.versions
def test_slash_commands_are_refused_also_after_invisible_characters(post: Post, model: LoopbackModel) -> None:
    for prompt in COMMANDS:
        refused = post.send(prompt)
        assert stages(refused) == ["accepted", "written", "ended", "dead"], prompt
        assert "would run the agent's own command" in refused.reason
    assert stages(post.send("still here")) == CHAIN
    assert prompts(model) == ["still here"]


@pytest.mark.versions
def test_words_that_would_end_the_agent_are_refused_and_those_like_them_are_prompts(
    post: Post, model: LoopbackModel
) -> None:
    for word in ("exit", " quit\n", ":q", ":wq!"):
        refused = post.send(word)
        assert (refused.stage, step(refused, "ended")["end"]) == ("dead", "refused")
    assert [stages(post.send(word)) for word in ("EXIT", "exit now")] == [CHAIN, CHAIN]
    assert prompts(model) == ["EXIT", "exit now"]


@pytest.mark.versions
def test_word_that_we_refuse_does_end_the_agent(post: Post, model: LoopbackModel) -> None:
    post.watcher.settled("idle")
    post.watcher.paste("\u00a0exit ")
    post.watcher.until("dead")
    assert prompts(model) == []


@pytest.mark.versions
def test_path_of_a_picture_arrives_as_text(post: Post, cli: RealCli, model: LoopbackModel) -> None:
    picture = cli.project / "a picture.png"
    picture.write_bytes(PICTURE)
    sent = [f"{picture}", f"compare\n{picture}\n'{picture}' {picture}\nwith each other", f"{picture}\n" * 30]
    assert [stages(post.send(prompt)) for prompt in sent] == [CHAIN] * 3
    assert prompts(model) == [prompt.strip() for prompt in sent]


@pytest.mark.versions
def test_command_of_a_stranger_is_not_run(post: Post, model: LoopbackModel) -> None:
    assert stages(post.send("before")) == CHAIN
    conversation = post.client.describe()["conversation"]["session_id"]
    with (post.folder / "inbox.jsonl").open("a") as inbox:
        inbox.write('{"remuda": 1, "id": "mail-1", "prompt": "/clear", "command": true}\n')
    assert stages(post.send("after")) == CHAIN
    assert post.client.describe()["conversation"]["session_id"] == conversation
    assert ["refused" in str(one["reason"]) for one in post.inbox.dead_letters()] == [True]
    assert prompts(model) == ["before", "after"]


@pytest.mark.versions
def test_command_that_is_meant_as_one_runs_and_is_acknowledged(post: Post, model: LoopbackModel) -> None:
    assert stages(post.send("the word is swordfish")) == CHAIN
    first = post.client.describe()["conversation"]["session_id"]
    cleared = post.send("/clear", command=True)
    assert cleared.stage == "acked"
    assert step(cleared, "ended")["command"] is True
    assert post.client.describe()["conversation"]["session_id"] != first
    assert stages(post.send("which word was it?")) == CHAIN
    assert not any("swordfish" in text for _, text in model.main_requests[-1].texts)
    for _ in range(2):
        post.run("/compact", command=True)
        assert stages(post.send("after the summary")) == CHAIN


@pytest.mark.versions
def test_command_that_opens_a_dialog_has_run_and_leaves_it_to_a_human(
    post: Post, model: LoopbackModel
) -> None:
    found = post.send("/cost", command=True)
    assert found.stage == "acked"
    assert step(found, "submitted")["by"] == "dialog"
    waiting = post.put_held("behind it", "a dialog is open")
    assert stages(post.trace(waiting)) == ["accepted"]
    post.watcher.press(b"\x1b")
    assert stages(post.ended(waiting)) == CHAIN
    assert prompts(model) == ["behind it"]


@pytest.mark.versions
def test_mention_attaches_a_file_as_for_print_and_literal_refuses(
    post: Post, cli: RealCli, model: LoopbackModel
) -> None:
    (cli.project / "note.txt").write_text("swordfish")
    assert stages(post.send("read @note.txt please")) == CHAIN
    attached = [text for _, text in model.main_requests[-1].texts]
    cli.run_print("read @note.txt please")
    printed = [text for _, text in model.main_requests[-1].texts]
    for texts in (attached, printed):
        assert any("swordfish" in text for text in texts)
    refused = post.send("read @note.txt please", literal=True)
    assert refused.stage == "dead"
    assert "attach a file" in refused.reason
    assert stages(post.send("mail me@example.org, 5 @ 3", literal=True)) == CHAIN
    assert model.main_requests[-1].prompt == "mail me@example.org, 5 @ 3"


# ── 6: an interrupt fires no hook ──


@pytest.mark.versions
def test_interrupted_before_the_first_byte_is_a_dead_letter_and_does_not_mix_with_the_next(
    post: Post, model: LoopbackModel
) -> None:
    with model.hold() as gate:
        stopped = post.put("never mind this one")
        gate.wait_reached()
        post.reached(stopped, "submitted")
        post.watcher.press(b"\x1b")
        assert_interrupted(post, stopped)
    until_equal(post.draft, "never mind this one", "the prompt back in the composer")
    assert stages(post.send("the next one")) == CHAIN
    assert prompts(model) == ["never mind this one", "the next one"]
    assert not any("never mind" in text for _, text in model.main_requests[-1].texts)
    until_equal(post.draft, "never mind this one", "the prompt in the composer as it was")


@pytest.mark.versions
def test_interrupted_while_it_answers_is_a_dead_letter_and_the_next_one_is_delivered(
    post: Post, model: LoopbackModel
) -> None:
    stopped = post.put("SLOW 40 never mind")
    post.watcher.until("streaming")
    post.watcher.press(b"\x1b")
    assert_interrupted(post, stopped)
    assert stages(post.send("the next one")) == CHAIN
    assert prompts(model) == ["SLOW 40 never mind", "the next one"]


@pytest.mark.versions
def test_interrupted_in_a_tool_is_a_dead_letter_and_the_next_one_is_delivered(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, cli, "--allowedTools", "Bash"))
    stopped = post.put("RUNBASH touch begun; python3 -c 'import time; time.sleep(300)'")
    until((cli.project / "begun").exists, "the tool's first work")
    post.watcher.press(b"\x1b")
    assert_interrupted(post, stopped)
    assert stages(post.send("the next one")) == CHAIN
    assert prompts(model)[-1] == "the next one"
    assert len(requests_with(model, "RUNBASH")) == 1


def assert_interrupted(post: Post, message: str) -> None:
    found = post.ended(message)
    assert found.stage == "dead"
    assert step(found, "ended")["end"] == "interrupted"
    assert "interrupted by a human" in found.reason
    assert stages(found).count("written") == 1
    (letter,) = post.inbox.dead_letters()
    assert "interrupted" in letter["reason"]


# ── 7 and 11: a killed agent leaves its tool behind ──


@pytest.mark.versions
def test_agent_killed_in_a_tool_leaves_no_orphan_and_the_message_is_decided(
    cli: RealCli, start: Start, model: LoopbackModel
) -> None:
    post = Post(keep(start, cli, "--allowedTools", "Bash"))
    number = post.put(
        "RUNBASH echo $$ > begun.new; mv begun.new begun; python3 -c 'import time; time.sleep(4245)'"
    )
    begun = cli.project / "begun"
    until(begun.exists, "the tool's first work")
    tool = Process(int(begun.read_text()))
    os.kill(post.kept.child_pid, signal.SIGKILL)
    found = post.ended(number)
    assert found.stage == "dead"
    assert step(found, "ended")["end"] == "died"
    assert "before it was answered" in found.reason
    tool.gone()
    assert post.kept.keeper.ended()
    assert len(requests_with(model, "RUNBASH")) == 1


# ── 8 and 9: the keeper queues, not the agent ──


@pytest.mark.versions
def test_twenty_messages_are_drained_in_order_each_exactly_once(post: Post, model: LoopbackModel) -> None:
    sent = [f"number {number} of twenty" for number in range(20)]
    messages = [post.put(text) for text in sent]
    for message in messages:
        assert stages(post.ended(message, 60.0)) == CHAIN
    assert [request.prompt for request in model.main_requests] == sent


def test_messages_and_human_prompts_during_a_turn_are_separate_requests(
    post: Post, model: LoopbackModel
) -> None:
    with model.hold() as gate:
        first = post.put("the first")
        gate.wait_reached()
        messages = [first, post.put("the second"), post.put("the third")]
        post.watcher.paste("a human in between")  # the CLI itself queues this one
        gate.open()
    for message in messages:
        assert stages(post.ended(message)) == CHAIN
    sent = [request.prompt for request in model.main_requests]
    assert sent == ["the first", "a human in between", "the second", "the third"]


@pytest.mark.versions
def test_message_waits_for_the_turn_of_a_human(post: Post, model: LoopbackModel) -> None:
    post.watcher.settled("idle")
    with model.hold() as gate:
        post.watcher.paste("a human was first")
        gate.wait_reached()
        post.watcher.until("thinking")
        message = post.put_held("not into their turn", "the session is thinking")
        assert stages(post.trace(message)) == ["accepted"]
    assert stages(post.ended(message)) == CHAIN
    assert [request.prompt for request in model.main_requests] == ["a human was first", "not into their turn"]


# ── 12: no hook comes ──


@pytest.mark.versions
def test_behind_a_proxy_hooks_still_tell(cli: RealCli, start: Start) -> None:
    closed = {
        "HTTP_PROXY": "http://127.0.0.1:9",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "example.org",
    }
    found = Post(keep(start, cli, env=closed)).send("through no proxy")
    assert stages(found) == CHAIN
    assert "by" not in step(found, "submitted")


def disable_hooks(cli: RealCli) -> list[str]:
    (cli.home / ".claude").mkdir(exist_ok=True)
    (cli.home / ".claude" / "settings.json").write_text(json.dumps({"disableAllHooks": True}))
    return []


@pytest.mark.versions
@pytest.mark.parametrize("without", [disable_hooks, lambda _: ["--bare"]], ids=["disabled", "bare"])
def test_without_hooks_the_transcript_proves_each_step(
    cli: RealCli, start: Start, model: LoopbackModel, without: Callable[[RealCli], list[str]]
) -> None:
    post = Post(keep(start, cli, *without(cli)))
    for text in ("no hooks here", "and once more"):
        found = post.send(text)
        assert stages(found) == CHAIN
        assert step(found, "submitted")["by"] == "transcript"
        assert found.answer is not None
        assert text in found.answer["text"]
    assert prompts(model) == ["no hooks here", "and once more"]
    assert any("no hooks" in reason for reason in post.client.describe()["degraded"])
