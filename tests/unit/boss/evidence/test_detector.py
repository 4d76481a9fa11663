"""When a pane without an agent of its own words is stuck."""

from __future__ import annotations

import pytest

from remuda.boss.attention.model import EventKind
from remuda.boss.evidence.detector import DetectorSettings, PaneScan, Watched, waits


@pytest.mark.parametrize(
    "line",
    ["$", "me@host:~$ ", "root# ", ">", "Continue?", "Proceed [y/N]", "Name: ", ">>> ", "... ", "❯ ", "x@"],
)
def test_line_that_waits_for_somebody(line: str) -> None:
    assert waits(f"before\n{line}\n\n")


@pytest.mark.parametrize("line", ["", "compiling foo.c", "100 % done", "a > b"])
def test_line_that_does_not(line: str) -> None:
    assert not waits(f"{line}\n\n")


def test_quiet_prompt_is_stuck_once_and_free_with_new_output() -> None:
    pane = Watched("tmux-%1-5", "$ ", 100.0)
    assert pane.see("$ ", 129.9, 30) is None
    assert pane.see("$ ", 130.0, 30) is EventKind.STOPPED
    assert pane.see("$ ", 200.0, 30) is None
    assert pane.see("$ make", 201.0, 30) is EventKind.PROMPTED
    assert pane.see("$ make\nworking", 202.0, 30) is None
    assert pane.see("$ make\nworking", 300.0, 30) is None
    assert pane.see("$ make\nworking\n$ ", 301.0, 30) is None
    assert pane.see("$ make\nworking\n$ ", 331.0, 30) is EventKind.STOPPED


def test_pane_of_which_nothing_is_known_begins_with_what_it_shows() -> None:
    stuck, free = Watched("tmux-%1-5", None, 0.0, stuck=True), Watched("tmux-%2-5", None, 0.0)
    assert stuck.see("$ ", 100.0, 30) is None
    assert stuck.see("$ make", 101.0, 30) is EventKind.PROMPTED
    assert free.see("$ ", 100.0, 30) is None
    assert free.see("$ ", 130.0, 30) is EventKind.STOPPED
    moved_on = Watched("tmux-%3-5", None, 0.0, stuck=True)
    assert moved_on.see("$ make\nworking", 100.0, 30) is EventKind.PROMPTED


def test_pane_is_gone_when_a_server_that_answered_did_not_list_it() -> None:
    scan = PaneScan(unreachable={"/stalled"})
    assert scan.is_gone(("/there", "%1"))
    assert not scan.is_gone(("/stalled", "%1"))


def test_trail_boss_variables_are_known_and_nonsense_is_not() -> None:
    env = {
        "TRAILBOSS_POLL_INTERVAL_MS": "500",
        "TRAILBOSS_QUIET_THRESHOLD_MS": "3000",
        "TRAILBOSS_OPT_IN_PREFIX": "@x-",
    }
    assert DetectorSettings.of(env) == DetectorSettings(0.5, 3.0, ("@x-", "@remuda-"))
    assert DetectorSettings.of({name: "-1x" for name in env if "MS" in name}) == DetectorSettings()
    assert DetectorSettings.of({"TRAILBOSS_POLL_INTERVAL_MS": "0"}).poll_interval > 0
