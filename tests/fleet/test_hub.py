"""The hub itself: a real nats-server, its keys, and what each key must not read or write there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from remuda.errors import HubRefused, HubUnreachable
from remuda.fleet.hub import Hub
from remuda.fleet.membership import Membership, read_key
from support.fleet import FleetBench, HubMachine, Machine, free_port
from support.keeper import until


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubMachine]:
    made = HubMachine(tmp_path_factory.mktemp("fleet") / "hub")
    made.start()
    yield made
    made.close()


def member(hub: HubMachine, path: Path) -> Membership:
    return Membership(read_key(path), hub.url, "machine")


FORBIDDEN: dict[str, tuple[list[str], list[str]]] = {
    "host": (
        [
            *(
                "$KV.hosts.other",
                "$KV.sessions.other.s",
                "rc.other.m1",
                "in.other.s.m1.NAME",
                "in.NAME.s.m1.NAME",
            ),
            *("rq.other.read.NAME", "rq.other.act.NAME", "ap.other.3f.NAME", "_INBOX_other.x", "_INBOX.x"),
            *("$JS.API.CONSUMER.MSG.NEXT.INBOX.other", "$JS.ACK.INBOX.other.1.1.1.1.0"),
            *("$JS.API.CONSUMER.CREATE.INBOX", "$JS.API.CONSUMER.CREATE.INBOX.x.in.NAME.>"),
            *(
                "$JS.API.CONSUMER.DURABLE.CREATE.INBOX.x",
                "$JS.API.STREAM.DELETE.INBOX",
                "$JS.API.STREAM.NAMES",
            ),
            *(
                "$JS.API.STREAM.MSG.GET.INBOX",
                "$JS.API.STREAM.MSG.DELETE.INBOX",
                "$JS.API.STREAM.PURGE.INBOX",
            ),
            *("$JS.API.DIRECT.GET.KV_sessions", "$JS.API.DIRECT.GET.KV_hosts.$KV.hosts.other"),
            *("$JS.API.DIRECT.GET.RECEIPT", "$SYS.REQ.SERVER.PING"),
            *("io.other.out.x.1", "io.other.read.NAME.1", "io.other.type.NAME.1", "io.NAME.type.x.1"),
            *("ev.other.s", "$KV.accounts.other.a", "fl.desk.r1.other", "in.any.p.r1.NAME"),
            *("$JS.API.CONSUMER.MSG.NEXT.EVENTS.NAME", "$JS.ACK.EVENTS.NAME.1.1.1.1.0"),
        ],
        [
            "in.NAME.s.m.x",
            "in.other.s.m.x",
            "rq.other.act.x",
            "ap.other.1.x",
            "_INBOX_other.x",
            "rc.other.m1",
            *("io.other.read.x.1", "io.other.type.x.1", "io.NAME.out.x.1", "io.other.out.NAME.1"),
            "in.any.p.r1.x",
            "fl.desk.r1.NAME",
            "fl.NAME.r1.x",
            "ev.other.s",
        ],
    ),
    "viewer": (
        [
            *("in.other.s.m1.NAME", "rq.other.act.NAME", "rq.other.read.other", "ap.other.3f.NAME"),
            *("$KV.hosts.NAME", "$KV.sessions.NAME.s", "rc.NAME.m1", "$JS.API.CONSUMER.MSG.NEXT.INBOX.NAME"),
            *(
                "$JS.API.CONSUMER.CREATE.KV_sessions",
                "$JS.API.STREAM.MSG.GET.INBOX",
                "$JS.API.STREAM.DELETE.INBOX",
            ),
            *("io.other.type.NAME.1", "io.other.read.other.1", "io.NAME.out.NAME.1", "io.other.out.NAME.1"),
            *("ev.NAME.s", "$KV.accounts.NAME.a", "fl.desk.r1.NAME", "in.any.p.r1.NAME"),
            *("$JS.API.CONSUMER.MSG.NEXT.INBOX.any", "$JS.API.CONSUMER.MSG.NEXT.EVENTS.other"),
        ],
        [
            *("in.other.s.m.x", "rq.other.read.x", "rq.NAME.act.x", "ap.other.1.x", "_INBOX_other.x"),
            *("io.other.out.other.1", "io.other.type.x.1", "io.other.read.x.1"),
            "in.any.p.r1.x",
            "fl.NAME.r1.x",
            "ev.other.s",
        ],
    ),
    "operator": (
        [
            *(
                "in.other.s.m1.other",
                "rq.other.act.other",
                "ap.other.3f.other",
                "$KV.hosts.NAME",
                "rc.NAME.m1",
            ),
            *("$KV.sessions.NAME.s", "$JS.API.CONSUMER.MSG.NEXT.INBOX.other", "$JS.API.STREAM.MSG.GET.INBOX"),
            *("$JS.API.CONSUMER.CREATE.INBOX", "$JS.API.CONSUMER.CREATE.KV_sessions.x.$KV.sessions.>"),
            *("$JS.API.STREAM.UPDATE.INBOX", "$JS.API.STREAM.PURGE.RECEIPT"),
            *("io.other.type.other.1", "io.other.read.other.1", "io.other.out.NAME.1"),
            *("ev.NAME.s", "$KV.accounts.NAME.a", "fl.desk.r1.NAME", "in.any.p.r1.other"),
            *("$JS.API.CONSUMER.MSG.NEXT.INBOX.any", "$JS.ACK.INBOX.any.1.1.1.1.0"),
        ],
        [
            *("in.other.s.m.x", "rq.other.act.x", "ap.other.1.x", "_INBOX_other.x"),
            *("io.other.out.other.1", "io.other.type.x.1", "io.other.read.x.1"),
            "in.any.p.r1.x",
            "fl.other.r1.x",
            "ev.other.s",
        ],
    ),
}
"""By role: subjects that its key must not publish to, and must not subscribe to. NAME is its own name."""


@pytest.mark.parametrize("role", list(FORBIDDEN))
def test_a_key_cannot_write_or_read_what_its_role_has_no_right_to(hub: HubMachine, role: str) -> None:
    name = f"some-{role}"
    own = member(hub, hub.new_key(name, role))
    publish, subscribe = ([one.replace("NAME", name) for one in some] for some in FORBIDDEN[role])

    async def attempt() -> tuple[list[str], list[str]]:
        admin, key = await Hub.connect(hub.folder.admin()), await Hub.connect(own)
        written, heard = Heard(), Heard()
        await admin._client.subscribe(">", cb=written.take)
        await admin._client.flush()
        for subject in publish:
            await key._client.publish(subject, f"try {subject}".encode())
        for subject in subscribe:
            await key._client.subscribe(subject, cb=heard.take)
        await key._client.subscribe(f"_INBOX_{name}.end", cb=heard.take)
        await key._client.flush()
        await key._client.publish("$JS.API.STREAM.INFO.KV_hosts", b"end")
        await written.until(b"end")
        for subject in [*subscribe, f"_INBOX_{name}.end"]:
            await admin._client.publish(subject, b"end" if subject.endswith(".end") else b"secret")
        await heard.until(b"end")
        await key.close()
        await admin.close()
        return [one for one in written.got if one.startswith("try ")], [
            one for one in heard.got if one == "secret"
        ]

    assert asyncio.run(attempt()) == ([], [])


class Heard:
    """What a subscription got."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self._wanted: dict[bytes, asyncio.Event] = {}

    async def take(self, message: Msg) -> None:
        self.got.append(message.data.decode("utf-8", "replace"))
        self._wanted.setdefault(message.data, asyncio.Event()).set()

    async def until(self, data: bytes) -> None:
        async with asyncio.timeout(20):
            await self._wanted.setdefault(data, asyncio.Event()).wait()


