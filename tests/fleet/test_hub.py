"""The hub itself: connections to a real nats-server, what is stored there and how it is found."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from remuda.errors import HubRefused, HubUnreachable
from remuda.fleet import exchange, subjects
from remuda.fleet.hub import Hub
from remuda.fleet.hub_types import Stored
from remuda.fleet.membership import Membership, read_key
from remuda.fleet.remote import RemoteHosts
from remuda.fleet.server import find_server
from support.commands import until_line
from support.fleet import FleetBench, HubMachine, Relay, free_port
from support.heimdall_client import PATIENCE
from support.keeper import until


class Deaf(RemoteHosts):
    """Hears of nothing that is stored, and counts what it loads."""

    def __init__(self, folder: Path, whole_interval: float) -> None:
        super().__init__(folder, 0.05, whole_interval)
        self.taken: list[str] = []

    def _announce(self, subject: str, revision: int) -> None:
        pass

    def _take(self, hub: Hub, stored: Stored) -> None:
        self.taken.append(stored.subject)
        super()._take(hub, stored)


@pytest.mark.parametrize("whole_interval", [3600.0, 0.0])
def test_what_was_not_announced_is_found_without_loading_all_again(
    hub: HubMachine, tmp_path: Path, whole_interval: float
) -> None:
    name = f"idle{int(whole_interval)}"
    host = hub.member(hub.new_key(name, "host"))
    watcher = hub.member(hub.new_key(f"{name}-eye", "viewer"))
    document = json.dumps({"session": {"id": "s", "agent_state": "idle"}}).encode()

    async def until_seen(remote: RemoteHosts, *sessions: str) -> None:
        async with asyncio.timeout(20):
            while {session for host, session in remote._sessions if host == name} != {*sessions}:
                await asyncio.sleep(0.01)

    async def attempt() -> list[str]:
        showing, seeing = await Hub.connect(host), await Hub.connect(watcher)
        for session in ("old", "gone"):
            await showing.store(f"$KV.sessions.{name}.{session}", document)
        remote = Deaf(tmp_path, whole_interval)
        following = asyncio.create_task(remote.run(seeing))
        await until_seen(remote, "old", "gone")
        await showing.remove(f"$KV.sessions.{name}.gone")
        await until_seen(remote, "old")
        await showing.store(f"$KV.sessions.{name}.new", document)
        await until_seen(remote, "old", "new")
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        for one in (showing, seeing):
            await one.close()
        return remote.taken

    taken = [one.rpartition(".")[2] for one in asyncio.run(attempt()) if f".{name}." in one]
    if whole_interval:
        assert taken == ["old", "gone", "gone", "new"]
    else:
        assert taken.count("old") > 1


class Distracted(RemoteHosts):
    """Hears of the second value while it loads the first, and would wait an hour for a server that lags."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, stale_pause=3600.0)
        self._kept: list[tuple[str, int]] = []

    def _announce(self, subject: str, revision: int) -> None:
        if subject.endswith(".second"):
            self._kept.append((subject, revision))
        elif subject.endswith(".first") and self._kept:
            super()._announce(subject, revision)

    def _take(self, hub: Hub, stored: Stored) -> None:
        super()._take(hub, stored)
        if stored.subject.endswith(".first"):
            super()._announce(*self._kept.pop())


def test_what_is_announced_during_a_load_is_loaded_at_once(hub: HubMachine, tmp_path: Path) -> None:
    host = hub.member(hub.new_key("busy", "host"))
    watcher = hub.member(hub.new_key("busy-eye", "viewer"))
    document = json.dumps({"session": {"id": "s", "agent_state": "idle"}}).encode()

    async def attempt() -> None:
        showing, seeing = await Hub.connect(host), await Hub.connect(watcher)
        remote = Distracted(tmp_path)
        following = asyncio.create_task(remote.run(seeing))
        await remote.is_loaded.wait()
        for session in ("second", "first"):
            await showing.store(f"$KV.sessions.busy.{session}", document)
        async with asyncio.timeout(20):
            while remote.session("busy", "second") is None:
                await asyncio.sleep(0.01)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        for one in (showing, seeing):
            await one.close()

    asyncio.run(attempt())


