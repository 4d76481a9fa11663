"""Events of hosts reach a boss that follows the fleet in order and once, also from a time without a link."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from remuda.errors import InputError
from remuda.fleet import events, subjects
from remuda.fleet.events import EventFollower
from remuda.fleet.hub import Hub
from remuda.fleet.member_files import SentMessages
from remuda.fleet.membership import Membership, read_key
from remuda.fleet.remote import RemoteHosts
from remuda.fleet.subjects import EVENTS
from support.fleet import FleetBench, Machine, Relay
from support.keeper import until, until_equal


def followed(desk: Machine, host: str = "build7") -> list[dict[str, Any]]:
    return [one for one in desk.client.get("fleet", "events", limit=5000)["events"] if one["host"] == host]


def written(host: Machine) -> list[int]:
    lines = (host.remuda.home / "fleet" / "events.jsonl").read_text().splitlines()
    documents = [json.loads(line) for line in lines if line]
    return [one["number"] for one in documents if "number" in one]


def until_all(desk: Machine, build: Machine) -> list[dict[str, Any]]:
    """Wait until everything that the host wrote down was followed."""

    def differences() -> str:
        pairs = zip_longest([one["number"] for one in followed(desk)], written(build))
        return ", ".join(f"{one}, {other}" for one, other in pairs if one != other)

    until_equal(differences, "", "all events, in order and once (followed, written)")
    return followed(desk)


@pytest.mark.timeout(400)
def test_what_a_host_did_without_a_link_or_a_follower_arrives_in_order_and_once(bench: FleetBench) -> None:
    relay = Relay(bench.hub.port)
    desk = bench.machine("desk", "operator")
    build = bench.machine("build7", "host", url=relay.url)
    build.start("work")
    build.remuda("send", "work", "with a link", "--wait")
    until(lambda: "prompted" in [one["kind"] for one in until_all(desk, build)], "the first prompt")

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
    path = build.remuda.home / "fleet" / "events.jsonl"
    path.write_text("".join(one + "\n" for one in path.read_text().splitlines() if '"done"' not in one))
    forget_ids(bench)
    build.boss_up()
    build.remuda("send", "work", "again", "--wait")
    events = until_all(desk, build)
    assert events[: len(before)] == before


async def publish(host: Hub, *numbers: int) -> None:
    name = host.member.name
    for number in numbers:
        document = {"host": name, "session": "s", "kind": "stopped", "epoch": "e", "number": number}
        await host.store(subjects.event_subject(name, "s"), subjects.write(document))


async def listed(follower: EventFollower, hub: Hub, count: int) -> list[int]:
    """Follow until there are that many; returns their numbers."""
    following = asyncio.create_task(follower.run(hub))
    try:
        found = await follower.listing(count - 1, 60.0, 100)
        return [one["number"] for one in found["events"]]
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def test_events_that_a_broken_connection_took_along_come_before_later_ones(
    bench: FleetBench, tmp_path: Path
) -> None:
    keys = {name: bench.hub.new_key(name, role) for name, role in (("desk", "operator"), ("build7", "host"))}
    desk, build = (Membership(read_key(path), bench.hub.url, name) for name, path in keys.items())

    async def work() -> None:
        host, first, later = [await Hub.connect(one) for one in (build, desk, desk)]
        follower = EventFollower(tmp_path)
        await publish(host, 1)
        assert await listed(follower, later, 1) == [1]
        await publish(host, 2, 3)
        took = 0
        async for some in first.taking_many(EVENTS, "desk"):
            took += len(some)
            if took == 2:
                break
        await first.close()  # without a word about those two
        await publish(host, 4, 5)
        again = EventFollower(tmp_path)  # as after a restart
        assert await listed(again, later, 5) == [5]
        assert [one["number"] for one in (await again.listing(0, 0, 100))["events"]] == [1, 2, 3, 4, 5]
        for hub in (host, later):
            await hub.close()

    asyncio.run(work())


def test_host_that_is_silent_for_long_is_not_followed_twice(
    bench: FleetBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_FOLLOWED", 4)
    roles = {"desk": "operator", "silent": "host", "busy": "host"}
    keys = {name: bench.hub.new_key(name, role) for name, role in roles.items()}
    members = [Membership(read_key(path), bench.hub.url, name) for name, path in keys.items()]

    async def work() -> None:
        desk, silent, busy = [await Hub.connect(one) for one in members]
        follower = EventFollower(tmp_path)
        await publish(silent, 1)
        assert await listed(follower, desk, 1) == [1]
        for number in range(1, 17):  # each alone: what is kept of the file is decided for each
            await publish(busy, number)
            assert await listed(follower, desk, number + 1) == [number]
        again = EventFollower(tmp_path)  # as after a restart
        await publish(silent, 1)
        await publish(busy, 17)
        before = (await again.listing(0, 0, 100))["position"]
        assert await listed(again, desk, before + 1) == [17]
        for hub in (desk, silent, busy):
            await hub.close()

    asyncio.run(work())


def test_host_that_breaks_the_rules_keeps_no_one_off_the_hub(bench: FleetBench, tmp_path: Path) -> None:
    keys = {name: bench.hub.new_key(name, role) for name, role in (("desk", "operator"), ("bad", "host"))}
    members = [Membership(read_key(path), bench.hub.url, name) for name, path in keys.items()]
    SentMessages(tmp_path / "sent.jsonl").note("m1", host="bad", session="s", sent_at=time.time(), expires=1)

    async def work() -> None:
        desk, bad = [await Hub.connect(one) for one in members]
        await bad.store("$KV.hosts.bad", b"{}")
        await bad.store(f"$KV.sessions.bad.{'a' * 1100}", b'{"session": {"id": "a"}, "item": null}')
        await bad.store("rc.bad.m1", b"nothing")
        await bad.store(f"ev.bad.{'a' * 1100}", b'{"host": "bad"}')
        large = {"host": "bad", "session": "s", "kind": "k", "epoch": "e", "number": 1}
        with pytest.raises(InputError, match="larger than the hub stores"):
            await bad.store("ev.bad.s", subjects.write(large | {"facts": {"x": "y" * 99_999}}))
        await publish(bad, 2)
        remote = RemoteHosts(tmp_path)
        running = asyncio.create_task(remote.run(desk))
        assert await listed(EventFollower(tmp_path), desk, 1) == [2]
        await asyncio.wait([running], timeout=2)
        assert not running.done()
        assert [one["name"] for one in remote.hosts()] == ["bad"]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        for hub in (desk, bad):
            await hub.close()

    asyncio.run(work())
