"""Waiting for messages that no one delivers, and what else is told of a session that cannot take them."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from remuda.inbox.compaction import WRITER_LOCK
from remuda.inbox.journal import Inbox
from remuda.inbox.stop_hook import open_file
from remuda.lockfile import FileLock
from support.commands import COMMAND, ORDINARY, Commands, has_open
from support.keeper import until

HELD = "remuda: the message waits: session 'work' has ended; 'remuda start work --resume' brings it back\n"
PLAIN = "session 'work' runs a plain command, which cannot confirm messages"


@pytest.fixture
def agent(remuda: Commands) -> Commands:
    remuda.start("work", "--agent", "demo")
    return remuda


@pytest.fixture
def ended(agent: Commands) -> Commands:
    agent("kill", "work")
    return agent


@pytest.fixture
def plain(remuda: Commands) -> Commands:
    remuda.start("work", "--", "cat")
    return remuda


# ── messages that no one delivers ──


def test_send_wait_to_a_session_that_has_ended_says_that_it_is_held_and_ends_with_its_time_to_live(
    ended: Commands,
) -> None:
    ended("send", "work", "the first waits for ever")
    done = ended("send", "work", "hello", "--ttl", "1", "--wait", code=10)
    assert done.err.startswith(HELD)
    assert done.err.count(HELD) == 1
    assert "was not answered: expired, its time to live ran out" in done.err
    assert len(json.loads(ended("inbox", "ls", "work", "--json").out)) == 1


def test_wait_for_a_message_whose_session_ends_meanwhile_says_so_once_and_goes_on_waiting(
    agent: Commands,
) -> None:
    message = agent.json("send", "work", "later", "--delay", "1h")["id"]
    waiting = agent.begin("wait", message)
    until(lambda: has_open(waiting, "inotify"), "the command waits")
    agent("kill", "work")
    assert waiting.stderr is not None
    assert waiting.stderr.readline().decode() == HELD
    assert waiting.poll() is None
    waiting.send_signal(signal.SIGINT)
    assert HELD not in waiting.communicate(timeout=30)[1].decode()


def test_wait_for_a_message_in_any_folder_ends_with_its_time_to_live(remuda: Commands) -> None:
    where = ("--inbox", str(remuda.home / "box"))
    said = remuda("inbox", "put", *where, "hello", "--ttl", "1").out
    done = remuda("wait", said.split()[1], *where, code=10)
    assert "expired, its time to live ran out" in done.err
    assert "held" not in done.err


# ── what an agent says ──


@pytest.fixture
def answered(remuda: Commands) -> tuple[Commands, list[str]]:
    """A message with an answer that would drive a terminal, and the words that wait for it."""
    box = remuda.home / "box"
    box.mkdir(mode=0o700)
    (box / "receipts.jsonl").write_text(json.dumps({"id": "m1", "stage": "acked", "at": 1.0}) + "\n")
    text = "\x1b]0;title\x07\x1b[31mred\x9b1m half \ud83d a pair"
    (box / "outbox.jsonl").write_text(json.dumps({"id": "m1", "text": text}) + "\n")
    return remuda, ["wait", "m1", "--inbox", str(box)]


def test_an_answer_goes_whole_into_a_pipe(answered: tuple[Commands, list[str]]) -> None:
    remuda, words = answered
    wanted = "\x1b]0;title\x07\x1b[31mred\x9b1m half \ufffd a pair"
    assert remuda(*words).out == f"{wanted}\n"
    for command in (words, ["receipt", *words[1:]]):
        assert json.loads(remuda(*command, "--json").out)["answer"]["text"] == wanted


def test_an_answer_does_not_drive_a_terminal(answered: tuple[Commands, list[str]]) -> None:
    remuda, words = answered
    master, slave = pty.openpty()
    done = subprocess.run(
        [*COMMAND, *words],
        env=remuda.env,
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(slave)
    printed = b""
    with contextlib.suppress(OSError):  # a terminal's end is an error on Linux
        while piece := os.read(master, 4096):
            printed += piece
    os.close(master)
    assert (done.returncode, printed.decode()) == (0, "red1m half \ufffd a pair\r\n")


# ── a plain command ──


@pytest.mark.parametrize("words", [["hello"], ["--lines"], ["-"]])
def test_inbox_put_to_a_plain_command_is_refused_as_send_does(plain: Commands, words: list[str]) -> None:
    assert plain.refused("inbox", "put", "work", *words, code=2).startswith(PLAIN)
    assert plain.refused("send", "work", "hello", code=2).startswith(PLAIN)
    assert not (plain.sessions / "work.inbox" / "inbox.jsonl").exists()


def test_inbox_serve_of_a_plain_command_is_refused(plain: Commands) -> None:
    assert plain.refused("inbox", "serve", "work", "--port", "0", code=2).startswith(PLAIN)


def test_inbox_put_of_a_prompt_that_the_agent_would_run_is_refused_as_send_does(ended: Commands) -> None:
    refused = ended.refused("send", "work", "/clear", code=4)
    assert ended.refused("inbox", "put", "work", "/clear", code=4) == refused
    assert ended("inbox", "put", "work", "/clear", "--command").out.startswith("accepted ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ttl", "0"], "'--ttl': the time must be longer than 0"),
        (["--dedup", ""], "'--dedup': the value is empty"),  # a variable that was not set
        (["--from", ""], "'--from': the value is empty"),
        (["--max-attempts", "1000001"], "'--max-attempts'"),
    ],
)
def test_send_with_an_option_that_says_nothing_is_refused_as_put_does(
    ended: Commands, words: list[str], said: str
) -> None:
    assert said in ended.refused("send", "work", "x", *words, code=2)
    assert json.loads(ended("inbox", "ls", "work", "--json").out) == []


def test_inbox_of_a_session_can_be_looked_at_where_nothing_can_be_written(ended: Commands) -> None:
    ended("send", "work", "kept")
    folder = ended.sessions / "work.inbox"
    folder.chmod(0o500)
    try:
        listed = ended("inbox", "ls", "work", "--json", prefix=ORDINARY).out
        counted = ended("inbox", "status", "work", "--json", prefix=ORDINARY).out
        dead = ended("inbox", "dead", "work", prefix=ORDINARY).out
    finally:
        folder.chmod(0o700)
    assert [one["prompt"] for one in json.loads(listed)] == ["kept"]
    assert json.loads(counted)["waiting"] == 1
    assert dead == "no dead letters\n"


def test_wait_for_a_session_says_why_its_messages_wait(plain: Commands) -> None:
    assert plain("wait", "work", "--timeout", "30").out == "idle\n"
    Inbox(plain.sessions / "work.inbox").put("by another way")
    said = plain.refused("wait", "work", "--timeout", "0.1", code=124)
    assert "idle, messages wait: it runs a plain command" in said


# ── recover ──


def test_recover_of_a_live_session_suggests_only_what_will_do(agent: Commands) -> None:
    said = agent.refused("inbox", "recover", "work", code=8)
    assert said.endswith("; run 'remuda kill work' first")
    agent.refused("inbox", "recover", "work", "--force", code=8)


def test_recover_of_a_plain_command_that_runs_can_be_forced(plain: Commands) -> None:
    assert plain.refused("inbox", "recover", "work", code=8).endswith(
        "run 'remuda kill work' first, or pass --force"
    )
    assert (
        plain("inbox", "recover", "work", "--force").out == "nothing to recover: no message was in flight\n"
    )


# ── clean ──


def grow_old(remuda: Commands) -> None:
    for path in remuda.sessions.iterdir():
        os.utime(path, (1, 1), follow_symlinks=False)


def test_clean_keeps_a_session_that_is_sent_something_after_it_was_looked_at(ended: Commands) -> None:
    folder = ended.sessions / "work.inbox"
    grow_old(ended)
    with FileLock(str(folder / WRITER_LOCK), open_file):
        grow_old(ended)
        cleaning = ended.begin("clean", "--force")
        until(lambda: has_open(cleaning, WRITER_LOCK), "it has looked, and waits for the lock")
        (folder / "inbox.jsonl").write_text("a new line\n")
    out, err = cleaning.communicate(timeout=30)
    assert cleaning.returncode == 0, err
    assert "kept: work, which has waiting or dead-lettered messages" in out.decode()
    assert [entry.text for entry in Inbox(folder).waiting()] == ["a new line"]
    assert (ended.sessions / "work.json").exists()


def test_clean_of_an_inbox_leaves_nothing_of_it_also_of_one_that_was_killed(ended: Commands) -> None:
    (ended.sessions / ".other.inbox.removed").mkdir(mode=0o700)
    grow_old(ended)
    out = ended("clean", "--force").out
    assert re.search(r"removing: \S+/work\.inbox\n", out)
    assert sorted(path.name for path in ended.sessions.iterdir()) == []


def test_clean_keeps_an_inbox_that_somebody_has_open_for_writing(ended: Commands) -> None:
    folder = ended.sessions / "work.inbox"
    (folder / "inbox.jsonl").touch()
    with (folder / "inbox.jsonl").open("a") as file:
        grow_old(ended)
        out = ended("clean", "--force").out
        assert out.splitlines()[0] == "kept: work; another program has its inbox open for writing"
        file.write("a late line\n")
    grow_old(ended)
    assert "kept: work, which has waiting or dead-lettered messages" in ended("clean", "--force").out
    assert [entry.text for entry in Inbox(folder).waiting()] == ["a late line"]
    assert (ended.sessions / "work.json").exists()


def test_clean_of_an_inbox_that_is_opened_at_that_very_moment_puts_it_back(ended: Commands) -> None:
    """It tells what it removes when it has looked, and before it does it: there it is held up."""
    folder = ended.sessions / "work.inbox"
    (folder / "inbox.jsonl").touch()
    grow_old(ended)
    reading, writing = os.pipe2(os.O_NONBLOCK)
    with open(reading, "rb", buffering=0) as out:
        with open(writing, "wb", buffering=0) as full:
            while full.write(bytes(1 << 16)):
                pass
            os.set_blocking(writing, True)
            cleaning = ended.begin("clean", "--force", stdout=writing)
        until(lambda: writes_to_stdout(cleaning), "it is about to remove the inbox")
        with (folder / "inbox.jsonl").open("a") as file:
            os.set_blocking(reading, True)
            said = out.readall().strip(b"\0").decode()
            assert cleaning.wait(30) == 0
            file.write("a late line\n")
    assert said.splitlines()[:2] == [
        f"removing: {folder}",
        "kept: work; another program has its inbox open for writing",
    ]
    assert [entry.text for entry in Inbox(folder).waiting()] == ["a late line"]
    assert (ended.sessions / "work.json").exists()


def writes_to_stdout(process: subprocess.Popen[bytes]) -> bool:
    """Whether it waits until someone reads what it prints."""
    return Path(f"/proc/{process.pid}/syscall").read_text().split()[1:2] == ["0x1"]


def test_clean_keeps_what_came_into_an_inbox_while_another_clean_that_was_killed_removed_it(
    ended: Commands,
) -> None:
    gone = ended.sessions / ".other.inbox.removed"
    gone.mkdir(mode=0o700)
    (gone / "inbox.jsonl").write_text("a late line\n")
    os.utime(gone / "inbox.jsonl", (1, 1))
    said = ended("clean", "--force").err
    assert (
        said == f"remuda: {gone} was written to during its removal; its messages are in inbox.jsonl there\n"
    )
    assert (gone / "inbox.jsonl").read_text() == "a late line\n"


# ── who sent it ──


def test_send_in_a_session_names_that_session_as_the_sender_and_a_variable_alone_does_not(
    agent: Commands,
) -> None:
    def senders(text: str) -> list[object]:
        found = [one for one in Inbox(agent.sessions / "work.inbox").waiting() if one.text == text]
        return [one.fields.get("from") for one in found]

    delay, go = ("--delay", "1h"), agent.home / "go"
    os.mkfifo(go)
    own = (*COMMAND, "send", "work", "from a session", *delay)
    named = (*COMMAND, "send", "work", "as another", *delay, "--from", "cron")
    agent.start("lead", "--", "sh", "-c", f"read x <{go}; {shlex.join(own)}; {shlex.join(named)}")
    go.write_text("\n")
    until(lambda: senders("as another"), "the messages")
    assert senders("from a session") == ["lead"]
    assert senders("as another") == ["cron"]
    agent("send", "work", "a variable", *delay, env={"REMUDA_SESSION": "work"})
    assert senders("a variable") == [None]
    message = agent.json("messages", "work")[0]["id"]
    assert "from=lead" in agent("messages", message).out
