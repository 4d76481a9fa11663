"""Claude Code as a later version may be: what cannot be read is said, and nothing is typed unproven."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

import pytest

from remuda.agents.claude.screen import open_dialog
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support.commands import Commands
from support.drifts import DRIFTS, drifted
from support.keeper import Start, until
from support.messages import Post, prompts, requests_with, stages, step
from support.print_calls import Calls
from support.real_sessions import keep

pytestmark = pytest.mark.real

_EACH_TIME = ("no hooks", "nothing but the screen")


def _some(names: Iterable[str]) -> list[Any]:
    """Return all drifts, most of them for `make soak` alone. `make test` shows of each that it is said."""
    only = pytest.mark.soak(only=True)
    return [pytest.param(one, marks=() if one in _EACH_TIME else only) for one in names]


@pytest.mark.parametrize("name", DRIFTS)
def test_drift_is_said_within_one_turn_and_nothing_is_typed_unproven(
    cli: RealCli, start: Start, model: LoopbackModel, remuda: Commands, name: str
) -> None:
    drift = DRIFTS[name]
    post = Post(keep(start, drifted(cli, drift)))

    def said() -> list[str]:
        found: list[str] = post.client.describe()["degraded"]
        return found

    sent = post.put("hello drift")
    if drift.typed:
        ended = post.ended(sent)
        found = said()  # at once: the turn is over
        assert stages(ended)[-1] == ("dead" if name == "nothing but the screen" else "acked")
        until(lambda: len(requests_with(model, "hello drift")) == 1, "the prompt at the model, once")
    else:
        found = until(said, f"degraded: {drift.said}")
    assert [words for words in drift.said if any(words in one for one in found)] == [*drift.said], found
    assert len(found) == len(drift.said), found
    for command in (["ls"], ["show", "c"], ["doctor"]) if found else ():
        shown = "".join(remuda(*command).out.split())
        assert all("".join(words.split()) in shown for words in found), command
    status = post.client.describe()
    assert status["hooks"] is drift.hooked
    assert status["state"] != "starting"
    if not drift.typed:
        assert stages(post.trace(sent)) == ["accepted"]
        assert status["delivery"]["held"]
        assert prompts(model) == []


@pytest.mark.parametrize("name", _some([name for name, drift in DRIFTS.items() if drift.typed]))
def test_drift_dialog_is_not_answered_by_a_message(
    cli: RealCli, start: Start, model: LoopbackModel, name: str
) -> None:
    post = Post(keep(start, drifted(cli, DRIFTS[name])))
    asked = post.put("RUNBASH touch asked-for; echo done")
    until(lambda: open_dialog(post.lines()), "the dialog on the screen")
    until(lambda: post.client.describe()["state"].startswith("waiting"), "a state that says so")
    behind = post.put("behind the dialog")
    time.sleep(1.0)  # it would be typed at once
    assert stages(post.trace(behind)) == ["accepted"]
    post.watcher.answer(b"\x1b")
    end = "dead" if name == "nothing but the screen" else "acked"
    assert stages(post.ended(behind))[-1] == end
    if end == "acked":
        assert step(post.ended(asked), "dead")["reason"].startswith("interrupted ")
    assert not (cli.project / "asked-for").exists()
    assert prompts(model)[-1] == "behind the dialog"


def dismiss(post: Post) -> None:
    """Press Escape until the dialog is gone: it drops keys of its first moments.

    Never after it has gone, however late its state is: a second Escape in the composer opens another dialog.
    """

    def is_shown() -> bool:
        return any("Do you want to proceed?" in line for line in post.lines())

    until(is_shown, "the dialog")
    while is_shown():
        post.watcher.press(b"\x1b")
        patience = time.monotonic() + 5.0
        while is_shown() and time.monotonic() < patience:
            time.sleep(0.05)


@pytest.mark.parametrize("name", ["glyph", "rule"])
def test_drift_dialog_is_left_alone_where_no_composer_is_found(
    cli: RealCli, start: Start, model: LoopbackModel, name: str
) -> None:
    post = Post(keep(start, drifted(cli, DRIFTS[name])))
    post.watcher.until("idle")
    post.watcher.press(b"RUNBASH touch asked-for; echo done")
    post.watcher.until_shows("echo done")
    post.watcher.press(b"\r")
    post.watcher.until("waiting_permission")
    behind = post.put_held("behind the dialog", "dialog")
    dismiss(post)
    post.held("composer")
    assert stages(post.trace(behind)) == ["accepted"]
    assert not (cli.project / "asked-for").exists()
    assert len(prompts(model)) == 1


@pytest.mark.parametrize("name", _some([name for name in DRIFTS if name != "nothing at all"]))
def test_drift_print_answers_or_says_why_not(cli: RealCli, remuda: Commands, name: str) -> None:
    drifted(cli, DRIFTS[name])
    calls = Calls(remuda, cli.binary, cli.env, cli.project)
    failed = name in ("http hooks unknown", "nothing but the screen")
    for _ in range(4 if name == "Stop renamed" else 1):
        done = calls("hello", "--stop-hook-timeout", "12", code=2 if failed else 0)
        assert done.out == ("" if failed else "REPLY#1 to: hello\n")
        assert not failed or any(
            words in done.err for words in ("Unknown hook type", "the agent never confirmed it")
        )


def test_drift_print_without_a_transcript_answers_and_says_that_usage_is_unknown(
    cli: RealCli, remuda: Commands
) -> None:
    drifted(cli, DRIFTS["projects is a file"])
    calls = Calls(remuda, cli.binary, cli.env, cli.project)
    done = calls("hello", "--output-format", "json")
    result = json.loads(done.out)
    assert (result["result"], result["usage"]) == ("REPLY#1 to: hello", None)
    assert [one.partition(":")[0] for one in result["degraded"]] == ["usage unknown"]
    assert done.err == f"remuda print: {result['degraded'][0]}\n"
