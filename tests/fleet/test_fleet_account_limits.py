"""A rate limit that one host meets pauses the same account on all hosts, and no other account."""

from __future__ import annotations

import time

import pytest

from remuda.paths import SessionPaths
from support.fleet import FleetBench, Machine
from support.keeper import until

LIMIT = "err 429 1 too much, try again in 2 hours"
KEY = {"ANTHROPIC_API_KEY": "sk-of-one-account"}


def limits(machine: Machine) -> list[dict[str, object]]:
    found: list[dict[str, object]] = machine.client.get("queue")["limits"]
    return found


@pytest.mark.timeout(400)
def test_a_limit_met_on_one_host_pauses_the_same_account_on_all(bench: FleetBench) -> None:
    first = bench.machine("build7", "host", env=KEY)
    second = bench.machine("build8", "host", env=KEY)
    first.start("work")
    second.start("work")
    second.remuda.env["ANTHROPIC_API_KEY"] = "sk-of-another"
    second.start("other")
    first.remuda("send", "work", LIMIT)
    (met,) = until(lambda: limits(first), "the limit where it was met")
    (shared,) = until(lambda: limits(second), "the limit on the other host")
    assert abs(float(str(met["until"])) - float(str(shared["until"]))) < 30
    assert "(met on build7)" in str(shared["reason"])
    assert float(str(shared["until"])) > time.time() + 3600
    second.remuda("send", "work", "held back")
    assert second.remuda("send", "other", "hello", "--wait").out == "REPLY#1 to: hello\n"
    waiting = second.remuda.json("messages", "work")
    assert [(one["prompt"], one["stage"]) for one in waiting] == [("held back", "accepted")]
    accounts = SessionPaths.of("work", second.remuda.sessions).folder.parent / "accounts"
    assert len(list(accounts.glob("*.json"))) == 1
