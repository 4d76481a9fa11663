"""Messages of an inbox on their way into a kept session of the scripted agent, and what they wait for."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from remuda.errors import WaitTimeout
from remuda.inbox.locks import ConsumerLock
from remuda.paths import SessionPaths
from remuda.testing.scripted_agent.probe import whole_records
from support.delivery import Bench, answer, attempts, busy, idle, in_flight, pause
from support.keeper import Start, event_named, until, until_equal
from support.messages import CHAIN, Post, stages, step
from support.print_calls import write_program

ESC = b"\x1b"


@pytest.fixture
def bench(start: Start, tmp_path: Path) -> Bench:
    return Bench(start, tmp_path)


# ── the chain ──


def test_message_goes_through_the_whole_chain_and_its_answer_is_in_the_outbox(bench: Bench) -> None:
    post = idle(bench.start())
    found = post.send("hello")
    assert stages(found) == CHAIN
    assert answer(found) == "REPLY#1 to: hello"
    assert step(found, "written")["transport"] == "paste"
    assert step(found, "submitted")["prompt_id"] == step(found, "ended")["prompt_id"]
    assert step(found, "ended")["end"] == "answered"
    assert step(found, "acked")["attempt"] == len(attempts(found))
    assert bench.prompts(post) == ["hello"]


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="NOT TESTED: needs /proc")
def test_keeper_that_delivered_has_not_loaded_openssl(bench: Bench) -> None:
    """It would cost each session 5 MB."""
    post = idle(bench.start())
    post.send("hello")
    maps = Path(f"/proc/{post.client.describe()['keeper_pid']}/maps").read_text()
    assert "python" in maps
    assert "libcrypto" not in maps


def test_enter_that_the_agent_lost_is_pressed_again_and_not_after_a_timeout(bench: Bench) -> None:
    """As 2.1.240 loses the first. What stands in the composer, read and drawn, proves it."""
    post = idle(bench.start(env={"LOSE_ENTERS": "1"}))
    found = post.send("hello")
    assert stages(found) == CHAIN
    assert bench.keys()[:2] == [1, 2]  # one paste, two Enters
    assert ["timeout" in line for line in post.kept.log().splitlines() if "Enter had" in line] == [False]


def test_enter_is_not_pressed_again_while_the_agent_has_not_read_the_first(bench: Bench) -> None:
    post = bench.start()
    go_on = pause(post)
    message = post.put("hello")
    written = post.reached(message, "written")
    until(lambda: time.time() > step(written, "written")["at"] + 3, "time for a second Enter")
    go_on()
    assert stages(post.ended(message)) == CHAIN
    assert bench.keys()[:2] == [1, 1]


def test_messages_run_in_their_order(bench: Bench) -> None:
    post = bench.start()
    messages = [post.put(f"number {n}") for n in range(4)]
    assert [answer(post.ended(one)) for one in messages] == [
        f"REPLY#{n + 1} to: number {n}" for n in range(4)
    ]
    assert bench.prompts(post) == [f"number {n}" for n in range(4)]


def test_line_of_a_foreign_writer_is_delivered(bench: Bench) -> None:
    post = idle(bench.start())
    with (post.folder / "inbox.jsonl").open("a") as inbox:
        inbox.write('a plain line\n"two\\nlines"\n')
    until(lambda: len(whole_records(post.folder / "outbox.jsonl")) == 2, "two answers")
    assert bench.prompts(post) == ["a plain line", "two\nlines"]
    message = str(whole_records(post.folder / "outbox.jsonl")[0]["id"])
    assert stages(post.ended(message)) == CHAIN


def test_delayed_message_lets_later_ones_pass(bench: Bench) -> None:
    post = idle(bench.start())
    later = post.put("later", delay=8.0)
    assert stages(post.send("now")) == CHAIN
    assert stages(post.ended(later)) == CHAIN
    assert bench.prompts(post) == ["now", "later"]


def test_message_whose_time_ran_out_while_the_session_was_busy_is_bounced(bench: Bench) -> None:
    post = busy(bench.start())
    late = post.put("too late", ttl=0.5, sender="me")
    useful = post.put("still of use")
    assert stages(post.ended(late)) == ["accepted", "expired"]  # the sender is told while it is still busy
    assert stages(post.trace(useful)) == ["accepted"]
    post.watcher.press(ESC)
    assert stages(post.ended(useful)) == CHAIN
    assert bench.prompts(post) == ["SLOW 60", "still of use"]


@pytest.mark.parametrize(
    "prompt",
    ["ends in a backslash\\", "!touch PWNED", "\u200e!touch PWNED", "tab\tand\r\nlines  \n", "ü" * 5000],
    ids=["backslash", "bang", "hidden-bang", "white-space", "long"],
)
def test_prompt_arrives_as_it_was_written(bench: Bench, prompt: str) -> None:
    post = idle(bench.start())
    assert stages(post.send(prompt)) == CHAIN
    [asked] = bench.prompts(post)
    assert asked.split() == prompt.replace("\u200e", "").split()
    assert not (bench.project / "PWNED").exists()


@pytest.mark.parametrize("prompt", ["/clear", "a\x1b[201~!touch PWNED", "\u200b", "read @notes"])
def test_prompt_that_cannot_be_carried_is_refused_and_not_a_key_is_typed(bench: Bench, prompt: str) -> None:
    post = idle(bench.start())
    before = bench.keys()
    refused = post.send(prompt, literal=True)
    assert stages(refused)[-2:] == ["ended", "dead"]
    assert step(refused, "ended")["end"] == "refused"
    assert bench.keys() == before
    assert stages(post.send("still here")) == CHAIN


def test_half_a_surrogate_pair_of_a_foreign_writer_is_replaced(bench: Bench) -> None:
    post = idle(bench.start())
    with (post.folder / "inbox.jsonl").open("a") as inbox:
        inbox.write('"half \\ud800 a pair"\n')
    assert stages(post.send("still here")) == CHAIN
    assert bench.prompts(post) == ["half � a pair", "still here"]


def test_command_message_runs_and_is_acknowledged(bench: Bench) -> None:
    post = idle(bench.start())
    assert stages(post.send("hello")) == CHAIN
    before = post.client.describe()["conversation"]["session_id"]
    cleared = post.send("/clear", command=True)
    assert stages(cleared) == ["accepted", "written", "submitted", "ended", "acked"]
    assert post.client.describe()["conversation"]["session_id"] != before
    assert answer(post.send("hello again")) == "REPLY#1 to: hello again"


# ── waiting ──


def test_agent_that_reports_nothing_does_not_stay_in_starting_and_nothing_is_typed(
    start: Start, tmp_path: Path
) -> None:
    typed = tmp_path / "typed"
    program = write_program(tmp_path / "program", f"#!/bin/sh\necho loading\nexec cat >{typed}\n")
    post = Post(start("d", [str(program)], agent="claude"))
    waiting = post.put("hello")
    said = until(lambda: post.client.describe()["degraded"], "degraded")
    assert ["guessed from the timing of its output" in one for one in said] == [True]
    post.held("only the timing of its output says that the session is idle")
    status = post.client.describe()
    assert (status["state"], status["source"]) == ("idle", "timing")
    assert stages(post.trace(waiting)) == ["accepted"]
    assert typed.read_bytes() == b""


def test_hooks_of_a_healthy_session_are_true_only_after_the_first_has_come(bench: Bench) -> None:
    go = bench.folder / "go"
    os.mkfifo(go)
    post = bench.start(env={"HELD": str(go)})

    def seen() -> tuple[bool, bool, list[str]]:
        status = post.client.describe()
        return status["hooks"], status["hooks_expected"], status["degraded"]

    assert seen() == (False, True, [])
    go.write_bytes(b"")
    until(lambda: seen() == (True, True, []), "its first hook")


def test_message_waits_while_the_session_is_busy_with_somebodys_prompt(bench: Bench) -> None:
    post = busy(bench.start())
    before = bench.keys()
    waiting = post.put_held("next", "the session is")
    assert stages(post.trace(waiting)) == ["accepted"]
    assert bench.keys() == before
    post.watcher.press(ESC)
    assert stages(post.ended(waiting)) == CHAIN
    assert bench.prompts(post) == ["SLOW 60", "next"]


def test_message_waits_at_a_dialog_and_not_a_key_is_typed(bench: Bench) -> None:
    post = idle(bench.start("--permission-mode", "manual"))
    post.watcher.paste("RUNBASH touch asked-for")
    post.watcher.settled("waiting_permission")
    before = bench.keys()
    waiting = post.put_held("behind the dialog", "a dialog is open")
    assert bench.keys() == before
    assert stages(post.trace(waiting)) == ["accepted"]
    post.watcher.answer(b"4")  # no
    assert stages(post.ended(waiting)) == CHAIN
    assert not (bench.project / "asked-for").exists()
    assert bench.prompts(post) == ["RUNBASH touch asked-for", "behind the dialog"]


@pytest.mark.parametrize("wording", ["", "old"])
def test_trust_dialog_holds_messages_unless_it_may_be_answered(bench: Bench, wording: str) -> None:
    env = {"MOCK_TRUST_DIALOG": "1", "MOCK_TRUST_WORDING": wording}
    asking = bench.start(env=env)
    waiting = asking.put_held("may I come in", "--trust")
    assert stages(asking.trace(waiting)) == ["accepted"]
    assert not any(bench.keys())
    trusting = bench.start(name="t", env=env, trust=True)
    assert stages(trusting.send("straight in")) == CHAIN


def test_message_to_a_suspended_agent_waits_and_the_next_is_not_typed_after_it(
    bench: Bench,
) -> None:
    post = bench.start()
    go_on = pause(post)
    try:
        first, second = post.put("the first"), post.put("the second")
        with pytest.raises(WaitTimeout):
            post.ended(first, 12.0)  # longer than an agent that runs may take to say a word
        assert stages(post.trace(first)) == ["accepted", "written"]
        assert stages(post.trace(second)) == ["accepted"]
    finally:
        go_on()
    assert stages(post.ended(first)) == CHAIN
    assert stages(post.ended(second)) == CHAIN
    assert bench.prompts(post) == ["the first", "the second"]


def test_keys_of_a_human_are_held_while_a_message_is_handed_over(bench: Bench) -> None:
    post = bench.start()
    go_on = pause(post)
    message = post.put("the message")
    until(lambda: in_flight(post), "the message in flight")
    post.watcher.press(b"my own ")
    post.watcher.press(b"words")
    go_on()
    assert stages(post.ended(message)) == CHAIN
    until_equal(post.draft, "my own words", "the draft")
    assert bench.typed().endswith(b"\x1b[200~the message\x1b[201~\rmy own words")
    assert bench.prompts(post) == ["the message"]


def test_keys_of_a_human_do_not_reach_the_agent_before_it_took_the_message(bench: Bench) -> None:
    post = bench.start("--settings", slow_start(bench, 3))
    message = post.put("the message")
    until(lambda: in_flight(post), "the message in flight")
    post.watcher.press(b"my own words")

    def arrived() -> bool:
        seen = b"my own words" in bench.typed()
        assert not seen or (bench.folder / "started").exists()
        return seen

    until(arrived, "the words of the human")
    assert stages(post.ended(message)) == CHAIN
    assert bench.prompts(post) == ["the message"]


def slow_start(bench: Bench, seconds: int) -> str:
    """Settings with a hook that delays the agent's first turn, but not its composer. Its end makes a file."""
    command = f"sleep {seconds}; touch {bench.folder / 'started'}"
    hook = {"hooks": [{"type": "command", "command": command}]}
    path = bench.folder / "slow.json"
    path.write_text(json.dumps({"hooks": {"SessionStart": [hook]}}))
    return str(path)


