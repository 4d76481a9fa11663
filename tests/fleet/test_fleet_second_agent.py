"""A session of an agent from another package, on the one host of a fleet that has the package."""

from __future__ import annotations

import json

import pytest

from support.fleet import FleetBench
from support.keeper import until
from support.second_agent import installed


def test_session_of_another_package_is_listed_asked_and_decided_from_another_host(
    bench: FleetBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = bench.machine("desk", "operator")
    with installed(monkeypatch):
        build = bench.machine("build7", "host")
        build.remuda.start("work", "--agent", "mustang")
        desk.until_session("build7", "work")
        (listed,) = desk.remuda.json("ls")
        assert (listed["host"], listed["agent"], listed["state"]) == ("build7", "mustang", "idle")
        message = desk.send("build7/work", "KICK fence")

        def asked() -> bool:
            (item,) = desk.remuda.json("queue")["items"] or [{}]
            return item.get("reason") == "permission" and "fence" in json.dumps(item)

        until(asked, "its request in the queue of the other host")
        desk.remuda("approve", "build7/work", "--yes")
        found = desk.until_stage(message, "acked")
        assert "kicked fence" in json.dumps(found)
        until(lambda: "kicked fence" in desk.remuda("queue").out, "its answer in the queue of the other host")
        desk.remuda("kill", "build7/work")
