"""All agents that the boss knows, and lists that follow what happens: on a terminal, in a pipe, as JSON."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from typing import Any

from remuda.tmux.panes import capture
from support.keeper import until
from support.queue_bench import Ranch, keep


class Screen:
    """A window of tmux in which one command of ours runs."""

    def __init__(self, ranch: Ranch, *words: str) -> None:
        self._ranch = ranch
        shown = shlex.join([*ranch.remuda_words(), *words])
        run = f"trap : INT; {shown}; echo left with $?; exec sleep 1000"
        self.pane = ranch.bench.run("new-window", "-d", "-P", "-F", "#{pane_id}", "-t", "docs", run)

    def lines(self) -> list[str]:
        return [line.rstrip() for line in capture(self._ranch.bench.tmux, self.pane) if line.strip()]

    def wait_for(self, text: str) -> list[str]:
        until(lambda: any(text in line for line in self.lines()), text)
        return self.lines()

    def press(self, key: str) -> None:
        self._ranch.bench.run("send-keys", "-t", self.pane, key)


def next_document(following: subprocess.Popen[bytes]) -> Any:
    assert following.stdout
    return json.loads(following.stdout.readline())


def test_agents_lists_those_who_work_beside_those_who_wait(ranch: Ranch) -> None:
    ranch.waits("api", ranch.api)
    ranch.waits("web", None, kind="prompted", title="a\x1b[31m title")
    head, api, web = ranch("agents").splitlines()
    assert head.split() == ["WHO", "STATE", "WHY", "SINCE", "WHERE", "CWD", "WHAT"]
    assert api.split()[:3] == ["api", "idle", "stopped"]
    assert "work:1.0" in api
    assert api.endswith("/src/api  api is done")
    assert web.split()[:4] == ["web", "thinking", "-", "1m"]
    assert "\x1b" not in web
    told = {one["id"]: one for one in ranch.json("agents")["sessions"]}
    assert told["id-web"]["item"] is None
    assert told["id-api"]["item"]["reason"] == "stopped"
    words = {number: (one["state"], one["agent_state"]) for number, one in told.items()}
    assert words == {"id-web": ("working", "thinking"), "id-api": ("stopped", "idle")}


def test_agents_shows_a_kept_one_and_with_all_one_that_has_ended(ranch: Ranch) -> None:
    keep(ranch, "tidy")
    ranch.waits("old", None)
    ranch.waits("old", None, age=1, kind="ended")
    assert [line.split()[0] for line in ranch("agents").splitlines()] == ["WHO", "tidy"]
    *_, old = ranch("agents", "--all").splitlines()
    assert old.split()[:2] == ["old", "dead"]


def test_agents_says_what_to_do_when_there_are_none(ranch: Ranch) -> None:
    assert "remuda setup boss" in ranch("agents")


def test_lists_need_a_boss(down: Ranch) -> None:
    for words in (["agents"], ["agents", "--watch"], ["queue", "--watch"]):
        assert "remuda boss up --detach" in down(*words, code=7)


def test_queue_on_a_terminal_follows_and_waits_for_a_boss_that_comes_back(ranch: Ranch) -> None:
    screen = Screen(ranch, "queue", "--watch")
    screen.wait_for("no agent is waiting")
    ranch.waits("api", None)
    assert len(screen.wait_for("api is done")) == 2
    ranch("down")
    assert "waiting until the boss is back" in screen.wait_for("the boss")[-1]
    ranch("up", "--detach", "--port", "0")
    screen.wait_for("api is done")
    screen.press("C-c")
    assert screen.wait_for("left with 0") == ["left with 0"]


def test_list_that_is_longer_than_the_terminal_ends_in_how_much_is_missing(ranch: Ranch) -> None:
    for number in range(60):
        ranch.waits(f"agent{number:02}", None, age=100 - number)
    screen = Screen(ranch, "agents", "--watch")
    screen.wait_for("more lines")
    until(lambda: screen.lines()[0].startswith("WHO"), "a picture of the window's last size")
    lines = screen.lines()
    assert lines[1].startswith("agent00")
    assert lines[-1] == f"and {61 - len(lines) + 1} more lines"


def test_changes_of_the_queue_are_lines_of_json(ranch: Ranch) -> None:
    following = ranch.follow("queue", "--watch", "--json")
    assert next_document(following)["items"] == []
    ranch.waits("web", None, kind="prompted")  # changes nothing in the queue
    ranch.waits("api", None)
    assert [item["session_id"] for item in next_document(following)["items"]] == ["id-api"]
    ranch("down")
    ranch("up", "--detach", "--port", "0")
    ranch.waits("api", None, age=1, kind="prompted")
    assert next_document(following)["items"] == []
    following.send_signal(signal.SIGINT)
    assert following.wait(20) == 0


def test_changes_in_a_pipe_are_lists_apart(ranch: Ranch) -> None:
    ranch.waits("api", None)
    following = ranch.follow("queue", "--watch")
    assert following.stdout
    assert [following.stdout.readline().split()[0:1] for _ in range(3)] == [[b"WHO"], [b"api"], []]
    ranch.waits("api", None, age=1, kind="prompted")
    assert following.stdout.readline() == b"no agent is waiting\n"


def test_history_is_not_followed(ranch: Ranch) -> None:
    assert "--watch cannot be combined with --history" in ranch("queue", "--watch", "--history", code=2)