def test_a_revoked_key_is_disconnected_and_refused(hub: HubMachine) -> None:
    own = member(hub, hub.new_key("leaver", "host", "operator"))

    async def attempt() -> None:
        connection = await Hub.connect(own)
        await asyncio.to_thread(hub.remuda, "fleet", "keys", "revoke", "leaver")
        async with asyncio.timeout(20):
            await connection.closed.wait()
        with pytest.raises(HubUnreachable):
            await connection.measure()
        with pytest.raises(HubRefused, match="does not accept the key of 'leaver'"):
            await Hub.connect(own)

    asyncio.run(attempt())
    assert "leaver" not in hub.remuda("fleet", "keys").out
    assert "no key has the name 'leaver'" in hub.remuda.refused("fleet", "keys", "revoke", "leaver", code=2)


def test_a_hub_with_another_certificate_is_refused(hub: HubMachine, home: Path) -> None:
    path = hub.new_key("careful", "host")
    document = json.loads(path.read_text())
    other = HubMachine(home / "other")
    other.start()
    try:
        document["ca"] = json.loads(other.new_key("careful", "host").read_text())["ca"]
        path.write_text(json.dumps(document))
        with pytest.raises(HubRefused, match="is not the one in the key file"):
            asyncio.run(Hub.connect(member(hub, path)))
    finally:
        other.close()


