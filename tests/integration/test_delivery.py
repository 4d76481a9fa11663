"""Messages of an inbox on their way into a kept session of the scripted agent: each step, and each death."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keeping import Process, Start, until
from posting import CHAIN, Post, step
from remuda.errors import WaitTimeout
from remuda.inbox.consumer_lock import ConsumerLock
from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import Trace
from remuda.keeper.environment import session_environment
from remuda.paths import SessionPaths
from remuda.testing.scripted_agent.probe import whole_records

ESC = b"\x1b"
# The scripted agent, and beside it every byte that it was typed.
LISTENING = """
import os, runpy, sys

said = open(sys.argv[2], "ab", buffering=0)
read = os.read


def listening(fd, size):
    data = read(fd, size)
    if fd == 0:
        said.write(data)
    return data


os.read = listening
sys.argv[1:3] = []
runpy.run_module("remuda.testing.scripted_agent", run_name="__main__", alter_sys=True)
"""


class Bench:
    """Starts scripted agents that share a home, and knows what they were typed."""

    def __init__(self, start: Start, folder: Path) -> None:
        self._start = start
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()
        (folder / "claude").mkdir()
        self.typed_file = folder / "typed"
        self._program = folder / "listening.py"
        self._program.write_text(LISTENING)

    def start(self, *flags: str, name: str = "d", **more: Any) -> Post:
        own = {"CLAUDE_CONFIG_DIR": str(self.folder / "claude"), "MOCK_TIME_SCALE": "0.01"}
        env = session_environment({**os.environ, **own, **more.pop("env", {})}, name, "HEIMDALL", {})
        # As many words as those that name the scripted agent itself; what follows are its arguments.
        argv = [sys.executable, str(self._program), "agent", str(self.typed_file), *flags]
        given: dict[str, Any] = {"agent": "demo", "classifier": "claude", "cols": 100, "rows": 30, **more}
        return Post(self._start(name, argv, cwd=str(self.project), env=env, **given))

    def typed(self) -> bytes:
        """All that came in, but for the terminal's answers to its queries, which come when they come."""
        return re.sub(rb"\x1b\[\?[\d;]*\$y", b"", self.typed_file.read_bytes())

    def keys(self) -> list[int]:
        """How often those came in that a message, a draft or a dialog is moved by."""
        typed = self.typed()
        return [typed.count(key) for key in (b"\x1b[200~", b"\r", b"\x13", b"\x1b[A", b"\x1b[B")]

    def prompts(self, post: Post) -> list[str]:
        """What the agent was asked, as its transcript has it."""
        path = post.client.describe()["conversation"]["transcript_path"]
        records = whole_records(Path(path))
        return [str(one["message"]["content"]) for one in records if "promptSource" in one]


@pytest.fixture
def bench(start: Start, tmp_path: Path) -> Bench:
    return Bench(start, tmp_path)


def idle(post: Post) -> Post:
    post.watcher.settled("idle")
    return post


def busy(post: Post) -> Post:
    """With a prompt of a human, until that is interrupted."""
    idle(post).watcher.paste("SLOW 60")
    post.watcher.until("streaming")
    return post


def stages(found: Trace) -> list[str]:
    """Its steps, less those of a lease that was given back because the session was just not ready."""
    kept: list[str] = []
    for one in found.steps:
        if one.get("reason") == "the session was no longer ready":
            assert kept.pop() == "written"
        else:
            kept.append(str(one["stage"]))
    return kept


def attempts(found: Trace) -> list[int]:
    return [int(one["attempt"]) for one in found.steps if one["stage"] == "written"]


def answer(found: Trace) -> str:
    assert found.answer is not None
    return str(found.answer["text"])


def in_flight(post: Post) -> dict[str, Any] | None:
    flight: dict[str, Any] | None = post.client.describe()["delivery"]["in_flight"]
    return flight


def pause(post: Post) -> Callable[[], None]:
    """Let the agent stand still, idle; the call that lets it go on."""
    idle(post)
    os.kill(post.kept.child_pid, signal.SIGSTOP)
    return lambda: os.kill(post.kept.child_pid, signal.SIGCONT)


def kill_keeper(post: Post) -> None:
    """As the kernel does when memory is short: its agent goes down with its terminal."""
    agent = Process(post.kept.child_pid)
    post.kept.keeper.signal(signal.SIGKILL)
    assert post.kept.keeper.ended()
    agent.signal(signal.SIGKILL)
    assert agent.ended()
    agent.close()


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
    later = post.put("later", delay=3.0)
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


