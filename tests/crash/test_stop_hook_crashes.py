"""The Stop hook is killed before every system call that it makes, and recovered: nothing is lost, and nothing
is handed out twice without a receipt that says so."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from crashing import FAR, Box, Scenario, kill_everywhere
from remuda.inbox import stop_hook


def _three(box: Box) -> None:
    for name in ("alpha", "bravo", "charlie"):
        box.put(name)


def _handed_out(box: Box) -> None:
    _three(box)
    assert box.tick()


def _delayed_ahead(box: Box) -> None:
    box.put("later", not_before=time.time() + FAR)
    _three(box)


def _delayed_handed_out(box: Box) -> None:
    """One that was delayed is in flight, another still waits, and what is between them is acknowledged."""
    box.put("later", not_before=time.time() + FAR)
    box.put("alpha")
    box.put("last", not_before=time.time() + FAR)
    box.put("bravo")
    box.drain()
    box.make_due("later")
    assert box.tick()
    assert box.handed == ["alpha", "bravo", "later"]


def _to_be_bounced(box: Box) -> None:
    box.put("old", expires=1.0, **{"from": "me"})
    _three(box)


def _to_be_buried(box: Box) -> None:
    """Its attempts are used up."""
    box.put("poison", max_attempts=1)
    _three(box)
    assert box.tick()
    assert stop_hook.recover(box.files, "retry", []) == "ReQueued"


def _buried(box: Box) -> None:
    assert box.letters() == ["poison"]


def _replaced(box: Box) -> None:
    box.put("before")
    box.drain()
    Path(box.files.inbox).write_text("")
    _three(box)


RECOVER = ("recover", "--on-orphan")
SCENARIOS = {
    "delivers": Scenario(_three),
    "acknowledges and delivers": Scenario(_handed_out),
    "passes a delayed one": Scenario(_delayed_ahead),
    "acknowledges a delayed one": Scenario(_delayed_handed_out),
    "bounces": Scenario(_to_be_bounced),
    "buries": Scenario(_to_be_buried, check=_buried),
    "begins a replaced inbox": Scenario(_replaced),
    "recover retry": Scenario(_handed_out, (*RECOVER, "retry")),
    "recover deadletter": Scenario(_handed_out, (*RECOVER, "deadletter")),
    "recover drop": Scenario(_handed_out, (*RECOVER, "drop")),
}


@pytest.mark.soak
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_kill_at_any_call_loses_nothing(tmp_path: Path, scenario: str) -> None:
    assert kill_everywhere(tmp_path, SCENARIOS[scenario]) > 10