class Counting(RemoteHosts):
    """Counts how often it reads a receipt."""

    count = 0

    async def _receipt(self, hub: Hub | None, message_id: str) -> dict[str, Any]:
        self.count += 1
        return await super()._receipt(hub, message_id)


def test_a_receipt_wakes_only_those_who_wait_for_it(hub: HubMachine, tmp_path: Path) -> None:
    host = hub.member(hub.new_key("worker", "host"))
    sender = hub.member(hub.new_key("waiter", "operator"))
    messages = [f"m{number}" for number in range(12)]

    async def attempt() -> int:
        showing, seeing = await Hub.connect(host), await Hub.connect(sender)
        remote = Counting(tmp_path)
        following = asyncio.create_task(remote.run(seeing))
        await remote.is_loaded.wait()
        for one in messages:
            remote._sent.note(one, host="worker", session="s", sent_at=time.time(), expires=2**40)
        waiting = [asyncio.create_task(remote.receipt(seeing, one, 60.0, 1)) for one in messages]
        while remote.count < len(messages):  # each has read once
            await asyncio.sleep(0.01)
        for one, task in zip(messages, waiting, strict=True):
            step = {"stage": "accepted", "at": time.time()}
            data = subjects.write(exchange.receipt(one, "worker", "s", [step], None))
            await showing.store(subjects.receipt_subject("worker", one), data)
            assert (await task)["stage"] == "accepted"
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        for connection in (showing, seeing):
            await connection.close()
        return remote.count

    # Twice for each, and once more for each 5 s of waiting. It was 90: each looked for each receipt.
    assert asyncio.run(attempt()) < 5 * len(messages)


# In a process of its own: asyncio leaves sockets of connections that were cut to the garbage collector.
_CANCELLING = """
import asyncio, sys
from pathlib import Path
from remuda.fleet.hub import Hub
from remuda.fleet.membership import Membership, read_key

async def try_at(member, turns):
    connecting = asyncio.create_task(Hub.connect(member))
    for _ in range(turns):  # of the loop: the cancellation comes at another step of each try
        await asyncio.sleep(0)
    if connecting.cancel():
        await asyncio.gather(connecting, return_exceptions=True)
        assert connecting.cancelled(), (turns, connecting)

async def work():
    for turns in range(2, 32, 2):
        for path in sys.argv[2:]:
            await try_at(Membership(read_key(Path(path)), sys.argv[1], "machine"), turns)

asyncio.run(work())
"""


def test_a_connection_that_is_cancelled_while_it_is_made_ends_as_cancelled(hub: HubMachine) -> None:
    keys = [str(hub.new_key(name, "host")) for name in ("hasty", "refused")]
    hub.remuda("fleet", "keys", "revoke", "refused")
    words = [sys.executable, "-c", _CANCELLING, hub.url, *keys]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_revoked_key_is_disconnected_and_refused(hub: HubMachine) -> None:
    own = hub.member(hub.new_key("leaver", "host", "operator"))

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


def test_a_link_that_stalls_does_not_move_the_clock(hub: HubMachine) -> None:
    path = hub.new_key("clock", "host")

    async def attempt() -> None:
        with closing(Relay(hub.port)) as relay:
            connection = await Hub.connect(Membership(read_key(path), relay.url, "machine"))
            error = await connection.measure() / 2
            relay.stall("down")
            measuring = asyncio.create_task(connection.measure())
            while not relay.held["down"]:  # the answer, which is late
                await asyncio.sleep(0.05)
            await asyncio.sleep(1.0)
            relay.mend()
            assert await measuring > 1.0
            assert abs(connection.ahead) <= error + 0.1  # both have the same clock
            await connection.close()

    asyncio.run(attempt())


def test_a_dead_link_is_noticed_before_the_library_does(hub: HubMachine) -> None:
    path = hub.new_key("stalled", "host")

    async def attempt() -> None:
        with closing(Relay(hub.port)) as relay:
            connection = await Hub.connect(Membership(read_key(path), relay.url, "machine"))
            relay.stall()
            with pytest.raises(HubUnreachable):
                await connection.until_lost()
            assert connection._client.is_connected
            assert connection.closed.is_set()
            await connection.close()

    asyncio.run(attempt())


