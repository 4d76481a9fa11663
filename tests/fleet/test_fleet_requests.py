"""Requests to any host: run once, streamed back, read by no one else; taken over when their host is lost."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg

from remuda.boss.fleet_requests import portable
from remuda.errors import (
    AgentError,
    HostUnreachable,
    HubRefused,
    HubUnreachable,
    PermissionRefused,
    WaitTimeout,
)
from remuda.fleet import subjects
from remuda.fleet.hub import Hub
from remuda.fleet.membership import Membership, read_key
from remuda.fleet.requests import MAX_ATTEMPTS
from remuda.pool.types import Answered, Request, SessionEvent, Token
from remuda.testing.pool import FakeSession
from remuda.turns.account import Account
from support import counts
from support.fleet import HubMachine, Relay
from support.fleet_hosts import Host, Sender, fleet, set_lease

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def hub(home: Path) -> Iterator[HubMachine]:
    made = HubMachine(home / "hub")
    made.start()
    yield made
    made.close()


def test_a_request_is_run_by_one_host_and_streamed_back(hub: HubMachine, home: Path) -> None:
    async def go() -> None:
        async with fleet(hub, home, "build7", "build8") as (desk, hosts):
            for number in range(8):
                document = await desk.end(await desk.send(f"number {number}"))
                result = document["outcome"]["result"]
                assert result["text"] == f"{result['host']}: number {number} s3cret"
                assert [one["text"] for one in document["events"]] == ["one ", "two"]
                assert document["attempts"] == 1
            ran = sorted(prompt for host in hosts for prompt in host.ran)
            assert ran == [f"number {number}" for number in range(8)]
            listed = desk.requests.listing()
            assert {one["state"] for one in listed} == {"ended"}
            # Its payload is gone from the disk when it has ended.
            kept = [json.loads(path.read_text()) for path in (desk.folder / "requests").glob("*.json")]
            assert [one["payload"] for one in kept] == [None] * 8

    asyncio.run(go())


def test_events_come_while_it_runs_and_a_cancelled_one_is_stopped(hub: HubMachine, home: Path) -> None:
    async def go() -> None:
        async with fleet(hub, home, "build7") as (desk, (host,)):
            host.gate.clear()
            request = await desk.send("slow")
            document = await desk.requests.follow(request, 0, 60.0)
            while not document["events"]:
                document = await desk.requests.follow(request, 0, 60.0)
            assert document["events"] == [{"text": "one ", "type": "token"}]
            assert (document["state"], document["host"]) == ("running", "build7")
            await desk.requests.cancel(request)
            assert (await desk.end(request))["outcome"]["error"]["code"] == "ABORTED"
            # The host has stopped when it takes the next one, of two that it can run at once.
            host.gate.set()
            for number in range(3):
                await desk.end(await desk.send(f"after {number}"))
            assert host.ran[0] == "slow"
            late = await desk.send("late", seconds=0.001)
            assert (await desk.end(late))["outcome"]["error"]["code"] == "TIMEOUT"

    asyncio.run(go())


def test_another_key_can_read_no_payload(hub: HubMachine, home: Path) -> None:
    """A host that is not handed the request, an operator and a viewer listen to everything they may."""
    roles = {"spy": "host", "boss": "operator", "eye": "viewer"}
    keys = {name: hub.new_key(name, role) for name, role in roles.items()}
    (settings := home / "settings.json").write_text('{"env": {"OF": "secret settings"}}')
    (servers := home / "mcp.json").write_text('{"mcpServers": {"secret": {"command": "true"}}}')
    files = {"settings": settings, "mcp_config": (str(servers),)}
    options = portable({"cwd": home, "env": {"SECRET": "s3cret"}, **files})

    async def go() -> None:
        async with fleet(hub, home, "build7") as (desk, (host,)):
            heard: list[bytes] = []

            async def take(message: Msg) -> None:
                heard.append(message.subject.encode() + message.data)

            spies = [await Hub.connect(spy_member(hub, path)) for path in keys.values()]
            for spy in spies:
                for pattern in (">", "fl.>", "in.any.>", "_INBOX_build7.>", "_INBOX_desk.>", "$KV.>", "ev.>"):
                    await spy._client.subscribe(pattern, cb=take)
                await spy._client.flush()
            host.gate.clear()
            request = await desk.send("the secret prompt", options=options)
            await host.began.wait()
            spy = spies[0]
            # It knows the id, which the queue did not hand to it: the sender has given the payload away.
            subject = subjects.work_subject("desk", request, "spy")
            answer = subjects.read(await spy.request(subject, subjects.write({"do": "claim"}), 5.0))
            assert answer == {"busy": True}
            end = {"do": "end", "attempt": 1, "result": {"text": "forged"}}
            foreign = subjects.work_subject("desk", request, "build7")
            with pytest.raises((HostUnreachable, WaitTimeout, HubRefused)):
                await spy.request(foreign, subjects.write(end), 1.0)
            # It may also have been handed the id before: only the host of an attempt can end it.
            assert subjects.read(await spy.request(subject, subjects.write(end), 5.0)) == {"gone": True}
            host.gate.set()
            result = (await desk.end(request))["outcome"]["result"]
            assert result["text"] == "build7: the secret prompt s3cret"
            got = (host.profile.settings, *host.profile.mcp_config)
            assert got == (settings.read_text(), servers.read_text())
            for one in spies:
                await one.measure()
                await one.close()
            assert not [one for one in heard if b"secret" in one or request.encode() in one]

    asyncio.run(go())


def spy_member(hub: HubMachine, path: Path) -> Membership:
    return Membership(read_key(path), hub.url, "spy")


def test_a_hub_that_cannot_write_ends_a_request_with_the_reason(hub: HubMachine, home: Path) -> None:
    async def go() -> None:
        desk = Sender(hub, home)
        await desk.connect()
        pid = hub.folder.server_pid()
        assert pid is not None
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))  # as a full disk
        with pytest.raises(HubUnreachable, match="did not confirm within 5 s that it stored the request"):
            await desk.send("no")
        (one,) = desk.requests.listing()
        assert one["outcome"]["error"]["code"] == "HUB_UNREACHABLE"
        await desk.die()

    asyncio.run(go())


def test_what_the_queue_holds_is_an_id_and_no_payload(hub: HubMachine, home: Path) -> None:
    async def go() -> None:
        desk = Sender(hub, home)
        await desk.connect()
        request = await desk.send("the secret prompt")
        admin = await Hub.connect(hub.folder.admin())
        stored = await admin._client.jetstream().get_last_msg("INBOX", f"in.any.*.{request}.desk")
        assert json.loads(stored.data or b"") == {"id": request}
        await admin.close()
        await desk.die()

    asyncio.run(go())


@pytest.mark.soak
def test_a_host_that_dies_is_replaced_and_the_receipt_says_so(hub: HubMachine, home: Path) -> None:
    async def go() -> None:
        async with fleet(hub, home, "build7", "build8", lease=counts.REQUEST_LEASE) as (desk, hosts):
            for host in hosts:
                host.gate.clear()
            request = await desk.send("survive")
            first = await until_one_runs(hosts)
            (second,) = [one for one in hosts if one is not first]
            await first.die()
            second.gate.set()
            document = await desk.end(request)
            assert document["outcome"]["result"]["text"] == f"{second.name}: survive s3cret"
            assert document["attempts"] == 2
            assert {"type": "retry", "attempt": 2, "lost": first.name} in document["events"]
            assert (first.ran, second.ran) == (["survive"], ["survive"])

    asyncio.run(go())


async def until_one_runs(hosts: list[Host]) -> Host:
    async with asyncio.timeout(60):
        while not (running := [one for one in hosts if one.running]):
            await asyncio.sleep(0.01)
    return running[0]


@pytest.mark.soak
def test_a_turn_that_is_longer_than_the_lease_stays_where_it_is(hub: HubMachine, home: Path) -> None:
    async def go() -> None:
        async with fleet(hub, home, "build7", "build8", lease=counts.REQUEST_LEASE) as (desk, hosts):
            for host in hosts:
                host.gate.clear()
            request = await desk.send("take your time")
            await until_one_runs(hosts)
            await asyncio.sleep(1.5 * counts.REQUEST_LEASE)  # the hub hands it out again before that
            for host in hosts:
                host.gate.set()
            document = await desk.end(request)
            assert document["attempts"] == 1
            assert [*hosts[0].ran, *hosts[1].ran] == ["take your time"]

    asyncio.run(go())


@pytest.mark.soak
def test_a_host_that_is_cut_off_ends_its_turn_before_another_begins_it(hub: HubMachine, home: Path) -> None:
    relay = Relay(hub.port)

    async def go() -> None:
        async with fleet(hub, home, lease=counts.REQUEST_LEASE) as (desk, _):
            near = Host(hub, home, "build8", lease=counts.REQUEST_LEASE)
            far = Host(hub, home, "build7", lease=counts.REQUEST_LEASE, url=relay.url)
            await set_lease(hub, counts.REQUEST_LEASE)  # new keys set that of the product
            far.gate.clear()
            await far.start()
            request = await desk.send("hold on")
            await far.began.wait()
            relay.stall()
            await near.start()
            await near.began.wait()
            assert far.running == 0
            document = await desk.end(request)
            assert document["outcome"]["result"]["host"] == "build8"
            assert {"type": "retry", "attempt": 2, "lost": "build7"} in document["events"]
            assert (far.ran, near.ran) == (["hold on"], ["hold on"])
            relay.cut()
            await asyncio.gather(near.close(), far.close())

    try:
        asyncio.run(go())
    finally:
        relay.close()


def test_a_turn_outlives_the_hub_and_the_sender(hub: HubMachine, home: Path) -> None:
    async def go() -> None:
        async with fleet(hub, home, "build7") as (desk, (host,)):
            host.gate.clear()
            request = await desk.send("go on")
            await host.began.wait()
            await desk.die()
            await asyncio.to_thread(hub.end, 9)
            host.gate.set()  # it ends while there is neither hub nor sender
            kept = host.folder / "results" / f"{request}.json"
            async with asyncio.timeout(60):
                while not kept.exists():
                    await asyncio.sleep(0.05)
            await asyncio.to_thread(hub.start)
            await host.connect()
            await desk.connect()
            document = await desk.end(request)
            assert document["outcome"]["result"]["text"] == "build7: go on s3cret"
            assert document["attempts"] == 1
            assert host.ran == ["go on"]

    asyncio.run(go())


@pytest.mark.soak
def test_a_request_that_loses_every_host_is_a_dead_letter(hub: HubMachine, home: Path) -> None:
    names = [f"build{number}" for number in range(MAX_ATTEMPTS + 1)]

    async def go() -> None:
        async with fleet(hub, home, *names, lease=counts.REQUEST_LEASE / 2) as (desk, hosts):
            for host in hosts:
                host.gate.clear()
            request = await desk.send("poison")
            dead: list[Host] = []
            while len(dead) < MAX_ATTEMPTS:
                dead.append(await until_one_runs(hosts))
                await dead[-1].die()
                hosts.remove(dead[-1])
                await dead[-1].close()
            document = await desk.end(request)
            error = document["outcome"]["error"]
            assert error["code"] == "MESSAGE_DEAD"
            assert f"3 hosts were lost while they ran it; the last was {dead[-1].name}" in error["message"]
            assert (document["attempts"], hosts[0].ran) == (MAX_ATTEMPTS, [])

    asyncio.run(go())


def test_a_host_that_gives_a_request_back_is_not_called_lost(hub: HubMachine, home: Path) -> None:
    async def go() -> None:
        desk = Sender(hub, home, lease=0.0)
        await desk.connect()
        request = await desk.send("go")

        async def say(host: str, **words: Any) -> dict[str, Any]:
            return await desk.requests._carry_out(request, host, words)

        for host, attempt in (("build6", 1), ("build7", 2)):  # the first is lost
            assert (await say(host, do="claim"))["attempt"] == attempt
        assert await say("build7", do="release", attempt=2) == {"ok": True}
        assert (await say("build8", do="claim"))["attempt"] == 2
        half = {"type": "token", "text": "half "}
        assert await say("build8", do="events", attempt=2, events=[half], **{"from": 0}) == {"ok": True}
        assert await say("build8", do="release", attempt=2) == {"ok": True}
        assert await say("build7", do="end", attempt=2, result={"text": "late"}) == {"gone": True}
        assert (await say("build9", do="claim"))["attempt"] == 2
        shown = await desk.requests.follow(request, 0, 0.0)
        lost = {"type": "retry", "attempt": 2, "lost": "build6"}
        assert shown["events"] == [lost, half, {**lost, "lost": None}]
        assert (shown["host"], shown["attempts"]) == ("build9", 2)
        await desk.die()

    asyncio.run(go())


class LargeHost(Host):
    """A host whose agent says more than the hub takes at once."""

    async def answer(self, session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        for _ in range(200):
            yield Token("e" * (64 << 10))
        yield Answered("a" * (9 << 20) if request.prompt == "too much" else request.prompt)


def test_what_is_larger_than_the_hub_takes_is_reported_and_not_run_again(hub: HubMachine, home: Path) -> None:
    async def go() -> None:
        desk, host = Sender(hub, home), LargeHost(hub, home, "build7")
        await desk.connect()
        await host.start()
        document = await desk.end(await desk.send("too much"))
        assert "and the hub takes 8384512" in document["outcome"]["error"]["message"]
        assert document["attempts"] == 1
        document = await desk.end(await desk.send("less"))
        assert document["outcome"]["result"]["text"] == "less"
        assert sum(len(one["text"]) for one in document["events"]) == 200 * (64 << 10)
        assert host.ran == ["too much", "less"]
        await host.close()
        await desk.die()

    asyncio.run(go())


class LimitedHost(Host):
    """A host whose account meets a limit in the middle of a turn."""

    async def answer(self, session: FakeSession, request: Request) -> AsyncIterator[SessionEvent]:
        yield Token("half ")
        Account(self.folder / "accounts", self.account).limit(time.time() + 3600, "too much")
        raise AgentError("the account has reached its limit")


def test_a_host_with_a_full_disk_delivers_its_answer_and_no_other_runs_it(
    hub: HubMachine, home: Path
) -> None:
    async def go() -> None:
        async with fleet(hub, home, "build7", lease=6.0) as (desk, (host,)):
            (host.folder / "results").write_text("")  # no folder: nothing can be written there
            document = await desk.end(await desk.send("once"))
            assert document["outcome"]["result"]["text"] == "build7: once s3cret"
            assert (host.ran, document["attempts"]) == (["once"], 1)

    asyncio.run(go())


def test_a_limit_that_is_met_in_a_turn_gives_the_request_to_another_account(
    hub: HubMachine, home: Path
) -> None:
    async def go() -> None:
        desk, limited, other = Sender(hub, home), LimitedHost(hub, home, "build7"), Host(hub, home, "build8")
        limited.account = "abc"
        await desk.connect()
        await limited.start()
        request = await desk.send("go")
        await limited.began.wait()
        await other.start()
        document = await desk.end(request)
        assert document["outcome"]["result"]["host"] == "build8"
        retry = {"type": "retry", "attempt": 1, "lost": None}
        assert [one["text"] for one in document["events"] if one != retry] == ["half ", "one ", "two"]
        assert (document["attempts"], limited.ran, other.ran) == (1, ["go"], ["go"])
        await limited.close()
        await other.close()
        await desk.die()

    asyncio.run(go())


def test_a_host_whose_account_is_limited_takes_nothing(hub: HubMachine, home: Path) -> None:
    async def go() -> None:
        desk, host = Sender(hub, home), Host(hub, home, "build7")
        host.account = "abc"
        Account(host.folder / "accounts", "abc").limit(time.time() + 3600, "too much")
        await desk.connect()
        await host.start()
        request = await desk.send("later")
        document = await desk.requests.follow(request, 0, 3.0)
        assert (document["state"], host.ran) == ("queued", [])
        (host.folder / "accounts" / "abc.json").unlink()
        assert (await desk.end(request))["outcome"]["result"]["host"] == "build7"
        await host.close()
        await desk.die()

    asyncio.run(go())


def test_a_key_that_is_no_operator_sends_no_request(hub: HubMachine, home: Path) -> None:
    async def go() -> None:
        desk = Sender(hub, home)
        member = spy_member(hub, hub.new_key("eye", "viewer"))
        desk.hub = await Hub.connect(member)
        with pytest.raises(PermissionRefused, match="may not act on other hosts"):
            await desk.send("no")
        await desk.hub.close()

    asyncio.run(go())
