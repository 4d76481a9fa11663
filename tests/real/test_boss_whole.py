"""The boss, whole: three Claude Codes in panes, two kept ones, a human, a phone, and a kill in the middle."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.boss.evidence.reconcile import CYCLE
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support.boss_whole import BACK, NEXT, Ranch
from support.keeper import until
from support.real_sessions import QUESTION

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]


@pytest.fixture
def ranch(home: Path, model: LoopbackModel, cli: RealCli) -> Iterator[Ranch]:
    whole = Ranch(home, model, cli)
    yield whole
    whole.close()


def test_queue_of_five_agents_is_right_after_each_step_and_after_a_kill_of_the_boss(ranch: Ranch) -> None:
    ranch.start()
    ranch.until_queue()
    three_of_them_stop(ranch)
    a_permission_is_given_with_another_input_and_only_once(ranch)
    a_question_is_answered(ranch)
    the_service_refuses(ranch)
    one_is_interrupted(ranch)
    one_is_killed(ranch)
    the_human_goes_through_the_queue_and_back(ranch)
    replies_reach_those_whom_they_are_for(ranch)
    before = three_ask_leave(ranch)
    the_boss_is_killed_and_work_goes_on(ranch)
    the_boss_is_back_and_knows_everything(ranch, before)
    what_was_asked_before_is_answered(ranch)
    a_kept_one_is_killed(ranch)
    nothing_is_missing_and_nothing_doubled(ranch)


def three_of_them_stop(ranch: Ranch) -> None:
    for name in ("one", "alpha", "two"):
        ranch.prompt(name, f"hello {name}")
        ranch.becomes(name, "stopped")
        ranch.until_says(name, f"REPLY#1 to: hello {name}")


def a_permission_is_given_with_another_input_and_only_once(ranch: Ranch) -> None:
    ranch.prompt("one", "RUNBASH touch made; echo as asked")
    ranch.becomes("one", "permission")
    request = ranch.asked("one")
    assert request["input"]["command"] == "touch made; echo as asked"
    edited = {"command": "touch edited; echo as edited", "description": "x"}
    assert ranch.answer(request, behavior="allow", updated_input=edited, by="phone")[0] == 200
    status, told = ranch.answer(request, behavior="deny", by="tablet")
    assert (status, told["error"]["code"]) == (409, "ALREADY_ANSWERED")
    assert told["error"]["message"] == "api: phone has already decided: allow"
    refused = ranch.remuda.refused("approve", request["id"], "--yes", code=8)
    assert "api: phone has already decided: allow" in refused
    ranch.until_result("one", "as edited")
    ranch.becomes("one", "stopped")
    assert (ranch.cli.project / "edited").exists()
    assert not (ranch.cli.project / "made").exists()


def a_question_is_answered(ranch: Ranch) -> None:
    ranch.prompt("two", f"TOOL {json.dumps(QUESTION)}")
    ranch.becomes("two", "question")
    answers = {"Colour": "Blue"}
    assert ranch.answer(ranch.asked("two"), behavior="allow", answers=answers, by="phone")[0] == 200
    ranch.until_result("two", '"Which colour?"="Blue"')
    ranch.becomes("two", "stopped")


def the_service_refuses(ranch: Ranch) -> None:
    ranch.prompt("three", "err 400")
    ranch.becomes("three", "api_error")
    until(lambda: "400" in ranch.item("three").get("message", ""), "what it said")


def one_is_interrupted(ranch: Ranch) -> None:
    ranch.prompt("two", "SLOW 90 never mind")
    ranch.panes["two"].until_shows("↓")
    ranch.becomes("two", None)
    ranch.panes["two"].press("Escape")
    ranch.becomes("two", "stopped")
    until(lambda: ranch.item("two").get("detail", {}).get("interrupted"), "that it was interrupted")


def one_is_killed(ranch: Ranch) -> None:
    (session,) = [one for one in ranch.sessions() if one["id"] == ranch.ids["three"]]
    os.kill(session["pid"], signal.SIGKILL)
    ranch.becomes("three", "dead")


def the_human_goes_through_the_queue_and_back(ranch: Ranch) -> None:
    assert [name for name, _ in ranch.board] == ["alpha", "one", "two", "three"]
    ranch.human.press(f"{sys.executable} -m remuda next\r".encode())
    until(lambda: ranch.shown() != ranch.service, "a window for the kept session")
    alpha = ranch.shown()
    until(lambda: "hello alpha" in ranch.tmux.run("capture-pane", "-p", "-t", alpha), "its screen")
    for name in ("one", "two", "three"):
        ranch.human.press(NEXT)
        ranch.until_shown(ranch.panes[name].id)
    ranch.human.press(NEXT)
    ranch.until_shown(alpha)
    ranch.human.press(BACK)
    ranch.until_shown(ranch.service)


def replies_reach_those_whom_they_are_for(ranch: Ranch) -> None:
    for name, session in (("one", ranch.panes["one"].id), ("beta", "beta")):
        said = ranch.remuda("reply", session, f"a word for {name}", "--wait").out
        assert said.endswith(f"to: a word for {name}\n")
        ranch.becomes(name, "stopped")
    for name in ("one", "beta"):
        assert ranch.heard_of(f"a word for {name}") == {name}


def three_ask_leave(ranch: Ranch) -> dict[str, Any]:
    """Returns what waits then."""
    for name in ("one", "alpha", "two"):
        ranch.prompt(name, f"RUNBASH touch {name}; echo {name} as asked")
        ranch.becomes(name, "permission")
        ranch.asked(name)
    return {name: ranch.item(name) for name, _ in ranch.board}


def the_boss_is_killed_and_work_goes_on(ranch: Ranch) -> None:
    """One is answered at its terminal in the meantime, and one gets something to do."""
    ranch.human.press(NEXT)
    ranch.until_shown(ranch.panes["three"].id)
    ranch.boss.end(signal.SIGKILL)
    ranch.human.press(NEXT)
    until(lambda: b"the boss is not running" in ranch.human.seen, "word that nobody is there")
    ranch.panes["two"].until_shows("Do you want to proceed?")
    until(lambda: ranch.panes["two"].agrees(), "the end of the dialog")
    ranch.until_result("two", "two as asked")
    until(lambda: ranch.has_spooled("two", "Stop"), "its stop in the spool")
    ranch.remuda("send", "beta", "while nobody looks", "--wait")


def the_boss_is_back_and_knows_everything(ranch: Ranch, before: dict[str, Any]) -> None:
    ranch.boss.start()
    ranch.board = [one for one in ranch.board if one[0] not in ("two", "beta")]
    ranch.board += [("two", "stopped"), ("beta", "stopped")]
    ranch.until_queue()
    for name in ("three", "one", "alpha"):
        assert ranch.item(name) == before[name]
    ranch.until_says("two", "to: tool_result two as asked")
    ranch.until_says("beta", "to: while nobody looks")
    assert {one["id"] for one in ranch.sessions()} == set(ranch.ids.values())
    ranch.human.press(BACK)
    ranch.until_shown(ranch.service)


def what_was_asked_before_is_answered(ranch: Ranch) -> None:
    """The hook that waits comes to the new boss by itself; a keeper is asked by it."""
    request = ranch.asked("one")
    edited = {"command": "touch late; echo one as edited", "description": "x"}

    def is_given() -> bool:
        return ranch.answer(request, behavior="allow", updated_input=edited, by="phone")[0] == 200

    until(is_given, "a hook that waits")
    ranch.until_result("one", "one as edited")
    ranch.becomes("one", "stopped")
    assert (ranch.cli.project / "late").exists()
    assert "allowed" in ranch.remuda("approve", "alpha", "--yes").out
    ranch.until_result("alpha", "alpha as asked")
    ranch.becomes("alpha", "stopped")


def a_kept_one_is_killed(ranch: Ranch) -> None:
    os.kill(ranch.kept["alpha"].pid, signal.SIGKILL)
    ranch.becomes("alpha", "dead")


def nothing_is_missing_and_nothing_doubled(ranch: Ranch) -> None:
    ranch.stays(2 * CYCLE)
    assert ranch.history("one") == ["stopped", "permission", "stopped", "stopped", "permission"]
    assert ranch.history("two") == ["stopped", "question", "stopped", "stopped", "permission"]
    assert ranch.history("three") == ["api_error"]
    assert ranch.history("alpha") == ["stopped", "permission", "stopped"]
    assert ranch.history("beta") == ["stopped"]
    assert ranch.ledger() == [
        ("one", "permission", "answered", "api: phone", True),
        ("two", "question", "answered", "api: phone", True),
        ("one", "permission", "answered", "api: phone", True),
        ("alpha", "permission", "answered", "api: command line", True),
        ("two", "permission", "ended", None, True),
    ]
