"""What one session, one host or one part of the hub does wrong disturbs no other."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from remuda.fleet import subjects
from remuda.fleet.hub import Hub, prepare
from remuda.fleet.membership import Membership, read_key
from support.commands import until_line
from support.fleet import FleetBench, HubMachine, Pair, two_machines
from support.heimdall_client import PATIENCE
from support.keeper import until


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with two_machines(tmp_path_factory.mktemp("fleet"), "operator") as pair:
        yield pair


def administer(bench: FleetBench, work: Callable[[Hub], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        hub = await Hub.connect(bench.hub.folder.admin())
        try:
            await work(hub)
        finally:
            await hub.close()

    asyncio.run(run())


def test_an_inbox_that_takes_nothing_blocks_no_other_session_and_keeps_its_order(pair: Pair) -> None:
    _, desk, build = pair
    bad, good = pair.start("bad"), pair.start("good")
    build.remuda("kill", "bad")
    inbox = build.remuda.sessions / "bad.inbox"
    aside = inbox.with_name("aside")
    if inbox.exists():
        inbox.rename(aside)
    inbox.write_text("not a folder")
    first = [desk.send(bad, f"number {at}") for at in range(2)]
    desk.until_stage(desk.send(good, "hello"), "acked")
    build.boss_end(signal.SIGKILL)
    build.boss_up()
    first.append(desk.send(bad, "number 2"))
    desk.until_stage(desk.send(good, "again"), "acked")
    assert {desk.receipt(one)["stage"] for one in first} == {"sent"}
    inbox.unlink()
    if aside.exists():
        aside.rename(inbox)
    for one in first:
        desk.until_stage(one, "accepted")
    assert build.prompts("bad") == [f"number {at}" for at in range(3)]


def test_a_queue_that_the_hub_lost_is_tried_again_and_the_rest_goes_on(pair: Pair) -> None:
    bench, desk, build = pair
    keys = bench.hub.folder.key_records()

    async def lose(hub: Hub) -> None:
        await hub._jetstream.delete_consumer("EVENTS", "desk")
        await hub._jetstream.delete_consumer("INBOX", "build7")

    administer(bench, lose)
    until(lambda: "events elsewhere" in desk.status()["problems"], "the problem of the desk")
    until(lambda: "messages" in build.status()["problems"], "the problem of the host")
    assert "problem" in desk.remuda("fleet", "status").out
    work = pair.start("lost-queue")  # sessions are shown, and messages accepted
    message = desk.send(work, "hello")
    administer(bench, lambda hub: prepare(hub, keys))
    desk.until_stage(message, "acked")
    until(lambda: not desk.status()["problems"] and not build.status()["problems"], "no problem")
    assert desk.status()["connected"]


def test_events_that_the_hub_can_never_store_keep_back_no_later_one(pair: Pair) -> None:
    bench, desk, build = pair

    async def refuse_all(hub: Hub) -> None:
        config = (await hub._jetstream.stream_info("EVENTS")).config
        await hub._jetstream.update_stream(config, max_msg_size=1)

    def heard_of(name: str) -> bool:
        events = desk.client.get("fleet", "events", limit=5000)["events"]
        return any(one["host"] == "build7" and one["name"] == name for one in events)

    administer(bench, refuse_all)
    pair.start("never-told")
    until(lambda: "is not reported" in build.client.folder.log.read_text(), "an event that was skipped")
    administer(bench, lambda hub: prepare(hub, bench.hub.folder.key_records()))
    pair.start("told")
    until(lambda: heard_of("told"), "a later event of the other host")
    assert not heard_of("never-told")
    assert build.status()["problems"] == {}


def hostile() -> Iterator[tuple[str, bytes]]:
    """Values that no host of ours writes, each with its subject; `evil` may publish them all."""
    right = {"host": "evil", "session": "s", "kind": "stopped", "id": "x", "number": 1, "epoch": "e"}
    wrong: dict[str, list[Any]] = {
        "at": [1e308, -1e308, 10**30, "now", [], {}, None, True],
        "ahead": [1e308, -1e308, "x"],
        "number": [0, -1, 2**63 - 1, 1.5, True, "1"],
        "lost": [1e308, -5, "x", [1]],
        "facts": [1, [], {"a": {"b": [1e308]}}, {"\ud800": "\x1b[2J"}],
        "name": ["x" * 50_000, 7, ["x"], "\x1b]0;x\x07"],
        "kind": ["", "x" * 1000, 1, None],
        "session": [1, None, ["s"], {"s": 1}],
        "id": [None, 1, "y" * 1000, {"x": 1}],
        "epoch": ["", "z" * 1000, 1],
    }
    for field, values in wrong.items():
        for value in values:
            yield "ev.evil.s", json.dumps({**right, field: value}).encode()
    deep = b'{"a":' * 450 + b"1" + b"}" * 450
    yield "ev.evil.s", json.dumps(right).encode()[:-1] + b', "facts": ' + deep + b"}"
    for data in (b"", b"\xff\xfe", b"[" * 5000, b'{"number": NaN}', b'{"at": 1e999}', b"null", b"x" * 60_000):
        for subject in (
            "ev.evil.s",
            "ev.evil.=ZZ",
            "$KV.sessions.evil.s",
            "$KV.sessions.evil.=",
            "rc.evil.m",
        ):
            yield subject, data
    session = {"id": "s", "name": "work", "agent_state": "idle", "since": 1e308, "first_seen": -1e308}
    yield (
        "$KV.sessions.evil.big",
        json.dumps({"session": session, "item": {"id": "i", "since": 1e308}}).encode(),
    )
    presence = {
        "machine": [1],
        "ahead": -1e308,
        "version": {"x": 1},
        "offers": [[]],
        "protocol": True,
        "pool": "x",
    }
    yield "$KV.hosts.evil", json.dumps(presence).encode()


def test_values_that_no_host_of_ours_writes_take_no_boss_off_the_hub(pair: Pair) -> None:
    bench, desk, _ = pair
    key = read_key(bench.hub.new_key("evil", "host"))

    async def publish() -> None:
        hub = await Hub.connect(Membership(key, bench.hub.url, "machine"))
        for subject, data in hostile():
            await hub.store(subject, data)
        with pytest.raises(Exception, match="larger than the hub stores"):
            await hub.store("ev.evil.s", b"x" * (1 << 20))
        await hub.close()

    asyncio.run(publish())
    work = pair.start("after")
    desk.until_stage(desk.send(work, "hello"), "acked")

    def follows() -> bool:
        events = desk.client.get("fleet", "events", limit=5000)["events"]
        return any(one["host"] == "build7" and one["name"] == "after" for one in events)

    until(follows, "an event of the other host")
    assert desk.status()["connected"]
    assert desk.status()["problems"] == {}
    for words in (("ls",), ("queue",), ("fleet", "status"), ("fleet", "events", "-n", "5000")):
        assert "\x1b" not in desk.remuda(*words).out
    desk.boss_end()
    desk.boss_up()
    desk.until_session("build7", "after")


def test_a_hub_on_a_disk_with_little_room_starts_and_says_its_limits(home: Path) -> None:
    hub = HubMachine(home / "hub")
    store = hub.folder.data
    store.mkdir(parents=True, mode=0o700)
    for folder in (hub.folder.path, hub.folder.path.parent):
        folder.chmod(0o700)
    mount = f"mount -t tmpfs -o size=1g,mode=700 none '{store}' && exec \"$@\""
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount, "sh", "true"], check=False).returncode:
        pytest.skip("this user can mount nothing")
    hub.remuda.prefix = ("unshare", "-rm", "sh", "-c", mount, "sh")
    begun = hub.remuda.begin("fleet", "serve", "--listen", f"127.0.0.1:{hub.port}", "--no-join")
    try:
        until_line(begun, b"128 MiB for each kind of data")
        until_line(begun, b"fleet keys new NAME")
        member = Membership(hub.folder.admin().key, hub.url, "")

        async def look() -> int:
            connection = await Hub.connect(member)
            info = await connection._jetstream.stream_info("INBOX")
            await connection.store(subjects.message_subject("a", "s", "m", "desk"), b"x", dedup="m")
            await connection.close()
            return int(info.config.max_bytes or 0)

        assert asyncio.run(look()) == 128 << 20
    finally:
        begun.send_signal(signal.SIGTERM)
        begun.communicate(timeout=PATIENCE)
        hub.remuda.close()