def test_a_hub_with_another_certificate_is_refused(hub: HubMachine, home: Path) -> None:
    path = hub.new_key("careful", "host")
    document = json.loads(path.read_text())
    other = HubMachine(home / "other")
    other.start()
    try:
        document["ca"] = json.loads(other.new_key("careful", "host").read_text())["ca"]
        path.write_text(json.dumps(document))
        with pytest.raises(HubRefused, match="is not the one in the key file"):
            asyncio.run(Hub.connect(hub.member(path)))
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
    sender = hub.member(hub.new_key("desk", "operator"))
    host = hub.member(hub.new_key("away", "host"))

    async def store(times: int) -> list[int]:
        connection = await Hub.connect(sender)
        found = [await connection.store("in.away.s.m1.desk", b"x", dedup="m1") for _ in range(times)]
        await connection.close()
        return found

    async def take() -> list[Any]:
        connection = await Hub.connect(host)
        taken: list[Any] = []
        async for one in connection.taking("INBOX", "away", 1.0):
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


def test_a_server_with_our_configuration_reports_that_it_syncs_every_write(
    hub: HubMachine, tmp_path: Path
) -> None:
    """What is confirmed must be on the disk. A second server, with a monitor, reads the file of the hub."""
    config, port = json.loads(hub.folder.config.read_bytes()), free_port()
    config |= {"listen": f"127.0.0.1:{free_port()}", "pid_file": str(tmp_path / "pid")}
    config |= {"http": f"127.0.0.1:{port}", "log_file": str(tmp_path / "log")}
    config["jetstream"]["store_dir"] = str(tmp_path / "jetstream")
    path = tmp_path / "server.conf"
    path.write_text(json.dumps(config))

    def look() -> dict[str, Any]:
        try:
            with urlopen(f"http://127.0.0.1:{port}/jsz") as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except OSError:  # it starts
            return {}

    with subprocess.Popen([find_server(), "-c", str(path)]) as server:
        try:
            assert until(look, "the server's report")["config"]["sync_always"] is True
        finally:
            server.terminate()


def test_a_hub_that_is_full_refuses_a_message_and_says_why(hub: HubMachine) -> None:
    sender = hub.member(hub.new_key("writer", "operator"))

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
    """The files of the second one are a copy of those of the first."""
    desk, first = bench.desk_and_build()
    second = bench.bare_machine("second")
    shutil.copytree(
        first.remuda.home / "fleet", second.remuda.home / "fleet", ignore=shutil.ignore_patterns("*.sock")
    )
    second.boss_up()
    until(lambda: "another machine is connected as 'build7'" in str(second.status()["error"]), "a refusal")
    assert "another machine is connected as 'build7'" in second.remuda("fleet", "status").out
    sent = [desk.send("build7/work", f"number {at}") for at in range(3)]
    for message in sent:
        desk.until_stage(message, "acked")
    assert first.prompts("work") == [f"number {at}" for at in range(3)]
    assert not (second.remuda.home / "sessions" / "work.inbox").exists()
    second.remuda("fleet", "leave")  # takes nothing of the other
    desk.until_session("build7", "work")
    desk.until_host("build7")


def test_serve_that_fails_leaves_no_membership_and_the_corrected_command_works(tmp_path: Path) -> None:
    hub = HubMachine(tmp_path / "hub")
    try:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            words = ("fleet", "serve", "--listen")
            assert "cannot name a host" in hub.remuda.refused(*words, address, "--add", "a b", code=4)
            (hub.remuda.cwd / "old.key").touch()
            assert "old.key exists" in hub.remuda.refused(*words, address, "--add", "old", code=2)
            assert not hub.folder.exists
            refusal = hub.remuda.refused(*words, address, "--name", "one", code=1)
        assert f"the hub cannot listen on {address}: address already in use; choose another" in refusal
        assert "joined no fleet" in hub.remuda.refused("fleet", "leave", code=2)
        process = hub.remuda.begin(*words, f"127.0.0.1:{hub.port}", "--name", "one")
        try:
            until_line(process, b"fleet keys new NAME")
            assert "left tls://" in hub.remuda("fleet", "leave").out
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE)
    finally:
        hub.close()
