"""Taking messages back and interrupting turns: what the command says is what became of them."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

import remuda as package
from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import trace
from support.commands import COMMAND, Commands, has_open
from support.delivery import Bench, busy, idle, pause
from support.heimdall_client import PATIENCE
from support.keeper import Start, until
from support.messages import Post, stages, step

BACK = "cancelled before the agent saw it"


@pytest.fixture
def bench(start: Start, tmp_path: Path) -> Bench:
    return Bench(start, tmp_path)


def run(post: Post, *words: str, code: int = 0) -> str:
    """Run a command on the folder of this session; what it printed, on either stream."""
    argv = [*COMMAND, *words, "--socket-dir", str(post.kept.folder)]
    done = subprocess.run(argv, capture_output=True, timeout=3 * PATIENCE, check=False, text=True)
    assert done.returncode == code, (words, done)
    return done.stdout + done.stderr


def cancel(post: Post, what: str, *more: str, code: int = 0) -> str:
    return run(post, "cancel", what, *more, code=code)


# ── one message ──


def test_message_that_waits_is_taken_back_by_the_beginning_of_its_id_and_the_running_turn_goes_on(
    bench: Bench,
) -> None:
    post = bench.start(env={"MOCK_TIME_SCALE": "1"})
    first, second = post.put("SLOW 60"), post.put("never mind")
    post.watcher.until("streaming")
    assert cancel(post, second[:-3]) == f"{second}: {BACK}\n"
    found = post.trace(second)
    assert (stages(found), found.reason) == (["accepted", "dropped"], "taken back")
    again = f"{second}: already ended (dropped: taken back)\n"
    assert cancel(post, second, code=8) == again
    assert cancel(post, first) == f"{first}: turn interrupted\n"
    assert post.ended(first).reason == "interrupted on request"
    assert cancel(post, "d", code=3) == "nothing to cancel in session 'd'\n"
    post.run("hello")
    assert bench.prompts(post) == ["SLOW 60", "hello"]


def test_message_that_was_answered_stays_answered(bench: Bench) -> None:
    post = idle(bench.start())
    message = post.send("hello").id
    assert cancel(post, message, code=8) == f"{message}: already answered\n"
    document = json.loads(cancel(post, message, "--json", code=8))
    assert document == {"id": message, "outcome": "answered", "reason": ""}
    assert post.trace(message).stage == "acked"


def test_message_that_is_being_typed_is_interrupted_and_not_called_unseen(bench: Bench) -> None:
    post = bench.start(env={"MOCK_TIME_SCALE": "1"})
    go_on = pause(post)
    message = post.put_until("SLOW 60", "written")
    argv = [*COMMAND, "cancel", message, "--socket-dir", str(post.kept.folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as cancelling:
        lease = post.folder / ".inbox-lease.json"
        until(lambda: json.loads(lease.read_text()).get("unwanted"), "the keeper knows of it")
        go_on()
        assert cancelling.communicate(timeout=3 * PATIENCE)[0] == f"{message}: turn interrupted\n"
    found = post.trace(message)
    assert (found.stage, step(found, "ended")["end"]) == ("dead", "interrupted")
    post.run("hello")


def test_message_that_failed_and_would_be_tried_again_is_taken_back(bench: Bench) -> None:
    post = idle(bench.start())
    message = post.put_until("err 500", "nacked")
    assert cancel(post, message) == f"{message}: cancelled: it had failed, and will not be tried again\n"
    assert post.trace(message).stage == "dropped"


def test_unknown_word_is_neither_a_message_nor_a_session(bench: Bench) -> None:
    post = bench.start(name="work")
    said = cancel(post, "wrok", code=3)
    assert said.startswith("remuda: no session and no message 'wrok'; did you mean 'work'?")
    post.put("one", delay=3600.0)
    post.put("two", delay=3600.0)
    assert "matches 2 messages; give more of the id: m" in cancel(post, "m", code=2)


# ── a session's turn ──


def test_turn_that_a_human_began_is_interrupted(bench: Bench) -> None:
    post = busy(bench.start(env={"MOCK_TIME_SCALE": "1"}))
    assert cancel(post, "d") == "turn interrupted\n"
    assert post.client.describe()["state"] in ("idle", "interrupted")
    post.run("hello")
    assert bench.typed().count(b"\x1b") >= 1


def test_dialog_before_any_turn_is_left_alone(bench: Bench) -> None:
    post = bench.start(env={"MOCK_TRUST_DIALOG": "1"})
    post.watcher.until("waiting_answer")
    message = post.put("hello")
    assert cancel(post, "d") == f"{message}: {BACK}\n"
    said = cancel(post, "d", code=8)
    assert said == "remuda: no turn was interrupted: a dialog is open; attach and answer it\n"
    assert bench.typed() == b""


def test_turn_that_asks_for_a_permission_is_interrupted(bench: Bench) -> None:
    post = bench.start("--permission-mode", "default", env={"MOCK_DIALOG_GUARD": "0"})
    message = post.put("RUNBASH touch made")
    post.watcher.until("waiting_permission")
    assert cancel(post, "d") == f"{message}: turn interrupted\n"
    assert not (bench.project / "made").exists()


def test_all_messages_of_a_session_are_taken_back_and_its_turn_is_interrupted(bench: Bench) -> None:
    post = bench.start(env={"MOCK_TIME_SCALE": "1"})
    first = post.put("SLOW 60")
    post.watcher.until("streaming")
    others = [post.put(text) for text in ("two", "three")]
    lines = cancel(post, "d", "--all").splitlines()
    assert sorted(lines) == sorted([f"{first}: turn interrupted", *(f"{one}: {BACK}" for one in others)])
    assert bench.prompts(post) == ["SLOW 60"]


def test_plain_command_has_no_turn_to_interrupt(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    assert "'work' runs a plain command" in remuda.refused("cancel", "work", code=2)


# ── without a keeper ──


def test_messages_of_a_session_that_ended_are_taken_back(remuda: Commands) -> None:
    remuda.start("work", "--agent", "demo")
    remuda("kill", "work")
    one, two = (remuda.json("send", "work", text)["id"] for text in ("one", "two"))
    assert (
        f"no turn is running, and 2 messages are waiting; give the id of one, or --all: {one}, {two}"
        in remuda.refused("cancel", "work", code=2)
    )
    assert remuda("cancel", one).out == f"{one}: {BACK}\n"
    assert remuda("cancel", "work").out == f"{two}: {BACK}\n"
    assert remuda("cancel", "work", code=3).out == "nothing to cancel in session 'work'\n"
    assert [one["stage"] for one in remuda.json("messages", "work")] == ["dropped", "dropped"]


def test_message_of_any_inbox_is_taken_back_unless_an_agent_has_it(remuda: Commands) -> None:
    inbox = Inbox(remuda.home / "box")
    first, second = inbox.put("one").id, inbox.put("two").id
    where = ("--inbox", str(inbox.folder / "inbox.jsonl"))
    hook = subprocess.run(
        [*COMMAND, "stop-hook", *where], input=b"{}", capture_output=True, check=True, env=remuda.env
    )
    assert json.loads(hook.stdout)["reason"] == "one"
    said = remuda.refused("cancel", first, *where, code=8)
    assert said.startswith(f"message {first} is in flight with an agent that Remuda did not start")
    assert remuda("cancel", second, *where).out == f"{second}: {BACK}\n"
    assert [entry.id for entry in inbox.waiting()] == [first]


# ── other ways to ask ──


def test_interrupted_wait_says_that_the_message_stays_and_what_takes_it_back(remuda: Commands) -> None:
    remuda.start("work", "--agent", "demo")
    waiting = remuda.begin("send", "work", "SLOW 60", "--wait")

    def in_flight() -> str:
        flight = remuda.json("status", "work")["delivery"]["in_flight"]
        return str(flight["id"]) if flight else ""

    message = until(in_flight, "the message in flight")
    until(lambda: has_open(waiting, "inotify"), "the command waits")
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=3 * PATIENCE)
    assert waiting.returncode == 130
    still = f"the agent still works on message {message}; 'remuda cancel {message}' interrupts it"
    assert err.decode() == f"remuda: {still}\n\n"
    assert remuda("cancel", message).out == f"{message}: turn interrupted\n"


def test_session_of_python_takes_back_and_interrupts(bench: Bench) -> None:
    post = bench.start(env={"MOCK_TIME_SCALE": "1"})
    idle(post)
    session = package.Session("d", folder=post.kept.folder)
    assert session.cancel() is None
    first = session.send("SLOW 60").id
    post.watcher.until("streaming")
    second = session.send("two").id
    fates = [session.cancel(second), session.cancel()]
    assert [(one.message, one.fate) for one in fates if one is not None] == [
        (second, "taken_back"),
        (first, "interrupted"),
    ]
    found = trace(post.folder, first)
    assert found is not None
    assert found.stage == "dead"
    with pytest.raises(package.RemudaError, match="message 'm-unknown' not found"):
        session.cancel("m-unknown")
