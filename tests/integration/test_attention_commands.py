"""The commands that lead through the queue: a real boss, a real tmux, people in front of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commands import COMMAND, Commands
from keeping import until
from remuda.boss.client import BossClient
from remuda.cli.asking import AskedQueue
from remuda.errors import InvalidOptions, NotInQueue, TmuxError
from remuda.tmux.popup import capture
from tmux_bench import Person, TmuxBench

STAY = "exec sleep 1000"


class Ranch:
    """Sessions `work` (windows of two panes and of one) and `docs`, one person in `work`, and a boss."""

    def __init__(self, tmux: TmuxBench, remuda: Commands) -> None:
        self.bench = tmux
        self.remuda = remuda
        tmux.start("work", "docs")
        tmux.run("split-window", "-d", "-t", "work:0", STAY)
        tmux.run("new-window", "-d", "-t", "work:1", STAY)
        self.person = tmux.person("work")
        self.home = tmux.pane("work:0.0").id
        self.api, self.docs = tmux.pane("work:1").id, tmux.pane("docs").id
        # Servers of other tests are none of ours.
        self.env = {
            "TMUX_TMPDIR": str(tmux.folder),
            "TMUX": f"{tmux.address.path},1,0",
            "TMUX_PANE": self.home,
        }
        self.boss = BossClient()
        self.queue = AskedQueue(self.boss)

    def __call__(self, *words: str, code: int = 0) -> str:
        """As the person types it in his first pane."""
        done = self.remuda(*words, code=code, env=self.env)
        return (done.out or done.err).removesuffix("\n")

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))

    def waits(
        self, who: str, pane: str | None, age: float = 100.0, kind: str = "stopped", **facts: Any
    ) -> None:
        told = {"cwd": f"/src/{who}", "message": f"{who} is done", **facts}
        where = {"pane": pane, "tmux": self.bench.address.path} if pane else {}
        event = {"kind": kind, "session_id": f"id-{who}", "at": time.time() - age, "facts": told | where}
        self.boss.post("events", body={"events": [event]})

    def remuda_words(self) -> list[str]:
        """How a shell in a pane runs it."""
        return ["env", f"REMUDA_HOME={self.remuda.home}", *COMMAND]

    def follow(self, *words: str) -> subprocess.Popen[bytes]:
        self.remuda.env |= self.env
        return self.remuda.begin(*words)

    def at(self, person: Person | None = None) -> str:
        return self.bench.client(person or self.person).pane_id


@pytest.fixture
def down(tmux: TmuxBench, remuda: Commands) -> Ranch:
    """Without a boss."""
    return Ranch(tmux, remuda)


@pytest.fixture
def ranch(down: Ranch) -> Iterator[Ranch]:
    down("up", "--detach", "--port", "0")
    yield down
    down("down", "--force")


# ── without a boss, and without anybody who waits ──


@pytest.mark.parametrize(
    "words",
    [["queue"], ["next"], ["skip"], ["snooze"], ["dismiss"], ["dismiss", "x"], ["preview"], ["bootstrap"]],
    ids=str,
)
def test_command_without_a_boss_says_so_with_a_code_of_its_own(down: Ranch, words: list[str]) -> None:
    assert "the boss does not run" in down(*words, code=7)


@pytest.mark.parametrize("words", [["next"], ["skip"], ["snooze"], ["preview"], ["next", "--show"]], ids=str)
def test_command_with_an_empty_queue_says_so_with_another(ranch: Ranch, words: list[str]) -> None:
    assert ranch(*words, code=3) == "remuda: nobody waits"


def test_segment_tells_down_from_empty_from_waiting(down: Ranch) -> None:
    assert down("segment", "--plain") == "✗ down"
    assert down.json("segment") == {"up": False, "waiting": None, "age": None}
    down("up", "--detach", "--port", "0")
    try:
        assert down("segment", "--plain") == ""
        assert down.json("segment") == {"up": True, "waiting": 0, "age": None}
        down.waits("engine", down.api, 700)
        down.waits("pager", down.docs, 70)
        assert down("segment", "--plain") == "⚠ 2 11m"
        assert down("segment") == "#[fg=yellow,bold]⚠ 2 11m#[default]"
        found = down.json("segment")
        assert (found["up"], found["waiting"]) == (True, 2)
        assert 690 < found["age"] < 1000
    finally:
        down("down", "--force")


# ── queue ──


def test_queue_lists_who_waits_why_and_where(ranch: Ranch) -> None:
    assert ranch("queue") == "nobody waits"
    ranch.waits("engine", ranch.api, 700, message="All done.\nShall I go on?\x1b[31m")
    asked = {"reason": "permission", "tool": "Bash", "input": {"command": "rm -rf build"}, "tool_use_id": "1"}
    ranch.waits("pager", ranch.docs, 300, "asked", **asked)
    ranch.waits("lost", None, 0, pid=os.getpid())
    head, *rows = ranch("queue").split("\n")
    assert head.split() == ["WHO", "WHY", "SINCE", "WHERE", "WHAT"]
    assert [re.sub(r"\s+", " ", re.sub(r"\d+m?s ", "now ", row)) for row in rows] == [
        "engine has stopped 11m work:1.0 All done. Shall I go on? [31m",
        "pager permission: Bash 5m docs:0.0 rm -rf build",
        f"lost has stopped now pid {os.getpid()} lost is done",
    ]
    assert [item["session"]["pane"] for item in ranch.json("queue")["items"]] == [ranch.api, ranch.docs, None]


def test_queue_hides_what_was_put_off_until_asked(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api)
    ranch("skip", "--cooldown", "1h")
    assert ranch("queue") == "nobody waits; 1 put off"
    ranch.waits("pager", ranch.docs)
    _, row, note = ranch("queue").split("\n")
    assert (row.split()[0], note) == ("pager", "and 1 put off; --all lists them")
    _, *rows = ranch("queue", "--all").split("\n")
    assert [row.split()[0] for row in rows] == ["pager", "engine"]


def test_queue_tells_what_no_longer_waits(ranch: Ranch) -> None:
    assert ranch("queue", "--history") == "nobody has waited yet"
    ranch.waits("engine", ranch.api, 700)
    ranch.waits("pager", ranch.docs, 300)
    for name in ("engine", "pager"):
        ranch("dismiss", f"id-{name}")
    head, *rows = ranch("queue", "--history").split("\n")
    assert head.split() == ["WHO", "WHY", "WAITED", "ENDED", "THEN", "WHAT"]
    assert [re.sub(r"\s+", " ", re.sub(r"\d+m?s ago", "now", row)) for row in rows] == [
        "pager has stopped 5m now dismissed pager is done",
        "engine has stopped 11m now dismissed engine is done",
    ]
    (newest,) = ranch.json("queue", "--history", "-n", "1")["items"]
    assert newest["session_id"] == "id-pager"
    ranch("queue", "-n", "1", code=2)


def test_queue_without_tmux_still_lists(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api)
    done = ranch.remuda("queue", env={"TMUX": "/nonexistent/socket,1,0", "PATH": "/nonexistent"})
    assert ranch.api in done.out


# ── next and return ──


def test_next_goes_through_the_queue_and_return_back_to_the_start(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api, 700)
    ranch.waits("pager", ranch.docs, 300)
    assert ranch("next") == "engine (has stopped) in work:1.0; 1 more"
    assert ranch.at() == ranch.api
    found = ranch.json("next")
    assert (found["pane"], found["address"], found["client"]) == (ranch.docs, "docs:0.0", ranch.person.name)
    assert (found["moved"], found["item"]["session_id"]) == (True, "id-pager")
    assert ranch.at() == ranch.docs
    ranch("next")
    assert ranch.at() == ranch.api
    assert ranch("return") == "back in work:0.0"
    assert ranch.at() == ranch.home
    assert "no place to return to" in ranch("return", code=3)


def test_next_shown_goes_nowhere(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api)
    assert ranch("next", "--show") == "engine (has stopped)"
    assert ranch.json("next", "--show")["item"]["message"] == "engine is done"
    assert ranch.at() == ranch.home


def test_next_with_one_who_waits_and_is_shown_says_so(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.home)
    assert ranch("next") == "you are there: engine (has stopped) in work:0.0"
    assert "no place" in ranch("return", code=3)


def test_next_passes_those_that_cannot_be_shown(ranch: Ranch) -> None:
    ranch.waits("gone", "%99", 900)
    ranch.waits("lost", None, 0, pid=os.getpid())
    assert "2 wait, and none of them where tmux could show it" in ranch("next", code=4)
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
    assert "no terminal" in ranch("next", "--client", "nobody", code=4)


def test_next_from_outside_of_tmux_takes_whoever_is_there(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api)
    ranch.env = {"TMUX_TMPDIR": str(ranch.bench.folder)}
    for pane in (ranch.api, ranch.api):
        ranch("next")
        assert ranch.at() == pane
    ranch("return")
    assert ranch.at() == ranch.home


def test_return_needs_no_boss(down: Ranch) -> None:
    assert "no place to return to" in down("return", code=3)


def test_return_without_a_tmux_server_is_an_error(remuda: Commands, home: Path) -> None:
    assert "no tmux server" in remuda.refused("return", code=7, env={"TMUX_TMPDIR": str(home)})


# ── kept sessions ──


def keep(ranch: Ranch, name: str) -> None:
    """An agent in a kept session, that has answered and waits for more."""
    ranch.remuda.start(name, "--agent", "demo")
    ranch.remuda("send", name, "are you there?", "--wait")
    until(lambda: [one for one in ranch.queue.waiting() if one["session"]["name"] == name], "its place")


def kept_panes(ranch: Ranch) -> list[str]:
    """Panes that were opened for kept sessions."""
    listed = ranch.bench.run("list-panes", "-a", "-F", "#{@remuda-session}|#{pane_id}").split("\n")
    return [line.partition("|")[2] for line in listed if not line.startswith("|")]


def test_next_to_a_kept_session_opens_it_once(ranch: Ranch) -> None:
    keep(ranch, "mine")
    assert ranch("next").startswith("mine (has stopped) in work:2.0")
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


# ── skip ──


def test_skip_takes_the_one_shown_else_the_first_else_the_one_named(ranch: Ranch) -> None:
    for name, pane, age in [
        ("a", ranch.api, 900),
        ("b", ranch.docs, 800),
        ("c", "%98", 700),
        ("d", "%99", 600),
    ]:
        ranch.waits(name, pane, age)
    assert ranch("skip") == "skipped a"
    assert ranch("skip", "id-d") == "skipped d"
    ranch.waits("first", "%97", 1000)
    ranch("next")
    assert ranch.at() == ranch.docs
    assert ranch.json("skip")["skipped"]["session_id"] == "id-b"
    assert [item["session_id"] for item in ranch.json("queue")["items"]] == ["id-first", "id-c"]


def test_skip_with_next_goes_on(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api, 700)
    ranch.waits("pager", ranch.docs, 300)
    assert ranch("skip", "--next") == "skipped engine\npager (has stopped) in docs:0.0"
    assert ranch.at() == ranch.docs


def test_skip_for_a_time_is_out_of_sight_for_that_time(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api)
    before = time.time()
    found = ranch.json("skip", "--cooldown", "600")["skipped"]
    assert before + 590 < found["skip_until"] < time.time() + 601


def test_skip_of_one_that_does_not_wait_is_refused(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api)
    ranch.waits("engine", ranch.api, 0.0, "prompted")
    assert "does not wait" in ranch("skip", "id-engine", code=3)
    ranch("skip", "nobody-of-that-name", code=3)


# ── snooze and dismiss ──


def test_snooze_is_out_of_sight_for_its_time_and_awake_when_woken(ranch: Ranch) -> None:
    for name, pane, age in [("a", ranch.api, 900), ("b", ranch.docs, 800), ("c", "%99", 700)]:
        ranch.waits(name, pane, age)
    before = time.time()
    assert re.fullmatch(r"snoozed a for 10m, until (\w+ )?\d\d:\d\d", ranch("snooze"))
    ranch("next")
    found = ranch.json("snooze", "--for", "2h30m")["snoozed"]
    assert found["session_id"] == "id-b"
    assert before + 8999 < found["snooze_until"] < time.time() + 9001
    assert [item["session_id"] for item in ranch.json("queue")["items"]] == ["id-c"]
    _, first, second, third = ranch("queue", "--all").split("\n")
    assert re.search(r"has stopped \(put off, \dm more\)", first)
    assert re.search(r"has stopped \(put off, 2h2\dm more\)", second)
    assert "put off" not in third
    assert ranch("snooze", "id-b", "--wake") == "b is in the queue again"
    assert [item["session_id"] for item in ranch.json("queue")["items"]] == ["id-b", "id-c"]
    ranch("skip", "id-b", "--cooldown", "10m")
    ranch("snooze", "id-b", "--for", "0")
    assert ranch.json("queue")["count"] == 2


def test_snooze_until_a_time_outlives_the_boss_but_not_something_new(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api)
    found = ranch.json("snooze", "engine", "--until", "2099-02-03T09:00+00:00")["snoozed"]
    assert found["snooze_until"] == 4073792400.0
    ranch("down")
    ranch("up", "--detach", "--port", "0")
    assert ranch("queue") == "nobody waits; 1 put off"
    ranch.waits("engine", ranch.api, 50, "prompted")
    ranch.waits("engine", ranch.api, 10)
    assert ranch.json("queue")["count"] == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["engine", "--for", "1h", "--until", "14:30"], "exclude each other"),
        (["engine", "--for", "1h", "--wake"], "exclude each other"),
        (["engine", "--for", "soon"], "write for example 90, 45m or 2h30m"),
        (["engine", "--until", "25:00"], "write for example 14:30"),
        (["engine", "--until", "2001-01-01 09:00"], "is over"),
        (["--wake"], "--wake needs a SESSION"),
    ],
    ids=str,
)
def test_snooze_until_what_cannot_be_is_refused(ranch: Ranch, words: list[str], why: str) -> None:
    ranch.waits("engine", ranch.api)
    assert why in ranch("snooze", *words, code=2)
    assert ranch.json("queue")["count"] == 1


def test_dismiss_takes_it_out_until_it_waits_for_something_new(ranch: Ranch) -> None:
    for name, pane, age in [("a", ranch.api, 900), ("b", ranch.docs, 800)]:
        ranch.waits(name, pane, age)
    # Not the first: what is dismissed is gone.
    assert "whom you see here does not wait" in ranch("dismiss", code=3)
    assert ranch("dismiss", "id-b") == "dismissed b (has stopped)"
    ranch("next")
    assert ranch.json("dismiss")["dismissed"]["resolution"] == "dismissed"
    assert ranch("queue", "--all") == "nobody waits"
    ranch.waits("a", ranch.api, 0.0, "prompted")
    ranch.waits("a", ranch.api, 0.0)
    assert ranch.json("queue")["count"] == 1


def test_dismissed_permission_is_still_asked_for(ranch: Ranch) -> None:
    asked = {"reason": "permission", "tool": "Bash", "input": {"command": "rm -rf build"}, "tool_use_id": "1"}
    ranch.waits("engine", ranch.api, 300, "asked", **asked)
    assert ranch("dismiss", "engine") == "dismissed engine (permission: Bash)"
    assert ranch("queue") == "nobody waits"
    assert "rm -rf build" in ranch("approvals", "engine")


@pytest.mark.parametrize("verb", ["skip", "snooze", "dismiss"])
def test_verb_finds_whom_the_queue_shows_and_nobody_by_half_a_word(ranch: Ranch, verb: str) -> None:
    ranch.waits("left", None, 50, cwd="/one/same")
    ranch.waits("right", None, 50, cwd="/two/same")
    for word in ("engine", ranch.api, "id-eng", "its place"):
        ranch.waits("engine", ranch.api, 0.0, "prompted")
        ranch.waits("engine", ranch.api, 0.0)
        (item,) = (one for one in ranch.json("queue")["items"] if one["session_id"] == "id-engine")
        told = ranch(verb, item["id"] if word == "its place" else word)
        assert told.startswith(("skipped engine", "snoozed engine", "dismissed engine"))
    ranch.waits("engine", ranch.api, 0.0, "prompted")
    ranch.waits("engine", ranch.api, 0.0)
    assert "'same' means 2 sessions; say which: id-right (stopped), id-left (stopped)" in ranch(
        verb, "same", code=2
    )
    assert {row.split("  ")[0] for row in ranch("queue").split("\n")[1:]} == {
        "engine",
        "same id-left",
        "same id-right",
    }
    assert "there is no session 'nobody'" in ranch(verb, "nobody", code=3)
    ranch.waits("engine", ranch.api, 0.0, "prompted")
    assert "engine does not wait; 'remuda queue --all' lists who does" in ranch(verb, "engine", code=3)


@pytest.mark.parametrize("verb", ["skip", "snooze", "dismiss"])
def test_examples_in_the_help_do_what_they_say(ranch: Ranch, verb: str) -> None:
    examples = re.findall(rf"^ +remuda {verb}(.*)$", ranch(verb, "--help"), re.MULTILINE)
    assert len(examples) >= 2
    for words in examples:
        ranch.waits("work", ranch.api, 0.0, "prompted")
        ranch.waits("work", ranch.api, 0.0)
        ranch("next")
        before = ranch.json("queue", "--all")["items"]
        ranch(verb, *words.replace("%12", ranch.api).split(), code=3 if "--next" in words else 0)
        assert ranch.json("queue", "--all")["items"] != before or "--wake" in words


def test_words_of_those_who_wait_are_completed(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api)
    ranch.waits("left", None, 50, cwd="/one/same")
    ranch.waits("right", None, 50, cwd="/two/same")
    ranch("snooze", "engine")
    for verb, begun, wanted in [
        ("skip", "e", ["engine"]),
        ("snooze", "", ["engine", "id-left", "id-right"]),
        ("dismiss", "id-l", ["id-left"]),
        ("reply", "zz", []),
        ("approve", "eng", ["engine"]),
    ]:
        env = {"_REMUDA_COMPLETE": "bash_complete", "COMP_WORDS": f"remuda {verb} {begun}", "COMP_CWORD": "2"}
        offered = ranch.remuda(env=ranch.env | env).out.split()
        assert sorted(word.removeprefix("plain,") for word in offered) == wanted
    ranch("down")
    env = {"_REMUDA_COMPLETE": "bash_complete", "COMP_WORDS": "remuda skip e", "COMP_CWORD": "2"}
    assert ranch.remuda(env=ranch.env | env) == ("\n", "")
    ranch("up", "--detach", "--port", "0")


# ── preview ──


def test_preview_shows_the_pane_of_the_first_or_of_the_one_named(ranch: Ranch) -> None:
    ranch.bench.run("respawn-pane", "-k", "-t", ranch.api, f"printf 'which \\033[31mcolour\\033[m?'; {STAY}")
    until(lambda: "which colour?" in capture(ranch.bench.tmux, ranch.api), "its words")
    ranch.waits("gone", "%99", 900)
    ranch.waits("engine", ranch.api)
    for words in (["preview"], ["preview", "id-engine"], ["preview", ranch.api]):
        assert ranch(*words, "--plain") == "which colour?"
    assert "\x1b[31m" in ranch("preview", "--styled")
    assert ranch.json("preview")["lines"][0] == "which colour?"
    assert ranch.json("preview")["pane"] == ranch.api


def test_preview_of_a_kept_session_shows_its_screen(ranch: Ranch) -> None:
    keep(ranch, "mine")
    assert "REPLY#1 to: are you there?" in ranch("preview", "mine", "--plain")
    assert ranch.json("preview")["name"] == "mine"


def test_preview_of_what_cannot_be_seen_says_where_it_is(ranch: Ranch) -> None:
    ranch.waits("lost", None, 0, pid=os.getpid())
    assert f"pid {os.getpid()}, in /src/lost" in ranch("preview", code=4)
    ranch("preview", "%99", code=3)
    ranch("preview", "%x", code=2)


def test_preview_follows_what_changes(ranch: Ranch) -> None:
    gate = ranch.bench.folder / "gate"
    os.mkfifo(gate)
    ranch.bench.run("respawn-pane", "-k", "-t", ranch.api, f"echo one; read x < {gate}; echo two; {STAY}")
    until(lambda: "one" in capture(ranch.bench.tmux, ranch.api), "its first words")
    following = ranch.follow("preview", ranch.api, "--follow", "--plain")
    assert following.stdout is not None
    assert following.stdout.readline() == b"\f\n"
    assert following.stdout.readline() == b"one\n"
    gate.write_text("go\n")
    shown = [following.stdout.readline() for _ in range(3)]
    assert shown == [b"\f\n", b"one\n", b"two\n"]
    # Not SIGINT: whoever runs the tests in the background may have it ignored.
    following.terminate()
    assert following.wait() == -signal.SIGTERM


# ── bootstrap ──


def agent(ranch: Ranch, pane: str, title: str, shown: str = "") -> None:
    """A program by the name of an agent, with its title, in a pane."""
    link = ranch.bench.folder / "claude"
    if not link.exists():
        link.symlink_to("/bin/sleep")
    ranch.bench.run("respawn-pane", "-k", "-t", pane, f"printf '{shown}'; exec {link} 1000")
    ranch.bench.run("select-pane", "-t", pane, "-T", title)
    ranch.bench.until(lambda seen: seen.panes[pane].command == "claude", "the agent")
    ranch.bench.run("select-pane", "-t", ranch.home)


def test_bootstrap_tells_of_unknown_agents_and_of_no_other_pane(ranch: Ranch) -> None:
    low = ranch.bench.pane("work:0.1").id
    agent(ranch, ranch.api, "✳ Fix the tests", "Which ones?")
    agent(ranch, ranch.docs, "⠐ Write the docs")
    agent(ranch, low, "no mark at all")
    shown = {one["pane"]: one["state"] for one in ranch.json("bootstrap", "--dry-run")["panes"]}
    assert shown == {ranch.api: "resting", ranch.docs: "working", low: "resting"}
    assert ranch("queue") == "nobody waits"
    ranch("bootstrap", "--quiet", "0.1")
    assert {item["session"]["pane"] for item in ranch.json("queue")["items"]} == {ranch.api, low}
    assert "Which ones?" in [item["message"] for item in ranch.json("queue")["items"]]
    assert {item["session"]["pid"] for item in ranch.json("queue")["items"]} == {
        ranch.bench.panes().panes[pane].pid for pane in (ranch.api, low)
    }
    again = {one["state"] for one in ranch.json("bootstrap")["panes"]}
    assert again == {"known"}


def test_bootstrap_then_the_agents_own_hook_makes_one_item(ranch: Ranch) -> None:
    agent(ranch, ranch.api, "✳ Fix the tests")
    ranch("bootstrap")
    ranch.waits("engine", ranch.api, 0.0)
    (item,) = ranch.json("queue")["items"]
    assert item["session_id"] == "id-engine"
    ranch("next")
    assert ranch.at() == ranch.api


# ── keys ──


@pytest.fixture
def keyed(ranch: Ranch) -> Ranch:
    """With our keys in the server."""
    ranch("hooks", "install", "--tmux", "--yes")
    ranch.bench.run("set-option", "-g", "status-interval", "1")
    return ranch


def press(ranch: Ranch, key: bytes) -> None:
    """Behind the prefix."""
    ranch.person.press(b"\x02" + key)


def test_keys_lead_through_the_queue_and_back(keyed: Ranch) -> None:
    keyed.waits("engine", keyed.api, 700)
    keyed.waits("pager", keyed.docs, 300)
    until(lambda: "⚠ 2 11m".encode() in keyed.person.seen, "the status line")
    press(keyed, b"\t")
    until(lambda: keyed.at() == keyed.api, "the first")
    until(lambda: b"engine (has stopped) in work:1.0; 1 more" in keyed.person.seen, "the message")
    press(keyed, b"S")
    until(lambda: keyed.at() == keyed.docs, "the second")
    until(lambda: b"skipped engine; pager (has stopped) in docs:0.0" in keyed.person.seen, "the message")
    press(keyed, b"B")
    until(lambda: keyed.at() == keyed.home, "the way back")
    press(keyed, b"B")
    until(lambda: b"there is no place to return to" in keyed.person.seen, "the message")


def test_key_with_an_empty_queue_or_without_a_boss_says_so(keyed: Ranch) -> None:
    press(keyed, b"\t")
    until(lambda: b"nobody waits" in keyed.person.seen, "the message")
    keyed("down", "--force")
    for key in (b"\t", b"g"):
        keyed.person.seen.clear()
        press(keyed, key)
        until(lambda: b"the boss does not run" in keyed.person.seen, "the message")
    until(lambda: "✗ down".encode() in keyed.person.seen, "the status line")
    assert keyed.at() == keyed.home
    keyed("up", "--detach", "--port", "0")


def test_key_opens_a_popup_in_which_one_is_chosen(keyed: Ranch) -> None:
    keyed.waits("engine", keyed.api, 700)
    keyed.waits("pager", keyed.docs, 300, message="Which colour?")
    press(keyed, b"g")
    until(lambda: b"Enter go" in keyed.person.seen, "the list")
    keyed.person.press(b"j")
    until(lambda: b"Which colour?" in keyed.person.seen, "what it says")
    keyed.person.press(b"\r")
    until(lambda: keyed.at() == keyed.docs, "the one chosen")


def test_popup_inside_a_terminal_shows_the_list_and_puts_off(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api, 700)
    ranch.waits("gone", "%99", 300)
    ranch.waits("lathe", "%98", 200)
    ranch.waits("pager", ranch.docs, 100)
    command = " ".join(["exec", *ranch.remuda_words(), "popup", "--inside"])
    low = ranch.bench.pane("work:0.1").id
    ranch.bench.run("set-option", "-p", "-t", low, "remain-on-exit", "on")
    ranch.bench.run("respawn-pane", "-k", "-t", low, command)

    def shown() -> str:
        return "\n".join(capture(ranch.bench.tmux, low))

    until(lambda: "Enter go" in shown(), "the list")
    ranch.bench.run("send-keys", "-t", low, "2")
    until(lambda: "is in no tmux pane" in shown(), "why not")
    ranch.bench.run("send-keys", "-t", low, "k", "s")
    until(lambda: "engine" not in shown(), "the end of the first")
    ranch.bench.run("send-keys", "-t", low, "z")
    until(lambda: "gone" not in shown(), "the end of the second")
    ranch.bench.run("send-keys", "-t", low, "d")
    until(lambda: "lathe" not in shown(), "the end of the third")
    items = {one["session_id"]: one for one in ranch.json("queue", "--all")["items"]}
    assert set(items) == {"id-engine", "id-gone", "id-pager"}
    assert items["id-gone"]["snooze_until"] > time.time() + 300
    ranch.bench.run("send-keys", "-t", low, "q")
    ranch.bench.until(lambda seen: seen.panes[low].is_dead, "its end")


def test_popup_without_a_terminal_or_a_client_is_an_error(ranch: Ranch) -> None:
    assert "needs a terminal" in ranch("popup", "--inside", code=4)
    assert "no terminal nobody" in ranch("popup", "--client", "nobody", code=4)


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


# ── hooks … --tmux ──


def test_hooks_install_tmux_is_shown_first_merged_and_exactly_undone(down: Ranch) -> None:
    conf = down.remuda.home / ".tmux.conf"
    conf.write_bytes(b"set -g mouse on # \xff")
    assert "give --yes" in down.remuda("hooks", "install", "--tmux", code=2, env=down.env).err
    assert conf.read_bytes() == b"set -g mouse on # \xff"
    shown = down("hooks", "install", "--tmux", "--next", "N", "--popup", "", "--yes")
    assert "+bind-key -T prefix N " in shown
    assert "changed ~/.tmux.conf\nand in the tmux server that runs" in shown
    assert conf.read_bytes().startswith(b"set -g mouse on # \xff\n# >>> remuda")
    assert down.json("hooks", "show", "--tmux") == {"files": [str(conf)], "keys": ["B", "N", "S"]}
    again = down("hooks", "install", "--tmux", "--next", "N", "--popup", "", "--yes")
    assert again.startswith("~/.tmux.conf: already there; nothing to change")
    down("hooks", "uninstall", "--tmux", "--yes")
    assert conf.read_bytes() == b"set -g mouse on # \xff"
    assert down.json("hooks", "show", "--tmux") == {"files": [], "keys": []}
    assert "no lines of ours" in down("hooks", "uninstall", "--tmux", "--yes")


def test_hooks_install_tmux_tells_of_keys_that_are_taken(down: Ranch) -> None:
    down.bench.run("bind-key", "S", "list-buffers")
    shown = down("hooks", "install", "--tmux", "--yes", "--conf", str(down.remuda.home / "mine.conf"))
    assert "note: prefix S is bound already, and will mean ours: bind-key -T prefix S list-buffers" in shown
    down("hooks", "uninstall", "--tmux", "--yes", "--conf", str(down.remuda.home / "mine.conf"))
    assert not (down.remuda.home / "mine.conf").exists()
    assert "list-buffers" in down.bench.run("list-keys", "-T", "prefix", "S")


def test_hooks_install_tmux_without_a_server_or_without_tmux(remuda: Commands) -> None:
    nowhere = {"TMUX_TMPDIR": str(remuda.home)}
    done = remuda("hooks", "install", "--tmux", "--yes", env=nowhere)
    assert "changed ~/.tmux.conf" in done.out
    assert "server that runs" not in done.out
    assert "no tmux server runs here" in remuda("hooks", "show", "--tmux", env=nowhere).out
    missing = remuda.refused("hooks", "install", "--tmux", "--yes", code=127, env={"PATH": "/nonexistent"})
    assert "there is no tmux here" in missing
