"""Requests to any host: run once, streamed back, read by no one else; taken over when their host is lost."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from remuda.errors import HostUnreachable, HubRefused, PermissionRefused, WaitTimeout
from remuda.fleet import subjects
from remuda.fleet.hub import Hub
from remuda.fleet.membership import Membership, read_key
from remuda.turns.account import Account
from support.fleet import HubMachine
from support.fleet_hosts import Host, Sender, fleet

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
            request = await desk.send("the secret prompt")
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
            host.gate.set()
            result = (await desk.end(request))["outcome"]["result"]
            assert result["text"] == "build7: the secret prompt s3cret"
            for one in spies:
                await one.measure()
                await one.close()
            assert not [one for one in heard if b"secret" in one or request.encode() in one]

    asyncio.run(go())


def spy_member(hub: HubMachine, path: Path) -> Membership:
    return Membership(read_key(path), hub.url, "spy")


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


def test_a_host_that_dies_is_replaced_and_the_receipt_says_so(hub: HubMachine, home: Path) -> None:
    async def go() -> None:
        async with fleet(hub, home, "build7", "build8") as (desk, hosts):
            for host in hosts:
                host.gate.clear()
            request = await desk.send("survive")
            done, _ = await asyncio.wait(
                [asyncio.create_task(one.began.wait()) for one in hosts], return_when=asyncio.FIRST_COMPLETED
            )
            assert done
            first, second = sorted(hosts, key=lambda one: not one.ran)
            await first.die()
            second.gate.set()
            document = await desk.end(request)
            assert document["outcome"]["result"]["text"] == f"{second.name}: survive s3cret"
            assert document["attempts"] == 2
            assert {"type": "retry", "attempt": 2, "lost": first.name} in document["events"]
            assert (first.ran, second.ran) == (["survive"], ["survive"])

    asyncio.run(go())


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


def test_a_request_that_loses_every_host_is_a_dead_letter(hub: HubMachine, home: Path) -> None:
    async def go() -> None:
        desk = Sender(hub, home)
        await desk.connect()
        request = await desk.send("poison")
        sent = desk.requests._requests[request]
        for number in range(1, 4):
            answer = await desk.requests._carry_out(request, f"host{number}", {"do": "claim"})
            assert answer["attempt"] == number
            assert (await desk.requests._carry_out(request, "other", {"do": "claim"})) == {"busy": True}
            sent.heard = time.monotonic() - 3600.0
        assert (await desk.requests._carry_out(request, "host4", {"do": "claim"})) == {"gone": True}
        error = (await desk.end(request))["outcome"]["error"]
        assert error["code"] == "MESSAGE_DEAD"
        assert "3 hosts were lost while they ran it; the last was host3" in error["message"]
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
