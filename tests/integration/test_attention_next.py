"""The commands that lead to who waits, and back: next and return, and what is said when they lead nowhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuda.errors import InvalidOptions, NotInQueue, TmuxError
from remuda.tmux.panes import capture
from support.commands import COMMAND, Commands
from support.keeper import Start, until
from support.queue_bench import Ranch, keep
from support.tmux_attention import TmuxBench
from support.watcher import Watcher

# ── next and return ──


def test_next_goes_through_the_queue_and_return_back_to_the_start(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api, 700)
    ranch.waits("pager", ranch.docs, 300)
    assert ranch("next") == "engine (stopped) in work:1.0; 1 more"
    assert ranch.at() == ranch.api
    found = ranch.json("next")
    assert (found["pane"], found["address"], found["client"]) == (ranch.docs, "docs:0.0", ranch.person.name)
    assert (found["moved"], found["item"]["session_id"]) == (True, "id-pager")
    assert ranch.at() == ranch.docs
    ranch("next")
    assert ranch.at() == ranch.api
    assert ranch("return") == "back in work:0.0"
    assert ranch.at() == ranch.home
    assert "no pane to return to" in ranch("return", code=3)


def test_next_shown_goes_nowhere(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api)
    assert ranch("next", "--show") == "engine (stopped)"
    assert ranch.json("next", "--show")["item"]["message"] == "engine is done"
    assert ranch.at() == ranch.home


def test_next_with_one_who_waits_and_is_shown_says_so(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.home)
    assert ranch("next") == "already there: engine (stopped) in work:0.0"
    assert "no pane to return to" in ranch("return", code=3)


def test_next_passes_those_that_cannot_be_shown(ranch: Ranch) -> None:
    ranch.waits("gone", "%99", 900)
    ranch.waits("lost", None, 0, pid=os.getpid())
    assert "2 agents are waiting, but not in a tmux pane" in ranch("next", code=4)
    ranch.waits("engine", ranch.api)
    assert ranch("next").startswith("engine")
    assert ranch.at() == ranch.api


def test_next_for_another_client_takes_that_one(ranch: Ranch) -> None:
    ranch.bench.start("far")
    second = ranch.bench.person("docs")
    far = ranch.bench.pane("far").id
    ranch.waits("engine", far)
    ranch("next", "--client", second.name)
    assert (ranch.at(second), ranch.at()) == (far, ranch.home)
    ranch("return", "--client", second.name)
    assert ranch.at(second) == ranch.docs
    assert "no client nobody" in ranch("next", "--client", "nobody", code=4)


def test_next_from_outside_of_tmux_moves_no_client_unless_asked(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api)
    ranch.env = {"TMUX_TMPDIR": str(ranch.bench.folder)}
    for words in (["next"], ["skip", "--next", "--cooldown", "0"]):
        refused = ranch(*words, code=4)
        assert "1 agent is waiting, but not in a tmux pane that can be shown here" in refused
        assert f"attach -t {ranch.api}" in refused
    assert "not inside tmux" in ranch("return", code=4)
    assert ranch.at() == ranch.home
    for _ in range(2):
        ranch("next", "--elsewhere")
        assert ranch.at() == ranch.api
    ranch("return", "--elsewhere")
    assert ranch.at() == ranch.home


def test_next_inside_another_tmux_server_moves_no_client_of_the_first(ranch: Ranch, home: Path) -> None:
    ranch.waits("engine", ranch.api)
    other = TmuxBench(home)
    other.start("other")
    try:
        ranch.env |= {"TMUX": f"{other.address.path},1,0", "TMUX_PANE": other.pane("other").id}
        assert "engine is in tmux pane work:1.0" in ranch("next", code=4)
        assert ranch.at() == ranch.home
    finally:
        other.close()


def test_next_outside_of_tmux_attaches_a_kept_session_to_this_terminal(ranch: Ranch, start: Start) -> None:
    keep(ranch, "mine")
    ranch.waits("engine", ranch.api, 5000)
    env = {**ranch.remuda.env, "TMUX_TMPDIR": str(ranch.bench.folder)}
    for name, words in (("a", ["next"]), ("b", ["popup"])):
        terminal = start(name, [*COMMAND, *words], cols=100, rows=30, env=env)
        watcher = Watcher(terminal.hello())
        if words == ["popup"]:
            watcher.until_shows("Enter go")
            watcher.press(b"j\r")
        watcher.until_shows("REPLY#1")
    assert ranch.at() == ranch.home


def test_return_needs_no_boss(down: Ranch) -> None:
    assert "no pane to return to" in down("return", code=3)


def test_return_without_a_tmux_server_is_an_error(remuda: Commands, home: Path) -> None:
    assert "no tmux server" in remuda.refused("return", code=7, env={"TMUX_TMPDIR": str(home)})


# ── kept sessions ──


def kept_panes(ranch: Ranch) -> list[str]:
    """Panes that were opened for kept sessions."""
    listed = ranch.bench.run("list-panes", "-a", "-F", "#{@remuda-session}|#{pane_id}").split("\n")
    return [line.partition("|")[2] for line in listed if not line.startswith("|")]


def test_next_to_a_kept_session_opens_it_once(ranch: Ranch) -> None:
    keep(ranch, "mine")
    assert ranch("next").startswith("mine (stopped) in work:2.0")
    (pane,) = kept_panes(ranch)
    assert ranch.at() == pane
    until(lambda: any("REPLY#1" in line for line in capture(ranch.bench.tmux, pane)), "the session")
    ranch("return")
    assert ranch.at() == ranch.home
    ranch("next")
    assert (ranch.at(), kept_panes(ranch)) == (pane, [pane])
    ranch("return")
    ranch.bench.run("kill-pane", "-t", pane)
    ranch("next")
    (another,) = kept_panes(ranch)
    assert ranch.at() == another
    # The mark alone says so: nothing there looks like a view of it.
    ranch("return")
    ranch.bench.run("kill-pane", "-t", another)
    ranch.bench.run("set-option", "-p", "-t", ranch.docs, "@remuda-session", "mine")
    ranch("next")
    assert ranch.at() == ranch.docs


def test_next_to_a_kept_session_that_the_user_shows_himself_goes_there(ranch: Ranch) -> None:
    keep(ranch, "mine")
    command = " ".join(["exec", *ranch.remuda_words(), "attach", "mine"])
    ranch.bench.run("respawn-pane", "-k", "-t", ranch.docs, command)
    until(lambda: any("REPLY#1" in line for line in capture(ranch.bench.tmux, ranch.docs)), "the view")
    ranch("next")
    assert (ranch.at(), kept_panes(ranch)) == (ranch.docs, [])


# ── without a boss, and without anybody who waits ──


@pytest.mark.parametrize(
    "words",
    [["queue"], ["next"], ["skip"], ["snooze"], ["dismiss"], ["dismiss", "x"], ["preview"], ["bootstrap"]],
    ids=str,
)
def test_command_without_a_boss_says_so_with_a_code_of_its_own(down: Ranch, words: list[str]) -> None:
    assert "the boss is not running" in down(*words, code=7)


@pytest.mark.parametrize("words", [["next"], ["skip"], ["snooze"], ["preview"], ["next", "--show"]], ids=str)
def test_command_with_an_empty_queue_says_so_with_another(ranch: Ranch, words: list[str]) -> None:
    assert ranch(*words, code=3) == "remuda: no agent is waiting"


# ── asked of the boss itself ──


def test_navigate_with_what_cannot_be_is_refused_by_the_boss(ranch: Ranch) -> None:
    good = {"action": "next", "client": ranch.person.name, "tmux": ranch.bench.address.path}
    with pytest.raises(NotInQueue):
        ranch.boss.post("navigate", body=good)
    ranch.waits("engine", ranch.api)
    for bad in ({"tmux": "relative"}, {"tmux": ""}, {"tmux": "/a\0b"}, {"client": "a\0"}, {"action": "fly"}):
        with pytest.raises(InvalidOptions):
            ranch.boss.post("navigate", body=good | bad)
    for bad in ({"tmux": "/nonexistent/x"}, {"client": "nobody"}):
        with pytest.raises(TmuxError):
            ranch.boss.post("navigate", body=good | bad | {"action": "return"})
    assert ranch.at() == ranch.home
    assert ranch.boss.post("navigate", body=good)["told"].startswith("engine")
    assert ranch.at() == ranch.api
