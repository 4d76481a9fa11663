"""The commands that take somebody out of the queue, for a time or for good: skip, snooze and dismiss."""

from __future__ import annotations

import re
import time

import pytest

from queueing import Ranch

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


# ── dismiss ──


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


# ── whom their words mean ──


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
