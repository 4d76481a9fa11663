"""The dashboard: the real program in a pane of a real tmux, on a real boss."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from remuda.cli.queue_keys import READ
from remuda.keeper.client import KeeperClient
from remuda.proctree import descendants
from remuda.wire.connection import ClientConnection
from support.hostile import IN_JSON, MARK
from support.keeper import until
from support.queue_bench import List, Ranch, keep
from support.second_agent import installed

BASH = {"tool_name": "Bash", "tool_input": {"command": "make release", "description": "build"}}


def dash(ranch: Ranch, *words: str) -> List:
    env = "-u TMUX -u TMUX_PANE LINES=99 COLUMNS=333"
    return List(ranch, *(words or ("dash",)), env=env, first="? keys")


@pytest.fixture
def mustang(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Asked for before the ranch: its boss finds the package too."""
    with installed(monkeypatch) as home:
        yield home


@contextmanager
def asking(ranch: Ranch, request: dict[str, Any]) -> Iterator[Any]:
    """An agent whose hook waits for a decision."""
    payload = {"session_id": "id-engine", "hook_event_name": "PermissionRequest", "cwd": "/src/engine"}
    with ThreadPoolExecutor(1) as beside:
        body = {"payload": {**payload, **request}}
        yield beside.submit(ranch.boss.post, "hooks", "permission", body=body, timeout=60.0)


def decision(hook: Any) -> dict[str, Any]:
    found: dict[str, Any] = hook.result()["output"]["hookSpecificOutput"]["decision"]
    return found


@pytest.mark.parametrize("words", [("dash",), ("queue", "-i")])
def test_dash_lists_what_waits_and_puts_it_off(ranch: Ranch, words: tuple[str, ...]) -> None:
    ranch.waits("engine", ranch.api, 700)
    ranch.waits("lathe", "%98", 200)
    listed = dash(ranch, *words)
    listed.shows("WAITING 2", "engine", "11m", "lathe", "engine is done")
    listed.press("s")
    listed.shows("WAITING 1", "AGENTS 1", "lathe is done")
    listed.press("z")
    listed.shows("AGENTS 2", but="WAITING")
    items = {one["session_id"]: one for one in ranch.json("queue", "--all")["items"]}
    assert items["id-engine"]["skip_until"] is not None
    assert items["id-lathe"]["snooze_until"] > time.time() + 300
    listed.press("q")
    ranch.bench.until(lambda seen: seen.panes[listed.pane].is_dead, "its end")


@pytest.mark.parametrize(("key", "behavior"), [("a", "allow"), ("n", "deny")])
def test_dash_decides_only_after_it_was_read_and_confirmed(ranch: Ranch, key: str, behavior: str) -> None:
    listed = dash(ranch)
    with asking(ranch, BASH) as hook:
        listed.shows("permission: Bash", "make release")
        time.sleep(READ)
        listed.press(key)
        listed.shows(f"{behavior} this?")
        listed.press("x")
        listed.shows_no("this?")
        assert not hook.done()
        listed.press(key)
        listed.shows(f"{behavior} this?")
        listed.press("y")
        assert decision(hook)["behavior"] == behavior
    listed.shows(f"Bash: {behavior} by api: dashboard")
    (approval,) = ranch.boss.get("approvals")["approvals"]
    assert (approval["by"], approval["answer"]["behavior"]) == ("api: dashboard", behavior)


def test_dash_allows_no_request_whose_end_was_not_on_the_screen(ranch: Ranch) -> None:
    listed = dash(ranch)
    long = {"tool_name": "Bash", "tool_input": {"command": "\n".join(f"echo {n}" for n in range(60))}}
    with asking(ranch, long) as hook:
        listed.shows("permission: Bash", "echo 3")
        time.sleep(READ)
        listed.press("a")
        listed.shows("scroll to the end")
        for _ in range(30):
            listed.press("J")
        listed.shows("echo 59")
        listed.press("a")
        listed.shows("allow this?")
        listed.press("y")
        assert decision(hook)["behavior"] == "allow"


def test_dash_reads_a_request_that_is_too_long_for_the_list(ranch: Ranch) -> None:
    listed = dash(ranch)
    long = {"tool_name": "Bash", "tool_input": {"command": f"echo start {'x' * 10_000} the-end"}}
    with asking(ranch, long) as hook:
        listed.shows("permission: Bash", "echo start")
        listed.press("Tab")
        for _ in range(30):
            listed.press("C-d")
        listed.shows("the-end")
        time.sleep(READ)
        listed.press("a")
        listed.shows("allow this?")
        listed.press("y")
        assert decision(hook)["behavior"] == "allow"