def test_draft_is_waited_for_then_laid_aside_and_comes_back(bench: Bench) -> None:
    post = idle(bench.start(draft_patience=8.0))
    post.watcher.press(b"half a thought")
    until_equal(post.draft, "half a thought", "the draft")
    message = post.put_held("the message", "a draft is in the composer")
    assert stages(post.ended(message)) == CHAIN
    until_equal(post.draft, "half a thought", "the draft again")
    assert bench.prompts(post) == ["the message"]


@pytest.mark.parametrize("keys", [b"half a thought", b"half a thought\x1b[D"], ids=["text", "and an arrow"])
def test_draft_that_the_agent_has_not_drawn_yet_is_waited_for(bench: Bench, keys: bytes) -> None:
    post = idle(bench.start(draft_patience=1.0))
    resume = pause(post)
    post.watcher.press(keys)
    message = post.put("meanwhile")
    post.held("the last keys are not in the composer yet")  # which still looks empty
    resume()
    assert stages(post.ended(message)) == CHAIN
    until_equal(post.draft, "half a thought", "the draft again")
    assert bench.prompts(post) == ["meanwhile"]


def test_prompt_that_a_human_queues_after_a_message_is_not_its_answer(bench: Bench) -> None:
    post = idle(bench.start())
    message = post.put_until("SLOW 1.5", "recorded")
    post.watcher.paste("my own")
    found = post.ended(message)
    assert stages(found) == CHAIN
    assert answer(found).startswith("word0 word1")
    until(lambda: bench.prompts(post) == ["SLOW 1.5", "my own"], "the human's prompt")


