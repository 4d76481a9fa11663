"""Events of hosts reach a boss that follows the fleet in order and once, also from a time without a link."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

import pytest

from remuda.fleet.hub import Hub
from support.fleet import FleetBench, Machine, Relay
from support.keeper import until


def followed(desk: Machine, host: str = "build7") -> list[dict[str, Any]]:
    return [one for one in desk.client.get("fleet", "events", limit=5000)["events"] if one["host"] == host]


def written(host: Machine) -> list[int]:
    lines = (host.remuda.home / "fleet" / "events.jsonl").read_text().splitlines()
    documents = [json.loads(line) for line in lines if line]
    return [one["number"] for one in documents if "number" in one]


def until_all(desk: Machine, build: Machine) -> list[dict[str, Any]]:
    """Wait until everything that the host wrote down was followed."""

    def look() -> bool:
        return [one["number"] for one in followed(desk)] == written(build)

    until(look, "all events, in order and once")
    return followed(desk)


@pytest.mark.timeout(400)
def test_what_a_host_did_without_a_link_or_a_follower_arrives_in_order_and_once(bench: FleetBench) -> None:
    relay = Relay(bench.hub.port)
    desk = bench.machine("desk", "operator")
    build = bench.machine("build7", "host", url=relay.url)
    build.start("work")
    build.remuda("send", "work", "with a link", "--wait")
    assert "prompted" in [one["kind"] for one in until_all(desk, build)]

    relay.cut()
    until(lambda: not build.status()["connected"], "the host to notice")
    build.remuda("send", "work", "cut off", "--wait")
    until(lambda: build.status()["events_waiting"], "events that wait")
    assert "events that the hub has not got" in build.remuda("fleet", "status").out
    build.boss_end(signal.SIGKILL)
    build.remuda("send", "work", "without a boss", "--wait")
    build.boss_up()
    desk.boss_end(signal.SIGKILL)
    relay.mend()
    build.until_connected()
    until(lambda: not build.status()["events_waiting"], "all to be at the hub")
    desk.boss_up()
    desk.until_connected()
    events = until_all(desk, build)
    prompts = [one["facts"].get("prompt") for one in events if one["kind"] == "prompted"]
    assert [one for one in prompts if one] == ["with a link", "cut off", "without a boss"]
    ids = [(one["session"], one["id"]) for one in events]
    assert len(ids) == len(set(ids))
    listed = desk.remuda("fleet", "events", "-n", "500").out
    assert listed.count("build7/work") >= 3
    assert "may not see other hosts" in build.remuda.refused("fleet", "events", code=8)
    relay.close()


def test_all_that_a_host_did_while_cut_off_arrives_in_order_and_once(bench: FleetBench) -> None:
    relay = Relay(bench.hub.port)
    desk = bench.machine("desk", "operator")
    build = bench.machine("build7", "host", url=relay.url)
    for name in ("work", "ends"):
        build.start(name)
        desk.until_session("build7", name)
    begun = desk.send("build7/work", "SLOW 6")  # ends without the link
    until(lambda: desk.receipt(begun)["stage"] in ("submitted", "recorded"), "the turn to run")

    relay.stall()
    waits = desk.send("build7/work", "at the hub")
    build.remuda("messages", begun, "--wait")
    asked = build.remuda("send", "work", "RUNBASH touch made").out.split()[1]
    until(lambda: build.client.get("approvals", state="open")["approvals"], "the permission request")
    build.remuda("approve", "work", "--yes")
    build.remuda("messages", asked, "--wait")
    assert (build.remuda.cwd / "made").exists()
    build.remuda("kill", "ends")
    build.start("new")
    build.remuda("send", "new", "hello", "--wait")
    assert desk.receipt(begun)["stage"] in ("submitted", "recorded")  # what is known, and no more
    relay.cut()
    relay.mend()

    for message in (begun, waits):
        receipt = desk.until_stage(message, "acked")
        stages = [one["stage"] for one in receipt["steps"]]
        assert stages == ["sent", "accepted", "written", "submitted", "recorded", "ended", "acked"]
    desk.until_session("build7", "new")
    until(lambda: sorted(one["name"] for one in desk.remuda.json("ls")) == ["new", "work"], "its sessions")
    assert build.prompts("work") == ["SLOW 6", "RUNBASH touch made", "at the hub"]
    events = until_all(desk, build)
    prompts = [one["facts"].get("prompt") for one in events if one["kind"] == "prompted"]
    assert [one for one in prompts if one] == ["SLOW 6", "RUNBASH touch made", "hello", "at the hub"]
    ids = [(one["session"], one["id"]) for one in events]
    assert len(ids) == len(set(ids))
    relay.close()


def forget_ids(bench: FleetBench) -> None:
    """Make the hub forget which ids it has seen."""

    async def forget() -> None:
        hub = await Hub.connect(bench.hub.folder.admin())
        streams = hub._client.jetstream()
        config = (await streams.stream_info("EVENTS")).config
        await streams.update_stream(config.evolve(duplicate_window=0.1))
        await hub.close()

    asyncio.run(forget())


def test_events_that_are_published_again_much_later_are_not_followed_twice(bench: FleetBench) -> None:
    desk, build = bench.machine("desk", "operator"), bench.machine("build7", "host")
    build.start("work")
    build.remuda("send", "work", "hello", "--wait")
    before = until_all(desk, build)
    build.boss_end()
    # As after a crash before that was written down, and longer ago than the hub remembers ids.
    (build.remuda.home / "fleet" / "events.done").write_text("0")
    forget_ids(bench)
    build.boss_up()
    build.remuda("send", "work", "again", "--wait")
    events = until_all(desk, build)
    assert events[: len(before)] == before
