"""What a new user meets: tables that fit, help, names by their beginning, questions before much is ended."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from remuda.cli.app import COMMANDS, HABITS
from remuda.cli.output import cells
from support.boss import RunningBoss, event
from support.commands import Commands, watch
from support.hostile import Terminal, shown_by
from support.keeper import output_until, until

LONG = "a-session-with-a-rather-long-name-38ch"
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def lines_of(seen: bytes) -> list[str]:
    return [line.rstrip("\r") for line in _SEQUENCE.sub("", seen.decode()).split("\n")]


# ── tables and colours ──


def test_list_of_long_names_fits_the_terminal_also_when_it_is_watched(remuda: Commands) -> None:
    remuda.start(LONG, "--", "sh", "-c", f"echo {'word ' * 40}; exec cat")
    with watch(remuda, LONG) as client:
        output_until(client, b"word word")
    code, seen = shown_by(remuda, "ls", cols=80)
    head, row, *_ = lines_of(seen)
    assert code == 0
    assert head.split()[:2] == ["NAME", "STATE"]
    assert max(cells(head), cells(row)) <= 80
    assert "…" in row
    with Terminal(remuda, "ls", "--watch", cols=80) as terminal:
        drawn = lines_of(terminal.until("…".encode()))
        terminal.interrupt()
        assert terminal.end() == 0
    assert max(map(cells, drawn)) <= 80


@pytest.mark.parametrize("command", ["queue", "agents"])
def test_lists_of_the_boss_fit_the_terminal(remuda: Commands, boss: RunningBoss, command: str) -> None:
    long: dict[str, Any] = {"cwd": f"/srv/{LONG}/{LONG}", "message": "word " * 60, "tty": f"/dev/{LONG}"}
    boss.tell(event("stopped", 1000.0, session="one", pid=os.getpid(), **long))
    asked = {**long, "reason": "permission", "tool": "Bash", "input": {"command": "x" * 300}}
    boss.tell(event("asked", 1001.0, session="two", **asked))
    code, seen = shown_by(remuda, command, cols=80)
    head, *rows = lines_of(seen)
    assert code == 0
    assert head.split()[0] == "WHO"
    assert len([row for row in rows if row]) == 2
    assert max(map(cells, [head, *rows])) <= 80
    assert all("…" in row for row in rows if row)


def test_terminal_that_knows_only_letters_gets_only_letters(remuda: Commands) -> None:
    remuda.start("work", "--", "cat")
    for words in (["ls"], ["status", "work"], ["doctor"], ["help"], ["nope"]):
        assert b"\x1b" not in shown_by(remuda, *words, env={"TERM": "dumb"})[1]
    with Terminal(remuda, "ls", "--watch", env={"TERM": "dumb"}) as terminal:
        assert b"\x1b" not in terminal.until(b"work")
        terminal.interrupt()


def test_dash_on_a_terminal_that_cannot_draw_says_so(remuda: Commands) -> None:
    assert "TERM is 'dumb'; use 'remuda queue'" in remuda.refused("dash", code=4, env={"TERM": "dumb"})


def test_attach_does_not_draw_on_a_terminal_that_cannot(remuda: Commands) -> None:
    dumb = {"TERM": "dumb"}
    code, seen = shown_by(remuda, "start", "work", "--", "cat", env=dumb)
    assert (code, b"\x1b" in seen) == (0, False)
    assert b"started work" in seen
    code, seen = shown_by(remuda, "attach", "work", env=dumb)
    assert (code, b"\x1b" in seen) == (4, False)
    assert b"TERM is 'dumb'; use 'remuda logs -f'" in seen
    with Terminal(remuda, "attach", "--raw", "work", env=dumb) as terminal:
        terminal.until(b"\x1b")
        terminal.type(b"\x1c")
        assert terminal.end() == 0


def test_error_is_red_on_a_terminal(remuda: Commands) -> None:
    assert shown_by(remuda, "status", "nope")[1].startswith(
        b"\x1b[31mremuda:\x1b[0m session 'nope' not found"
    )


def test_list_shows_what_an_agent_said_last_and_for_what_it_waits(remuda: Commands) -> None:
    remuda.start("work", "--agent", "demo")
    remuda("send", "work", "are you there?", "--wait")
    assert "REPLY#1 to: are you there?" in remuda("ls").out
    remuda("send", "work", "RUNBASH touch made")

    def waits() -> bool:
        return bool(remuda.json("ls")[0]["state"] == "waiting_permission")

    until(waits, "the dialog")
    row = remuda("ls").out.splitlines()[1]
    assert "waiting_permission" in row
    assert "REPLY#1 to: are you there?" in row, "the agent's last message, and no name of a hook"


def test_list_of_a_working_agent_names_no_hook(remuda: Commands) -> None:
    remuda.start("work", "--agent", "demo")
    remuda("send", "work", "SLOW 600 x")
    until(lambda: remuda.json("ls")[0]["state"] in ("thinking", "streaming"), "the turn")
    assert remuda("ls").out.splitlines()[1].endswith("  ~/cwd")


def test_names_alone_are_listed_for_scripts(remuda: Commands) -> None:
    for name in ("a", "b"):
        remuda.start(name, "--", "cat")
    remuda("kill", "b")
    assert remuda("ls", "-q").out == "a\n"
    assert remuda("ls", "-qa").out == "a\nb\n"
    remuda.refused("ls", "-q", "--json", code=2)


# ── help ──


def test_help_shows_what_the_option_shows(remuda: Commands) -> None:
    assert remuda("help").out == remuda("--help").out
    assert remuda("help", "inbox", "put").out == remuda("inbox", "put", "--help").out
    assert remuda("-V").out == remuda("--version").out
    assert "'remuda ls' has no command 'put'" in remuda.refused("help", "ls", "put", code=2)


def test_habits_name_commands_that_there_are(remuda: Commands) -> None:
    commands = {*COMMANDS}
    assert {words.split()[0] for words in HABITS.values()} <= commands
    assert not HABITS.keys() & commands


# ── names ──


def test_session_is_found_by_the_beginning_of_its_name_or_by_none(remuda: Commands) -> None:
    remuda.start("engine", "--", "cat")
    remuda.start("docs", "--", "sh", "-c", "echo here; exec cat")
    assert remuda.json("status", "eng")["name"] == "engine"
    assert "did you mean 'docs'?" in remuda.refused("status", "dosc", code=3)
    remuda.start("endless", "--", "cat")
    assert "'en' matches 2 sessions: endless, engine" in remuda.refused("status", "en", code=2)
    remuda("kill", "endless")
    until(lambda: remuda("logs").out == "here\n", "the output of the session that was started last")
    with Terminal(remuda, "attach") as terminal:
        terminal.until(b"Attach to number or name [1]: ")
        terminal.type(b"\r")  # Enter takes the session that was started last
        terminal.until(b"here")
        terminal.type(b"\x1c")
        assert terminal.end() == 0
    remuda.refused("kill", "eng", code=3)  # what ends or types wants the complete name
    remuda("kill", "--all")
    assert remuda.refused("attach", code=3).startswith("no session is running; start one with: ")


def test_unknown_pane_is_an_error_about_the_pane(remuda: Commands) -> None:
    assert "pane '%99' has no agent that the boss knows" in remuda.refused("show", "%99", code=3)


def test_prompt_without_quotes_is_an_error_that_says_so(remuda: Commands) -> None:
    for words in (["send"], ["inbox", "put"], ["reply"]):
        said = remuda.refused(*words, "work", "look", "at", "this", code=2)
        assert "put a prompt of several words in quotes" in said
    assert "quotes" not in remuda.refused("kill", "--grace", "x", code=2)


# ── completion ──


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("help tu", ["tutorial"]),
        ("help sen", ["send"]),
        ("help boss ", ["up", "down", "status", "token"]),
        ("help ls ", []),
        ("later work n", ["never"]),
    ],
)
def test_words_that_a_command_takes_are_completed(remuda: Commands, words: str, wanted: list[str]) -> None:
    line = f"remuda {words}"
    env = {"_REMUDA_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    assert [one.partition(",")[2] for one in remuda(env=env).out.split()] == wanted


# ── Ctrl-C ──


def test_question_that_is_interrupted_ends_its_line(remuda: Commands) -> None:
    remuda.start("a", "--", "cat")
    with Terminal(remuda, "kill", "--all") as terminal:
        terminal.until(b"[y/N]: ")
        terminal.interrupt()
        assert terminal.end() == 130
    assert terminal.seen.endswith(b"\r\n")


def test_wait_that_is_interrupted_says_what_becomes_of_the_message(remuda: Commands) -> None:
    remuda.start("work", "--agent", "demo")
    first = remuda.json("send", "work", "SLOW 600 x")["id"]
    second = remuda.json("send", "work", "hello")["id"]
    for message, wanted in (
        (first, f"the agent still works on message {first}; 'remuda cancel {first}' interrupts it"),
        (second, f"message {second} stays in the inbox; 'remuda cancel {second}' cancels it"),
    ):
        until(lambda: remuda.json("receipt", first)["stage"] == "recorded", "the turn")
        with Terminal(remuda, "messages", message, "--wait") as terminal:
            terminal.until(message.encode())
            terminal.interrupt()
            assert terminal.end() == 130
        assert wanted.encode() in terminal.seen


# ── ending all ──


def test_kill_all_asks_on_a_terminal(remuda: Commands) -> None:
    for name in ("a", "b"):
        remuda.start(name, "--", "cat")
    with Terminal(remuda, "kill", "--all") as terminal:
        terminal.until(b"End 2 sessions (a, b) and every process started there? [y/N]: ")
        terminal.type(b"\r")
        assert terminal.end() == 130
    assert len(remuda.json("ls")) == 2
    with Terminal(remuda, "kill", "--all") as terminal:
        terminal.until(b"[y/N]: ")
        terminal.type(b"y\r")
        assert terminal.end() == 0
    assert remuda.json("ls") == []
    remuda.start("c", "--", "cat")
    assert shown_by(remuda, "kill", "--all", "--yes") == (0, b"c ended\r\n")


# ── messages ──


@pytest.fixture
def sent(remuda: Commands) -> tuple[Commands, list[str]]:
    """One that was answered, one that was taken back, one that waits."""
    remuda.start("work", "--agent", "demo")
    ids = [remuda.json("send", "work", "hello")["id"]]
    remuda("wait", ids[0])
    ids += [
        remuda.json("send", "work", text, "--delay", "1h")["id"] for text in ("never mind", "later\nmore")
    ]
    remuda("cancel", ids[1])
    return remuda, ids


def test_messages_are_listed_with_their_last_step_the_newest_last(sent: tuple[Commands, list[str]]) -> None:
    remuda, ids = sent
    head, *rows = remuda("messages").out.splitlines()
    assert head.split() == ["ID", "SESSION", "SENT", "STEP", "TEXT"]
    assert [row.split()[0] for row in rows] == ids
    assert [row.split()[1] for row in rows] == ["work"] * 3
    assert re.search(r"acked \d+s ago +hello$", rows[0])
    assert rows[1].endswith("(taken back) never mind")
    assert re.search(r"accepted, due in (59m|1h00m) +later …$", rows[2])
    assert [one["stage"] for one in remuda.json("messages", "work")] == ["acked", "dropped", "accepted"]
    assert [one["id"] for one in remuda.json("messages", "--waiting")] == ids[2:]
    assert [one["id"] for one in remuda.json("messages", "--dead")] == ids[1:2]
    last = remuda("messages", "-n", "1")
    assert (last.out.splitlines()[1].split()[0], last.err) == (
        ids[2],
        "remuda: the last 1 of 3 messages; -n lists more\n",
    )
    assert "did you mean 'work'?" in remuda.refused("messages", "wrok", code=3)


def test_receipt_is_of_the_last_message_or_of_one_by_the_beginning_of_its_id(
    sent: tuple[Commands, list[str]],
) -> None:
    remuda, ids = sent
    assert remuda.json("receipt")["id"] == ids[2]
    assert remuda.json("receipt", "work")["id"] == ids[2]
    assert remuda("receipt", "work").out.startswith(f"{ids[2]}\naccepted ")
    assert remuda("receipt", ids[2]).out.startswith("accepted ")
    assert remuda.json("receipt", ids[0][:-4])["stage"] == "acked"
    assert remuda("wait", ids[0][:-4]).out == "REPLY#1 to: hello\n"
    assert "matches 3 messages" in remuda.refused("receipt", "m", code=2)
    assert "no session and no message 'm-none'" in remuda.refused("receipt", "m-none", code=3)


def test_dead_letter_is_found_by_the_beginning_of_its_id(remuda: Commands, tmp_path: Path) -> None:
    box = tmp_path / "box"
    where = ("--inbox", str(box))
    remuda("inbox", "put", *where, "hello", "--max-attempts", "1")
    message = json.loads(remuda("messages", *where, "--json").out)[0]["id"]
    letter = {"entry_id": "e-12345", "reason": "why", "raw_line": (box / "inbox.jsonl").read_text().strip()}
    (box / ".dead-letter.jsonl").write_text(json.dumps(letter) + "\n")
    shown = remuda("inbox", "dead", *where, message[:-3]).out
    assert shown.startswith(f"id         {message}\n")
    assert remuda("inbox", "redrive", *where, "e-12").out.startswith("accepted ")
    assert "dead letter 'e-12' not found" in remuda.refused("inbox", "redrive", *where, "e-12", code=3)


def test_wait_that_gives_up_says_what_the_message_waits_for(remuda: Commands) -> None:
    remuda.env["MOCK_TRUST_DIALOG"] = "1"
    remuda.start("work", "--agent", "demo")
    until(lambda: remuda.json("status", "work")["state"] == "waiting_answer", "the dialog")
    remuda("send", "work", "first")
    until(lambda: remuda.json("status", "work")["delivery"]["held"], "the keeper's reason")
    said = remuda.refused("send", "work", "hi", "--wait", "--timeout", "1", code=124)
    assert (
        "its last step is `accepted`: the agent asks whether this folder is trusted: attach and answer"
        in said
    )


def test_no_messages_say_how_to_send_one(remuda: Commands) -> None:
    assert remuda("messages").out == "no messages; send one with: remuda send NAME TEXT\n"
    assert remuda.refused("receipt", code=3).startswith("no messages yet; ")