def test_nothing_listens_there_is_an_error_with_the_address(hub: HubMachine) -> None:
    key = read_key(hub.new_key("lost", "host"))
    url = f"tls://127.0.0.1:{free_port()}"
    with pytest.raises(HubUnreachable, match=url):
        asyncio.run(Hub.connect(Membership(key, url, "machine")))


def test_bad_words_on_the_command_line_are_refused(hub: HubMachine) -> None:
    remuda = hub.remuda
    assert "cannot name a host" in remuda.refused("fleet", "keys", "new", "Not A Name", code=4)
    hub.new_key("twice", "host")
    again = ("fleet", "keys", "new", "twice", "--out", str(remuda.cwd / "again.key"))
    assert "there is a key for 'twice'" in remuda.refused(*again, code=2)
    assert not (remuda.cwd / "again.key").exists()
    assert "the hub is running already" in remuda.refused("fleet", "serve", "--no-join", code=5)
    key = str(hub.new_key("third", "host"))
    assert "is not the address of a hub" in remuda.refused("fleet", "join", "http://x", "--key", key, code=2)
    bad = remuda.cwd / "bad.key"
    bad.write_text("{}")
    bad.chmod(0o600)
    assert "is not a key file" in remuda.refused("fleet", "join", hub.url, "--key", str(bad), code=2)
    assert "has joined no fleet" in remuda.refused("fleet", "leave", code=2)
    assert "this machine has joined no fleet" in remuda.refused("send", "build7/work", "hello", code=2)


def test_a_message_is_on_the_hub_once_for_each_id_and_survives_its_death(hub: HubMachine) -> None:
    sender = member(hub, hub.new_key("desk", "operator"))
    host = member(hub, hub.new_key("away", "host"))

    async def store(times: int) -> list[int]:
        connection = await Hub.connect(sender)
        found = [await connection.store("in.away.s.m1.desk", b"x", dedup="m1") for _ in range(times)]
        await connection.close()
        return found

    async def take() -> list[Any]:
        connection = await Hub.connect(host)
        taken: list[Any] = []
        async for one in connection.messages(1.0):
            if one is None:
                break
            taken.append((one.subject, one.data))
            await one.ack()
        await connection.close()
        return taken

    first = asyncio.run(store(3))
    assert len(set(first)) == 1
    hub.end(9)
    hub.start()
    assert set(asyncio.run(store(1))) == set(first)
    assert asyncio.run(take()) == [("in.away.s.m1.desk", b"x")]
    assert asyncio.run(take()) == []


def test_a_hub_that_is_full_refuses_a_message_and_says_why(hub: HubMachine) -> None:
    sender = member(hub, hub.new_key("writer", "operator"))

    async def attempt() -> None:
        admin, connection = await Hub.connect(hub.folder.admin()), await Hub.connect(sender)
        streams = admin._client.jetstream()
        config = (await streams.stream_info("INBOX")).config
        await streams.update_stream(config.evolve(max_bytes=1))
        try:
            with pytest.raises(HubRefused, match="cannot store"):
                await connection.store("in.away.s.m2.writer", b"x", dedup="m2")
        finally:
            await streams.update_stream(config)
        await connection.close()
        await admin.close()

    asyncio.run(attempt())


def test_two_machines_with_one_key_do_not_both_have_its_name(bench: FleetBench) -> None:
    desk, first = bench.machine("desk", "operator"), bench.machine("build7", "host")
    first.start("work")
    desk.until_session("build7", "work")
    copy = bench.folder / "hub" / "cwd" / "build7.key"
    second = Machine(bench.folder / "second", "second")
    bench.machines.append(second)
    second.boss_up()
    second.remuda("fleet", "join", bench.hub.url, "--key", str(copy))
    until(lambda: "another machine is connected as 'build7'" in str(second.status()["error"]), "a refusal")
    assert "another machine is connected as 'build7'" in second.remuda("fleet", "status").out
    sent = [desk.send("build7/work", f"number {at}") for at in range(3)]
    for message in sent:
        desk.until_stage(message, "acked")
    assert first.prompts("work") == [f"number {at}" for at in range(3)]
    assert not (second.remuda.home / "sessions" / "work.inbox").exists()
