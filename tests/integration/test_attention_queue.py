"""Who waits, as the commands show it: queue, preview, and bootstrap for those that no one told of."""

from __future__ import annotations

import os
import re
import signal

from remuda.tmux.panes import capture
from support.keeper import until
from support.queue_bench import STAY, Ranch, keep

# ── queue ──


def test_queue_lists_who_waits_why_and_where(ranch: Ranch) -> None:
    assert ranch("queue") == "no agent is waiting"
    ranch.waits("engine", ranch.api, 700, message="All done.\nShall I go on?\x1b[31m")
    asked = {"reason": "permission", "tool": "Bash", "input": {"command": "rm -rf build"}, "tool_use_id": "1"}
    ranch.waits("pager", ranch.docs, 300, "asked", **asked)
    ranch.waits("lost", None, 0, pid=os.getpid())
    head, *rows = ranch("queue").split("\n")
    assert head.split() == ["WHO", "WHY", "SINCE", "WHERE", "WHAT"]
    assert [re.sub(r"\s+", " ", re.sub(r"\d+m?s ", "now ", row)) for row in rows] == [
        "engine stopped 11m work:1.0 All done. Shall I go on? [31m",
        "pager permission: Bash 5m docs:0.0 rm -rf build",
        f"lost stopped now pid {os.getpid()} lost is done",
    ]
    assert [item["session"]["pane"] for item in ranch.json("queue")["items"]] == [ranch.api, ranch.docs, None]


def test_queue_agents_and_approvals_format_fields(ranch: Ranch) -> None:
    asked = {"reason": "permission", "tool": "Bash", "input": {"command": "rm -rf build"}, "tool_use_id": "1"}
    ranch.waits("pager", ranch.docs, 300, "asked", **asked)
    assert ranch("queue", "--format", r"{reason}\t{session.pane}") == f"permission\t{ranch.docs}"
    assert ranch("agents", "--format", "{id} {item.reason}") == "id-pager permission"
    assert ranch("approvals", "--format", "{tool}: {input.command}") == "Bash: rm -rf build"
    ranch("dismiss", "id-pager")
    assert ranch("queue", "--history", "--format", "{session_id}") == "id-pager"
    for words in (("queue", "--watch"), ("queue", "--json"), ("agents", "--watch"), ("approvals", "--json")):
        ranch(*words, "--format", "{id}", code=2)


def test_queue_hides_what_was_put_off_until_asked(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api)
    ranch("skip", "--cooldown", "1h")
    assert ranch("queue") == "no agent is waiting; 1 hidden"
    ranch.waits("pager", ranch.docs)
    _, row, note = ranch("queue").split("\n")
    assert (row.split()[0], note) == ("pager", "and 1 hidden; 'remuda queue --all' lists them")
    _, *rows = ranch("queue", "--all").split("\n")
    assert [row.split()[0] for row in rows] == ["pager", "engine"]


def test_queue_reports_what_no_longer_waits(ranch: Ranch) -> None:
    assert ranch("queue", "--history") == "no agent has waited yet"
    ranch.waits("engine", ranch.api, 700)
    ranch.waits("pager", ranch.docs, 300)
    for name in ("engine", "pager"):
        ranch("dismiss", f"id-{name}")
    head, *rows = ranch("queue", "--history").split("\n")
    assert head.split() == ["WHO", "WHY", "WAITED", "ENDED", "THEN", "WHAT"]
    assert [re.sub(r"\s+", " ", re.sub(r"\d+m?s ago", "now", row)) for row in rows] == [
        "pager stopped 5m now dismissed pager is done",
        "engine stopped 11m now dismissed engine is done",
    ]
    (newest,) = ranch.json("queue", "--history", "-n", "1")["items"]
    assert newest["session_id"] == "id-pager"
    ranch("queue", "-n", "1", code=2)


def test_queue_without_tmux_still_lists(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api)
    done = ranch.remuda("queue", env={"TMUX": "/nonexistent/socket,1,0", "PATH": "/nonexistent"})
    assert ranch.api in done.out


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
    # Not SIGINT: anyone who runs the tests in the background may have it ignored.
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


def test_bootstrap_reports_unknown_agents_and_no_other_pane(ranch: Ranch) -> None:
    low = ranch.bench.pane("work:0.1").id
    agent(ranch, ranch.api, "✳ Fix the tests", "Which ones?")
    agent(ranch, ranch.docs, "⠐ Write the docs")
    agent(ranch, low, "no mark at all")
    shown = {one["pane"]: one["state"] for one in ranch.json("bootstrap", "--dry-run")["panes"]}
    assert shown == {ranch.api: "resting", ranch.docs: "working", low: "resting"}
    assert ranch("queue") == "no agent is waiting"
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