def test_dash_denies_with_a_message(ranch: Ranch) -> None:
    listed = dash(ranch)
    with asking(ranch, BASH) as hook:
        listed.shows("make release")
        time.sleep(READ)
        listed.press("n")
        listed.shows("deny this?")
        listed.press("m")
        listed.shows("Deny with this message")
        listed.press("not", "Space", "now", "Enter")
        assert decision(hook) == {"behavior": "deny", "message": "not now"}


def test_dash_offers_only_what_the_agent_can_take(ranch: Ranch) -> None:
    refuses = {"edit": "a cow runs no edits", "always": "a cow asks again", "message": "it reads none"}
    given = {"tool": "Bash", "input": {"command": "make release"}, "refuses": refuses}
    ranch.waits("engine", None, 1, "asked", **given)
    listed = dash(ranch)
    listed.shows("permission: Bash", "make release")
    time.sleep(READ)
    listed.press("e")
    listed.shows("a cow runs no edits")
    for key, other, shown in (("a", "A", "a cow asks again"), ("n", "m", "it reads none")):
        listed.press(key)
        listed.shows("this? y: yes, any other key: no")
        listed.press(other)
        listed.shows(shown)


def test_dash_answers_questions_by_number_or_in_words(ranch: Ranch) -> None:
    options = [{"label": "Blue", "description": "calm"}, {"label": "Red", "description": "loud"}]
    questions = [
        {"question": "Which colour?", "header": "Colour", "options": options, "multiSelect": False},
        {"question": "Which name?", "header": "Name", "options": [], "multiSelect": False},
    ]
    listed = dash(ranch)
    with asking(ranch, {"tool_name": "AskUserQuestion", "tool_input": {"questions": questions}}) as hook:
        listed.shows("Which colour?")
        time.sleep(READ)
        for _ in range(5):
            listed.press("J")
        listed.press("a")
        listed.shows("Answer 1 of 2")
        listed.press("2", "Enter")
        listed.shows("Answer 2 of 2")
        listed.press("Ada", "Enter")
        assert decision(hook)["updatedInput"]["answers"] == {"Which colour?": "Red", "Which name?": "Ada"}


def test_dash_says_who_was_first(ranch: Ranch) -> None:
    listed = dash(ranch)
    with asking(ranch, BASH) as hook:
        listed.shows("make release")
        (approval,) = ranch.boss.get("approvals", state="open")["approvals"]
        ranch.boss.post("approvals", approval["id"], "answer", body={"behavior": "deny", "by": "someone"})
        listed.shows("Bash: deny by api: someone")
        assert decision(hook)["behavior"] == "deny"


def test_dash_attaches_a_session_and_comes_back(ranch: Ranch) -> None:
    keep(ranch, "tidy")
    listed = dash(ranch)
    listed.shows("tidy", "REPLY#1")
    listed.press("Enter")
    listed.shows("are you there?", "detach", but="WAITING")
    listed.press("C-\\")
    listed.shows("WAITING 1", "tidy")
    assert ranch.at() == ranch.home


def test_dash_replies_and_shows_the_receipt_screen_and_evidence(ranch: Ranch) -> None:
    keep(ranch, "tidy")
    listed = dash(ranch)
    listed.shows("REPLY#1")
    listed.press("R")
    listed.shows("Reply")
    listed.press("and", "Space", "now?", "Enter")
    listed.shows("REPLY#2 to: and now?")
    listed.press("Right")
    listed.shows("manual mode on")
    listed.press("Right")
    listed.shows("> and now?", "REPLY#2")
    listed.press("Right")
    listed.shows("and now?", "recorded", "acked")
    listed.press("Right")
    listed.shows("hook", "idle", "Stop")


def test_dash_shows_and_decides_for_an_agent_of_another_package(mustang: Path, ranch: Ranch) -> None:
    ranch.remuda.start("wild", "--agent", "mustang")
    listed = dash(ranch)
    listed.shows("wild", "AGENTS 1")
    ranch.remuda("send", "wild", "KICK fence")
    listed.shows("permission: hoof", "line         fence")
    time.sleep(READ)
    listed.press("a")
    listed.shows("allow this?")
    listed.press("y")
    listed.shows("WAITING 1", "kicked fence")
    listed.press("R")
    listed.shows("Reply")
    listed.press("hello", "Enter")
    listed.shows("MUSTANG#2 to: hello")
    listed.press("Right")
    listed.shows("saddle>")