def test_half_a_surrogate_pair_of_a_foreign_writer_stops_nothing(bench: Bench) -> None:
    post = idle(bench.start())
    with (post.folder / "inbox.jsonl").open("a") as inbox:
        inbox.write('"half \\ud800 a pair"\n')
    assert stages(post.send("still here")) == CHAIN
    assert bench.prompts(post) == ["still here"]


def test_command_message_runs_and_is_acknowledged(bench: Bench) -> None:
    post = idle(bench.start())
    assert stages(post.send("hello")) == CHAIN
    before = post.client.describe()["conversation"]["session_id"]
    cleared = post.send("/clear", command=True)
    assert stages(cleared) == ["accepted", "written", "submitted", "ended", "acked"]
    assert post.client.describe()["conversation"]["session_id"] != before
    assert answer(post.send("hello again")) == "REPLY#1 to: hello again"


# ── waiting ──


def test_message_waits_while_the_session_is_busy_with_somebodys_prompt(bench: Bench) -> None:
    post = busy(bench.start())
    before = bench.keys()
    waiting = post.put("next")
    post.held("the session is")
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
    waiting = post.put("behind the dialog")
    post.held("a dialog is open")
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
    waiting = asking.put("may I come in")
    asking.held("--trust")
    assert stages(asking.trace(waiting)) == ["accepted"]
    assert not any(bench.keys())
    trusting = bench.start(name="t", env=env, trust=True)
    assert stages(trusting.send("straight in")) == CHAIN