def test_message_that_is_overtaken_ends_though_no_transcript_reports_it(bench: Bench) -> None:
    post = idle(bench.start(env={"MOCK_WRITE_DERIVED_JSONL": "0"}))
    message = post.put_until("SLOW 1.5", "submitted")
    post.watcher.paste("my own")
    found = post.ended(message)
    assert stages(found) == [stage for stage in CHAIN if stage != "recorded"]
    assert answer(found).startswith("word0 word1")


def test_interrupt_of_a_message_that_is_over_is_not_pressed_into_the_turn_after_it(bench: Bench) -> None:
    post = idle(bench.start(env={"MOCK_WRITE_DERIVED_JSONL": "0"}))
    post.client.request("watch")
    message = post.put_until("SLOW 1.5", "submitted")
    post.watcher.paste("THINK 5 of mine")
    event_named(post.client, "stopped", id=message)
    post.client.request("interrupt", id=message)
    assert answer(post.ended(message)).startswith("word0 word1")
    until(lambda: "REPLY#2 to: THINK 5 of mine" in "\n".join(post.lines()), "the answer to the human")


def test_message_after_a_slow_start_is_handed_over_once(bench: Bench) -> None:
    """Its prompt is taken when the hooks of its user are done, long after it was typed."""
    post = bench.start("--settings", slow_start(bench, 12))
    found = post.send("hello")
    assert stages(found) == CHAIN
    assert bench.prompts(post) == ["hello"]


def test_inbox_of_another_consumer_is_left_to_it(bench: Bench, home: Path) -> None:
    with ConsumerLock.take(SessionPaths(home / "sessions", "d").inbox, "somebody else"):
        post = bench.start()
        waiting = post.put_held("hello", "somebody else")
        assert stages(post.trace(waiting)) == ["accepted"]
    assert stages(post.ended(waiting)) == CHAIN