def test_dash_screen_follows_the_program_without_a_poll(ranch: Ranch) -> None:
    ranch.remuda.start("ticker", "--", "sh", "-c", "read one; echo got-$one; read two")
    until(lambda: any(one["name"] == "ticker" for one in ranch.boss.get("sessions")["sessions"]), "it")
    listed = dash(ranch)
    listed.shows("ticker")
    listed.press("Right")
    listed.shows("screen", but="got-")
    with KeeperClient.connect("ticker", ranch.remuda.home / "sessions") as client:
        client.send(ClientConnection.input(b"hello\r"))
        listed.shows("got-hello")


def test_dash_filters_and_shows_all_again(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api, 700)
    ranch.waits("lathe", ranch.docs, 200)
    listed = dash(ranch)
    listed.shows("engine", "lathe")
    listed.press("/", "lat", "Enter")
    listed.shows("2 waiting", "1 with 'lat'", "WAITING 1", "lathe", but="engine")
    listed.press("Escape")
    listed.shows("engine", "lathe")
    listed.press("/", "lat", "Enter")
    listed.shows("1 with 'lat'", but="engine")
    listed.press("Escape", "k")  # in one write: these are two keys, and not Alt with one
    listed.shows("WAITING 2", "engine is done", but="with 'lat'")
    for key, sign in (("?", "any other key: back"), ("/", "Esc: cancel"), ("R", "Reply to")):
        listed.press("Escape", key)
        listed.shows(sign)
    listed.press("Escape", "q")  # ends the line that was open, and then the dashboard
    ranch.bench.until(lambda seen: seen.panes[listed.pane].is_dead, "its end")


def test_dash_marks_what_is_old_while_the_boss_is_gone(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api, 700)
    listed = dash(ranch)
    listed.shows("engine")
    ranch("down", "--force")
    listed.shows("what you see is from", "trying again", "engine")
    ranch("up", "--detach", "--port", "0")
    ranch.waits("lathe", ranch.docs, 200)
    listed.shows("lathe", but="what you see is from")


def test_dash_with_hostile_text_keeps_its_layout(ranch: Ranch) -> None:
    hostile = IN_JSON.replace("\ud800", "").replace("\0", "")
    ranch.waits("engine", ranch.api, 700, cwd=f"/src/{hostile}", message=hostile, title=hostile)
    ranch.waits("wide", ranch.docs, 600, cwd="/src/日本語日本語日本語日本語", message="שלום " * 99)
    ranch.waits("long", None, 500, cwd="/src/long", message="x" * 900_000)
    listed = dash(ranch)
    listed.shows("WAITING 3", MARK)
    for _ in range(2):
        lines = listed.shown().splitlines()
        assert len({cell_len(line.partition("│")[0]) for line in lines[1:-1]}) == 1
        listed.press("G")
        listed.shows("xxxxxxxx")


def test_dash_takes_bytes_that_are_no_text(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api, 700)
    ranch.waits("lathe", ranch.docs, 200)
    listed = dash(ranch)
    listed.shows("engine is done")
    ranch.bench.run("send-keys", "-t", listed.pane, "-H", "ff", "fe", "c3")

    def press_until_marked() -> bool:  # a key that came together with them is lost
        listed.press("j")
        return "lathe is done" in listed.shown()

    until(press_until_marked, "the next agent")


def test_dash_ended_by_a_signal_leaves_the_terminal_as_it_was(ranch: Ranch) -> None:
    listed = dash(ranch)
    shell = (
        f"{' '.join(ranch.remuda_words())} dash; echo ended with $?; stty -a | grep -o ' -*echo '; exec cat"
    )
    ranch.bench.run("respawn-pane", "-k", "-t", listed.pane, shell)
    listed.shows("? keys")
    pane = ranch.bench.pane("work:0.1")
    (process,) = [
        one for one in descendants(pane.pid) if b"dash" in Path(f"/proc/{one}/cmdline").read_bytes()
    ]
    os.kill(process, signal.SIGTERM)
    listed.shows("ended with 143", " echo", but="keys")


def test_dash_stopped_and_continued_is_drawn_again(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api, 700)
    listed = dash(ranch)
    words = " ".join(ranch.remuda_words())
    ranch.bench.run("respawn-pane", "-k", "-t", listed.pane, "bash", "--norc", "-i")
    listed.shows("$")
    listed.press(f"{words} dash", "Enter")
    listed.shows("engine is done")
    listed.press("C-z")
    listed.shows("Stopped", but="engine is done")
    listed.press("fg", "Enter")
    listed.shows("WAITING 1", "engine is done", "? keys")


def test_dash_without_a_terminal_is_an_error(ranch: Ranch) -> None:
    assert "needs a terminal; in a script use 'remuda queue --json'" in ranch("dash", code=4)