def test_message_to_an_agent_that_stands_still_waits_for_it_and_the_next_is_not_typed_behind_it(
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
    until(lambda: post.draft() == "my own words", "the draft")
    assert bench.typed().endswith(b"\x1b[200~the message\x1b[201~\rmy own words")
    assert bench.prompts(post) == ["the message"]


def test_keys_of_a_human_do_not_reach_the_agent_before_it_took_the_message(bench: Bench) -> None:
    post = bench.start("--settings", slow_start(bench, 3))
    message = post.put("the message")
    until(lambda: in_flight(post), "the message in flight")
    post.watcher.press(b"my own words")

    def arrived() -> bool:
        seen = b"my own words" in bench.typed()
        assert not (seen and stages(post.trace(message))[-1] == "written")
        return seen

    until(arrived, "the words of the human")
    assert stages(post.ended(message)) == CHAIN
    assert bench.prompts(post) == ["the message"]


def slow_start(bench: Bench, seconds: int) -> str:
    """Settings with a hook that delays the agent's first turn, but not its composer."""
    hook = {"hooks": [{"type": "command", "command": f"sleep {seconds}"}]}
    path = bench.folder / "slow.json"
    path.write_text(json.dumps({"hooks": {"SessionStart": [hook]}}))
    return str(path)


def test_draft_is_waited_for_then_laid_aside_and_comes_back(bench: Bench) -> None:
    post = idle(bench.start(draft_patience=4.0))
    post.watcher.press(b"half a thought")
    until(lambda: post.draft() == "half a thought", "the draft")
    message = post.put("the message")
    post.held("a draft is in the composer")
    assert stages(post.ended(message)) == CHAIN
    until(lambda: post.draft() == "half a thought", "the draft again")
    assert bench.prompts(post) == ["the message"]


def test_prompt_that_a_human_queues_behind_a_message_is_not_its_answer(bench: Bench) -> None:
    post = idle(bench.start())
    message = post.put("SLOW 1.5")
    post.reached(message, "recorded")
    post.watcher.paste("my own")
    found = post.ended(message)
    assert stages(found) == CHAIN
    assert answer(found).startswith("word0 word1")
    until(lambda: bench.prompts(post) == ["SLOW 1.5", "my own"], "the human's prompt")


def test_message_behind_a_slow_start_is_handed_over_once(bench: Bench) -> None:
    """Its prompt is taken when the hooks of its user are done, long after it was typed."""
    post = bench.start("--settings", slow_start(bench, 12))
    found = post.send("hello")
    assert stages(found) == CHAIN
    assert bench.prompts(post) == ["hello"]


def test_inbox_of_another_consumer_is_left_to_it(bench: Bench, home: Path) -> None:
    with ConsumerLock.take(SessionPaths(home / "sessions", "d").inbox, "somebody else"):
        post = bench.start()
        waiting = post.put("hello")
        post.held("somebody else")
        assert stages(post.trace(waiting)) == ["accepted"]
    assert stages(post.ended(waiting)) == CHAIN


# ── ends that are no answer ──


def test_rate_limit_delays_the_message_and_every_session_of_the_account(bench: Bench, home: Path) -> None:
    first, second = idle(bench.start()), idle(bench.start(name="e"))
    limited = first.put("err 429")
    nacked = first.reached(limited, "nacked")
    assert stages(nacked) == ["accepted", "written", "submitted", "recorded", "ended", "nacked"]
    assert step(nacked, "ended")["failure"] == "rate_limited"
    assert step(nacked, "nacked")["due"] > step(nacked, "ended")["at"] + 5
    waiting = second.put("me too")
    second.held("the account is at its limit")
    [account] = (home / "accounts").iterdir()
    account.unlink()
    assert stages(second.ended(waiting)) == CHAIN


CONTINUES = "Your claude.ai usage limit has reset. Continue the task you were working on."


@pytest.fixture
def limited(bench: Bench, home: Path) -> Post:
    """A session that waits for the end of a limit, to hand over again what met it."""
    post = idle(bench.start())
    post.reached(post.put("err 429"), "nacked")
    [account] = (home / "accounts").iterdir()
    account.write_text(json.dumps({"until": time.time() + 3600, "reason": "for long"}))
    return post


def test_agent_does_not_go_on_by_itself_with_a_message_that_waits_for_the_end_of_a_limit(
    bench: Bench, limited: Post
) -> None:
    limited.watcher.paste(CONTINUES)
    limited.watcher.until_shows("It does not run twice.")
    assert bench.prompts(limited) == ["err 429"]


def test_agent_goes_on_by_itself_with_what_a_human_asked_for_before_a_limit(limited: Post) -> None:
    limited.watcher.paste("mine")
    limited.watcher.until_shows("to: mine")
    limited.watcher.paste(CONTINUES)
    limited.watcher.until_shows(f"to: {CONTINUES}")


@pytest.mark.parametrize(
    ("prompt", "stage", "failure"),
    [
        ("err 400", "dead", "invalid_request"),
        ("err 401", "dead", "authentication"),
        ("err 529", "nacked", "overloaded"),
    ],
)
def test_error_of_the_service_decides_what_becomes_of_the_message(
    bench: Bench, prompt: str, stage: str, failure: str
) -> None:
    post = idle(bench.start())
    found = post.reached(post.put(prompt), stage)
    assert step(found, "ended")["failure"] == failure
    assert step(found, stage)["reason"].startswith(("API Error", "Please run /login"))


def test_interrupt_by_a_human_is_a_dead_letter(bench: Bench) -> None:
    post = idle(bench.start())
    message = post.put("SLOW 20")
    post.watcher.until("streaming")
    post.watcher.press(ESC)
    found = post.ended(message)
    assert found.stage == "dead"
    assert step(found, "ended")["end"] == "interrupted"
    assert stages(post.send("next")) == CHAIN


def test_turn_without_a_sign_of_life_is_interrupted_and_the_next_goes_on(bench: Bench) -> None:
    post = idle(bench.start(turn_timeout=4.0, draft_patience=0.5))
    found = post.send("THINK 60")
    assert found.stage == "dead"
    assert step(found, "ended")["end"] == "timeout"
    assert stages(post.send("next")) == CHAIN


def test_tool_that_runs_is_a_sign_of_life(bench: Bench) -> None:
    post = idle(bench.start(turn_timeout=4.0))
    assert stages(post.send("RUNBASH sleep 7; echo done")) == CHAIN


# ── deaths ──


@pytest.mark.parametrize(
    ("on_orphan", "stage"), [("deadletter", "dead"), ("drop", "dropped"), ("retry", "nacked")]
)
def test_agent_that_is_killed_leaves_its_message_to_the_policy(
    bench: Bench, on_orphan: str, stage: str
) -> None:
    post = idle(bench.start(on_orphan=on_orphan))
    message = post.put("SLOW 60")
    waiting = post.put("behind it")
    post.reached(message, "recorded")
    os.kill(post.kept.child_pid, signal.SIGKILL)
    assert post.kept.keeper.ended()
    found = post.trace(message)
    assert found.stage == stage
    assert step(found, "ended")["end"] == "died"
    assert stages(post.trace(waiting)) == ["accepted"]


def test_session_that_ended_keeps_what_waits_for_the_next(bench: Bench) -> None:
    post = busy(bench.start())
    waiting = [post.put("one"), post.put("two")]
    post.client.request("kill", grace=5.0)
    assert post.kept.keeper.ended()
    assert [entry.id for entry in post.inbox.waiting()] == waiting
    resumed = bench.start(resume=True)
    assert [stages(resumed.ended(one)) for one in waiting] == [CHAIN, CHAIN]


def test_keeper_killed_after_the_answer_recovers_it(bench: Bench) -> None:
    post = idle(bench.start(env={"MOCK_DELAY_STOP": "60000"}))
    message = post.put("hello")
    post.reached(message, "recorded")
    until(lambda: transcript_has(post, "REPLY#1"), "the answer in the transcript")
    kill_keeper(post)
    resumed = bench.start(resume=True)
    found = resumed.ended(message)
    assert found.stage == "acked"
    assert step(found, "ended")["recovered"] is True
    assert answer(found) == "REPLY#1 to: hello"
    assert bench.typed().count(b"hello") == 1


def transcript_has(post: Post, text: str) -> bool:
    path = Path(post.client.describe()["conversation"]["transcript_path"])
    return any(one.get("type") == "assistant" and text in str(one) for one in whole_records(path))


def test_keeper_killed_after_the_answer_to_an_argument_recovers_it(bench: Bench, home: Path) -> None:
    message = Inbox(SessionPaths(home / "sessions", "d").inbox).put("hello").id
    post = bench.start(env={"MOCK_DELAY_STOP": "60000"})
    assert step(post.reached(message, "recorded"), "written")["transport"] == "argument"
    until(lambda: transcript_has(post, "REPLY#1"), "the answer in the transcript")
    kill_keeper(post)
    found = bench.start(resume=True).ended(message)
    assert found.stage == "acked"
    assert answer(found) == "REPLY#1 to: hello"


@pytest.mark.parametrize(
    ("on_orphan", "stage"), [("deadletter", "dead"), ("drop", "dropped"), ("retry", "acked")]
)
def test_keeper_killed_after_the_submission_leaves_it_to_the_policy(
    bench: Bench, on_orphan: str, stage: str
) -> None:
    post = idle(bench.start(env={"MOCK_DELAY_STOP": "0"}))
    message = post.put("SLOW 3")
    post.reached(message, "recorded")
    kill_keeper(post)
    resumed = bench.start(resume=True, on_orphan=on_orphan)
    found = resumed.ended(message)
    assert found.stage == stage
    assert stages(found).count("written") == (2 if on_orphan == "retry" else 1)
    assert step(found, stage)["attempt"] == len(attempts(found))


def test_keeper_killed_before_the_submission_hands_it_over_again(bench: Bench) -> None:
    post = bench.start()
    pause(post)
    message = post.put("hello")
    until(lambda: in_flight(post), "the message in flight")
    kill_keeper(post)
    found = bench.start(resume=True).ended(message)
    assert stages(found) == ["accepted", "written", "ended", "nacked", *CHAIN[1:]]
    assert attempts(found) == list(range(1, len(attempts(found)) + 1))


def test_keeper_killed_does_not_take_the_answer_to_the_same_words_for_this_one(bench: Bench) -> None:
    post = idle(bench.start())
    assert stages(post.send("the same")) == CHAIN
    pause(post)
    message = post.put("the same")
    until(lambda: in_flight(post), "the message in flight")
    kill_keeper(post)
    found = bench.start(resume=True).ended(message)
    assert stages(found) == ["accepted", "written", "ended", "nacked", *CHAIN[1:]]


def test_agent_killed_does_not_take_the_answer_to_the_same_words_for_this_one(bench: Bench) -> None:
    post = idle(bench.start())
    assert stages(post.send("the same")) == CHAIN
    pause(post)
    message = post.put("the same")
    until(lambda: in_flight(post), "the message in flight")
    os.kill(post.kept.child_pid, signal.SIGKILL)
    assert post.kept.keeper.ended()
    assert stages(post.trace(message)) == ["accepted", "written", "ended", "nacked"]


# ── without hooks ──


def without_hooks(bench: Bench, **more: Any) -> Post:
    settings = bench.folder / "claude" / "settings.json"
    settings.write_text(json.dumps({"disableAllHooks": True}))
    post = idle(bench.start(**more))
    assert post.client.describe()["degraded"]
    return post


def test_session_without_hooks_delivers_by_its_transcript(bench: Bench) -> None:
    post = without_hooks(bench)
    for number in (1, 2):
        found = post.send(f"number {number}")
        assert stages(found) == CHAIN
        assert step(found, "submitted")["by"] == "transcript"
        assert answer(found) == f"REPLY#{number} to: number {number}"


def test_session_without_hooks_recovers_an_answer_by_its_transcript(bench: Bench) -> None:
    post = without_hooks(bench, env={"MOCK_DELAY_STOP": "60000"})
    message = post.put("hello")
    path = Path(step(post.reached(message, "recorded"), "submitted")["transcript_path"])
    until(lambda: "REPLY#1" in path.read_text(), "the answer in the transcript")
    kill_keeper(post)
    found = bench.start(resume=True).ended(message)
    assert (found.stage, answer(found)) == ("acked", "REPLY#1 to: hello")
