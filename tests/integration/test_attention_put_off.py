"""The commands that take someone out of the queue, for a time or for good: skip, snooze and dismiss."""

from __future__ import annotations

import re
import time

import pytest

from support.queue_bench import Ranch

# ── skip ──


def test_skip_takes_the_one_shown_else_the_first_else_the_one_named(ranch: Ranch) -> None:
    for name, pane, age in [
        ("a", ranch.api, 900),
        ("b", ranch.docs, 800),
        ("c", "%98", 700),
        ("d", "%99", 600),
    ]:
        ranch.waits(name, pane, age)
    assert ranch("skip", "--cooldown", "1h") == "skipped a"
    assert ranch("skip", "id-d", "--cooldown", "1h") == "skipped d"
    ranch.waits("first", "%97", 1000)
    ranch("next")
    assert ranch.at() == ranch.docs
    assert ranch.json("skip")["skipped"]["session_id"] == "id-b"
    assert [item["session_id"] for item in ranch.json("queue")["items"]] == ["id-first", "id-c"]


def test_skip_with_next_goes_on(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api, 700)
    ranch.waits("pager", ranch.docs, 300)
    assert ranch("skip", "--next") == "skipped engine\npager (stopped) in docs:0.0"
    assert ranch.at() == ranch.docs


def test_skip_for_a_time_is_out_of_sight_for_that_time(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api)
    before = time.time()
    found = ranch.json("skip", "--cooldown", "600")["skipped"]
    assert before + 590 < found["skip_until"] < time.time() + 601


def test_skip_of_one_that_does_not_wait_is_refused(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api)
    ranch.waits("engine", ranch.api, 0.0, "prompted")
    assert "is not waiting" in ranch("skip", "id-engine", code=3)
    ranch("skip", "nobody-of-that-name", code=3)


# ── snooze ──


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
    assert re.search(r"stopped \(hidden for \dm\)", first)
    assert re.search(r"stopped \(hidden for 2h2\dm\)", second)
    assert "hidden" not in third
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
    assert ranch("queue") == "no agent is waiting; 1 hidden"
    ranch.waits("engine", ranch.api, 50, "prompted")
    ranch.waits("engine", ranch.api, 10)
    assert ranch.json("queue")["count"] == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["engine", "--for", "1h", "--until", "14:30"], "cannot be combined"),
        (["engine", "--for", "1h", "--wake"], "cannot be combined"),
        (["engine", "--for", "soon"], "write for example 90s, 45m or 2h30m"),
        (["engine", "--until", "25:00"], "write for example 14:30"),
        (["engine", "--until", "2001-01-01 09:00"], "is in the past"),
        (["--wake"], "--wake needs a SESSION"),
    ],
    ids=str,
)
def test_snooze_until_what_cannot_be_is_refused(ranch: Ranch, words: list[str], why: str) -> None:
    ranch.waits("engine", ranch.api)
    assert why in ranch("snooze", *words, code=2)
    assert ranch.json("queue")["count"] == 1


# ── dismiss ──


def test_dismiss_takes_it_out_until_it_waits_for_something_new(ranch: Ranch) -> None:
    for name, pane, age in [("a", ranch.api, 900), ("b", ranch.docs, 800)]:
        ranch.waits(name, pane, age)
    # Not the first: what is dismissed is gone.
    assert "the agent in this pane is not waiting" in ranch("dismiss", code=3)
    assert ranch("dismiss", "id-b") == "dismissed b (stopped)"
    ranch("next")
    assert ranch.json("dismiss")["dismissed"]["resolution"] == "dismissed"
    assert ranch("queue", "--all") == "no agent is waiting"
    ranch.waits("a", ranch.api, 0.0, "prompted")
    ranch.waits("a", ranch.api, 0.0)
    assert ranch.json("queue")["count"] == 1


def test_dismissed_permission_is_still_asked_for(ranch: Ranch) -> None:
    asked = {"reason": "permission", "tool": "Bash", "input": {"command": "rm -rf build"}, "tool_use_id": "1"}
    ranch.waits("engine", ranch.api, 300, "asked", **asked)
    assert ranch("dismiss", "engine") == "dismissed engine (permission: Bash)"
    assert ranch("queue") == "no agent is waiting"
    assert "rm -rf build" in ranch("approvals", "engine")


# ── whom their words mean ──


@pytest.mark.parametrize("verb", ["skip", "snooze", "dismiss"])
def test_verb_finds_agents_of_the_queue_by_whole_words_only(ranch: Ranch, verb: str) -> None:
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
    assert "'same' matches 2 sessions; use one of these ids: id-right (stopped), id-left (stopped)" in ranch(
        verb, "same", code=2
    )
    assert {row.split("  ")[0] for row in ranch("queue").split("\n")[1:]} == {
        "engine",
        "same id-left",
        "same id-right",
    }
    assert "session 'nobody' not found" in ranch(verb, "nobody", code=3)
    ranch.waits("engine", ranch.api, 0.0, "prompted")
    assert "engine is not waiting; 'remuda queue --all' lists all waiting agents, also hidden ones" in ranch(
        verb, "engine", code=3
    )


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


# ── later ──


def test_later_hides_for_ten_minutes_or_for_a_time_and_zero_shows_again(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api)
    assert re.fullmatch(r"engine is hidden for 10m, until (\w+ )?\d\d:\d\d", ranch("later", "engine"))
    before = time.time()
    found = ranch.json("later", "engine", "2h30m")["item"]
    assert before + 8999 < found["snooze_until"] < time.time() + 9001
    assert ranch("queue") == "no agent is waiting; 1 hidden"
    assert ranch("later", "engine", "0") == "engine is in the queue again"
    assert ranch.json("queue")["count"] == 1


def test_later_end_makes_it_the_last_and_never_removes_it(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api, 900)
    ranch.waits("pager", ranch.docs, 800)
    assert ranch("later", "engine", "end") == "engine is hidden for 30s, then last in the queue"
    assert [item["session_id"] for item in ranch.json("queue", "--all")["items"]] == ["id-pager", "id-engine"]
    assert (
        ranch("later", ranch.docs, "never")
        == "pager is removed from the queue until it waits for something new"
    )
    assert [item["session_id"] for item in ranch.json("queue", "--all")["items"]] == ["id-engine"]


def test_later_takes_the_beginning_of_a_name_and_asks_about_a_typing_mistake(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api)
    ranch.waits("english", ranch.docs)
    assert ranch.json("later", "engi")["item"]["session_id"] == "id-engine"
    refused = ranch("later", "eng", code=2)
    assert "'eng' matches 2 sessions: engine, english" in refused
    assert "session 'egnine' not found; did you mean 'engine'? 'remuda ls' lists all" in ranch(
        "later", "egnine", code=3
    )
    assert "did you mean 'engine'?" in ranch("approve", "egnine", "--yes", code=3)
    # What answers or types takes no beginning of a name: another session may have it tomorrow.
    assert "'engi'" in ranch("approve", "engi", "--yes", code=3)
    assert "session 'engi' not found" in ranch("reply", "engi", "hello", code=3)


def test_later_of_what_is_no_time_says_what_is_one(ranch: Ranch) -> None:
    ranch.waits("engine", ranch.api)
    assert "'soon' is not a time; write for example 90s, 45m or 2h30m, or 'end' or 'never'" in ranch(
        "later", "engine", "soon", code=2
    )
    ranch.waits("engine", ranch.api, 0.0, "prompted")
    assert "engine is not waiting" in ranch("later", "engine", code=3)
