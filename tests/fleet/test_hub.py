"""The hub itself: a real nats-server, its keys, and what each key must not read or write there."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from nats.aio.msg import Msg
from nats.js.errors import NotFoundError

from remuda.errors import HubRefused, HubUnreachable
from remuda.fleet.hub import Hub
from remuda.fleet.hub_folder import new_seed
from remuda.fleet.hub_types import Stored
from remuda.fleet.membership import Key, Membership, read_key
from remuda.fleet.remote import RemoteHosts
from remuda.fleet.server import find_server
from support.fleet import FleetBench, HubMachine, Machine, Relay, free_port
from support.keeper import until


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubMachine]:
    made = HubMachine(tmp_path_factory.mktemp("fleet") / "hub")
    made.start()
    yield made
    made.close()


def member(hub: HubMachine, path: Path) -> Membership:
    return Membership(read_key(path), hub.url, "machine")


def insider(hub: HubMachine) -> Membership:
    """A key with all rights among the members, until another key is made: no such key is ever made by us."""
    seed, public = new_seed()
    config = json.loads(hub.folder.config.read_bytes())
    config["accounts"]["MEMBERS"]["users"].append({"nkey": public})
    hub.folder.config.write_text(json.dumps(config))
    hub.folder._reload()
    return Membership(Key("insider", (), seed, hub.folder.certificate.read_text()), hub.url, "machine")


_STREAMS = ("INBOX", "RECEIPT", "EVENTS", "KV_hosts", "KV_sessions", "KV_accounts")
_OF_A_STREAM = (
    *("STREAM.INFO", "STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE", "STREAM.SNAPSHOT"),
    *(
        "STREAM.RESTORE",
        "STREAM.MSG.GET",
        "STREAM.MSG.DELETE",
        "STREAM.PEER.REMOVE",
        "STREAM.LEADER.STEPDOWN",
    ),
    *("CONSUMER.CREATE", "CONSUMER.LIST", "CONSUMER.NAMES", "DIRECT.GET"),
)
_OF_A_CONSUMER = (
    *("CONSUMER.CREATE", "CONSUMER.DURABLE.CREATE", "CONSUMER.INFO", "CONSUMER.DELETE", "CONSUMER.PAUSE"),
    *("CONSUMER.RESET", "CONSUMER.UNPIN", "CONSUMER.LEADER.STEPDOWN", "CONSUMER.MSG.NEXT"),
)


def every_subject(name: str) -> list[str]:
    """Subjects of every shape that the hub knows, with this key's name and another in every place."""
    names = (name, "other")
    pairs = [(one, two) for one in names for two in names]
    found = [f"in.{one}.s.m1.{two}" for one, two in pairs] + [f"in.any.p.r1.{one}" for one in names]
    found += [f"fl.{one}.r1.{two}" for one, two in pairs] + [f"ap.{one}.3f.{two}" for one, two in pairs]
    found += [f"rq.{one}.{kind}.{two}" for one, two in pairs for kind in ("read", "act", "new")]
    found += [f"io.{one}.{kind}.{two}.1" for one, two in pairs for kind in ("read", "type", "out", "new")]
    shapes = ("rc.{}.m1", "ev.{}.s", "$KV.hosts.{}", "$KV.sessions.{}.s", "$KV.accounts.{}.a", "_INBOX_{}.x")
    stored = [shape.format(one) for shape in shapes for one in names]
    found += [*stored, *(f"new.{one}" for one in stored)]
    found += [f"an.{one}.{two}.1" for one, two in pairs] + [f"hub.queue.{one}" for one in names]
    for stream in _STREAMS:
        found += [f"$JS.API.{word}.{stream}" for word in _OF_A_STREAM]
        found += [f"$JS.API.CONSUMER.CREATE.{stream}.x.{filtered}" for filtered in (f"in.{name}.>", ">")]
        for consumer in (*names, "any"):
            found += [f"$JS.API.{word}.{stream}.{consumer}" for word in _OF_A_CONSUMER]
            found += [f"$JS.ACK.{stream}.{consumer}.1.1.1.1.0", f"$JS.FC.{stream}.{consumer}.x"]
    for one in names:
        found += [f"$JS.API.DIRECT.GET.KV_hosts.$KV.hosts.{one}", f"$JS.API.DIRECT.GET.RECEIPT.rc.{one}.m1"]
        found += [f"$JS.API.DIRECT.GET.KV_sessions.$KV.sessions.{one}.s"]
        found += [
            f"$JS.API.DIRECT.GET.KV_accounts.$KV.accounts.{one}.a",
            f"$JS.API.DIRECT.GET.EVENTS.ev.{one}.s",
        ]
        found += [f"$JS.API.DIRECT.GET.INBOX.in.{one}.s.m1.{one}"]
    found += ["$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.ACCOUNT.PURGE.FLEET"]
    found += ["$JS.API.META.LEADER.STEPDOWN", "$JS.API.SERVER.REMOVE", "$JS.EVENT.ADVISORY.x"]
    found += ["hub.time", *(f"$KV.members.{one}" for one in names)]
    found += [f"$JS.API.DIRECT.GET.KV_hosts.$KV.members.{one}" for one in names]
    return [*found, "$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.INFO", "_INBOX.x", "$KV.other.x", "$O.x", "x.y"]


_ASKS_TIME = ["hub.time"]
_HAS_A_NAME = ["$KV.members.NAME", "$JS.API.DIRECT.GET.KV_hosts.$KV.members.NAME"]
_ANSWERS = ["an.NAME.NAME.1", "an.other.NAME.1"]
_ANSWERED = ["_INBOX_NAME.x", "an.NAME.NAME.1", "an.NAME.other.1"]
_SEES = [
    *("$JS.API.DIRECT.GET.KV_hosts", "$JS.API.DIRECT.GET.KV_sessions", "$JS.API.DIRECT.GET.RECEIPT"),
    *("$JS.API.CONSUMER.MSG.NEXT.EVENTS.NAME", "$JS.ACK.EVENTS.NAME.1.1.1.1.0"),
    *("rq.NAME.read.NAME", "rq.other.read.NAME", "io.NAME.read.NAME.1", "io.other.read.NAME.1"),
]
_SEEN = [
    *("new.$KV.hosts.NAME", "new.$KV.hosts.other", "new.$KV.sessions.NAME.s", "new.$KV.sessions.other.s"),
    *("new.rc.NAME.m1", "new.rc.other.m1", "io.NAME.out.NAME.1", "io.other.out.NAME.1"),
]
ALLOWED: dict[str, tuple[list[str], list[str]]] = {
    "host": (
        [
            *_ASKS_TIME,
            *("rc.NAME.m1", "ev.NAME.s", "$KV.hosts.NAME", "$KV.sessions.NAME.s", "$KV.accounts.NAME.a"),
            *("fl.NAME.r1.NAME", "fl.other.r1.NAME", "io.NAME.out.NAME.1", "io.NAME.out.other.1"),
            *("$JS.API.CONSUMER.MSG.NEXT.INBOX.NAME", "$JS.ACK.INBOX.NAME.1.1.1.1.0", "hub.queue.NAME"),
            *("$JS.API.CONSUMER.MSG.NEXT.INBOX.any", "$JS.ACK.INBOX.any.1.1.1.1.0"),
            *("$JS.API.DIRECT.GET.KV_hosts.$KV.hosts.NAME", "$JS.API.DIRECT.GET.KV_accounts"),
            *_ANSWERS,
        ],
        [
            *_ANSWERED,
            *(
                "new.$KV.accounts.NAME.a",
                "new.$KV.accounts.other.a",
                "ap.NAME.3f.NAME",
                "ap.NAME.3f.other",
            ),
            *(f"rq.NAME.{kind}.{one}" for kind in ("read", "act", "new") for one in ("NAME", "other")),
            *(f"io.NAME.{kind}.{one}.1" for kind in ("read", "type") for one in ("NAME", "other")),
        ],
    ),
    "viewer": ([*_ASKS_TIME, *_SEES, *_HAS_A_NAME], [*_ANSWERED, *_SEEN]),
    "operator": (
        [
            *(*_ASKS_TIME, *_SEES, "in.NAME.s.m1.NAME", "in.other.s.m1.NAME", "in.any.p.r1.NAME"),
            *("rq.NAME.act.NAME", "rq.other.act.NAME", "ap.NAME.3f.NAME", "ap.other.3f.NAME"),
            *("io.NAME.type.NAME.1", "io.other.type.NAME.1", *_ANSWERS, *_HAS_A_NAME),
            *("hub.queue.NAME", "hub.queue.other"),
        ],
        [*_ANSWERED, *_SEEN, "fl.NAME.r1.NAME", "fl.NAME.r1.other"],
    ),
}
"""By role: all that its key may publish and subscribe to of `every_subject`. It must not do the rest."""
_PATTERNS = [
    *(
        ">",
        "*.>",
        "*.*",
        "*.*.*",
        "*.*.*.*",
        "*.*.*.*.*",
        "in.>",
        "in.*.*.*.*",
        "in.any.>",
        "fl.>",
        "fl.*.*.*",
        "ap.>",
    ),
    *(
        "ap.*.*.*",
        "rq.>",
        "rq.*.*.*",
        "io.>",
        "io.*.*.*.*",
        "io.*.out.*.*",
        "rc.>",
        "ev.>",
        "ev.*.*",
        "$KV.>",
        "$JS.>",
    ),
    *(
        "$KV.*.*",
        "$KV.*.*.*",
        "$KV.accounts.>",
        "new.>",
        "new.$KV.>",
        "_R_.>",
        "_INBOX.>",
        "_INBOX_other.>",
        "$JS.API.>",
        "$JS.ACK.>",
        "$SYS.>",
    ),
]
"""What a key could try to subscribe to so as to read more."""


@pytest.mark.parametrize("roles", [["host"], ["viewer"], ["operator"], ["host", "operator"]], ids="+".join)
def test_a_key_writes_and_reads_what_its_roles_allow_and_nothing_else(
    hub: HubMachine, roles: list[str]
) -> None:
    name = "-".join(["some", *roles])
    own = member(hub, hub.new_key(name, *roles))
    publish, subscribe = (
        {one.replace("NAME", name) for role in roles for one in ALLOWED[role][at]} for at in (0, 1)
    )
    if "host" in roles:  # its name is another one
        publish -= {one.replace("NAME", name) for one in _HAS_A_NAME}
    subjects = every_subject(name)
    assert publish | subscribe <= {*subjects}
    every = insider(hub)

    async def attempt() -> tuple[set[str], set[str]]:
        admin, key = await Hub.connect(every), await Hub.connect(own)
        written, heard = Heard(), Heard()
        await admin._client.subscribe(">", cb=written.take)
        await admin._client.flush()
        for subject in subjects:
            await key._client.publish(subject, f"try {subject}".encode())
        for subject in [*subjects, *_PATTERNS]:
            await key._client.subscribe(subject, cb=heard.take)
            await key._client.subscribe(subject, queue="q", cb=heard.take)
        await key._client.subscribe(f"_INBOX_{name}.end", cb=heard.take)
        await key._client.flush()
        await key._client.publish("hub.time", b"end")
        await written.until(b"end")
        # The rest is what an administrator would change the hub with.
        for subject in [one for one in subjects if not one.startswith("$JS.API.")]:
            await admin._client.publish(subject, f"secret {subject}".encode())
        await admin._client.publish(f"_INBOX_{name}.end", b"end")
        await heard.until(b"end")
        await key.close()
        await admin.close()
        return written.after("try "), heard.after("secret ")

    could_write, could_read = asyncio.run(attempt())
    assert could_write == publish
    assert could_read == subscribe


@pytest.mark.parametrize("roles", [["host"], ["host", "viewer"], ["host", "operator"]], ids="+".join)
def test_a_key_cannot_publish_to_a_reply_subject_that_it_names_itself(
    hub: HubMachine, roles: list[str]
) -> None:
    name = "-".join(["own", *roles])
    own = member(hub, hub.new_key(name, *roles))
    foreign = ["in.other.s.m1.desk", "rq.other.act.desk", "ap.other.3f.desk", "io.other.type.desk.1"]
    foreign += ["$KV.hosts.other", "ev.other.s", "rc.other.m1", "fl.desk.r1.other", "an.desk.other.1"]
    every = insider(hub)

    async def attempt() -> set[str]:
        admin, key = await Hub.connect(every), await Hub.connect(own)
        written, heard = Heard(), Heard()
        await admin._client.subscribe(">", cb=written.take)
        await admin._client.flush()
        await key._client.subscribe(f"an.{name}.*.*", cb=heard.take)
        for subject in foreign:
            await key._client.publish(f"an.{name}.{name}.1", f"to {subject}".encode(), reply=subject)
            await heard.until(f"to {subject}".encode())
            await key._client.publish(subject, f"try {subject}".encode())
        await key._client.publish("hub.time", b"end")
        await written.until(b"end")
        await key.close()
        await admin.close()
        return written.after("try ")

    assert asyncio.run(attempt()) == set()


@pytest.mark.parametrize("roles", [["host"], ["viewer"], ["host", "operator"]], ids="+".join)
def test_answers_and_copies_of_the_server_take_the_place_of_nothing(
    hub: HubMachine, roles: list[str], tmp_path: Path
) -> None:
    """The server writes its answers where a client says, whatever that client may publish."""
    name, victim = "-".join(["forger", *roles]), "-".join(["victim", *roles])
    evil, good = member(hub, hub.new_key(name, *roles)), member(hub, hub.new_key(victim, "host"))
    watcher = member(hub, hub.new_key("-".join(["watcher", *roles]), "viewer"))
    places = {
        "KV_hosts": f"$KV.hosts.{victim}",
        "KV_sessions": f"$KV.sessions.{victim}.s",
        "KV_accounts": f"$KV.accounts.{victim}.a",
        "RECEIPT": f"rc.{victim}.m1",
        "EVENTS": f"ev.{victim}.s",
        "INBOX": f"in.{victim}.s.m1.desk",
    }
    targets = [one for place in places.values() for one in (place, f"new.{place}")]
    truth = json.dumps({"session": {"id": "s", "name": "true", "agent_state": "idle"}}).encode()
    lie = truth.replace(b"true", b"lie!")
    asked = [f"$KV.sessions.{name}.s", f"$KV.hosts.{name}", f"rc.{name}.x", f"ev.{name}.s"]
    asked += [f"$KV.accounts.{name}.a", "hub.time", f"hub.queue.{name}", f"in.{name}.s.m1.{name}"]
    asked += [f"$JS.API.DIRECT.GET.{stream}" for stream in places]
    asked += [f"$JS.API.DIRECT.GET.KV_hosts.$KV.hosts.{name}", f"$JS.API.CONSUMER.MSG.NEXT.INBOX.{name}"]
    asked += [f"$JS.API.CONSUMER.MSG.NEXT.EVENTS.{name}", "$JS.API.CONSUMER.MSG.NEXT.INBOX.any"]

    async def attempt() -> tuple[dict[str, bytes], dict[str, Any]]:
        admin, key, host = [await Hub.connect(one) for one in (hub.folder.admin(), evil, good)]
        seeing, remote = await Hub.connect(watcher), RemoteHosts(tmp_path)
        following = asyncio.create_task(remote.run(seeing))
        for place in places.values():
            if not place.startswith("in."):
                await host.store(place, truth)
        await admin.store(f"in.{name}.s.m2.desk", lie)
        await remote.is_loaded.wait()
        for subject in asked:
            for target in targets:
                stream = subject.rpartition(".GET.")[2].partition(".")[0]
                own = f"$KV.sessions.{name}.s" if stream == "KV_sessions" else f"$KV.hosts.{name}"
                body = lie if ".API." not in subject else b""
                body = json.dumps({"last_by_subj": own}).encode() if ".GET." in subject else body
                await key._client.publish(subject, body, reply=target)
        await key._client.flush()
        await host.store(f"$KV.sessions.{victim}.last", truth)
        async with asyncio.timeout(20):
            while remote.session(victim, "last") is None:
                await asyncio.sleep(0.01)
        found = {place: await _last(admin, stream, place) for stream, place in places.items()}
        shown = remote.session(victim, "s")
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        for one in (admin, key, host, seeing):
            await one.close()
        return found, dict((shown or {})["session"])

    found, shown = asyncio.run(attempt())
    expected = {place: b"" if place.startswith("in.") else truth for place in places.values()}
    assert found == expected
    assert shown["name"] == "true"


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
    host = member(hub, hub.new_key(name, "host"))
    watcher = member(hub, hub.new_key(f"{name}-eye", "viewer"))
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
    host = member(hub, hub.new_key("busy", "host"))
    watcher = member(hub, hub.new_key("busy-eye", "viewer"))
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


async def _last(admin: Hub, stream: str, subject: str) -> bytes:
    try:
        return bytes((await admin._jetstream.get_last_msg(stream, subject)).data or b"")
    except NotFoundError:
        return b""


class Heard:
    """What a subscription got."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self._wanted: dict[bytes, asyncio.Event] = {}

    async def take(self, message: Msg) -> None:
        self.got.append(message.data.decode("utf-8", "replace"))
        self._wanted.setdefault(message.data, asyncio.Event()).set()

    def after(self, word: str) -> set[str]:
        return {one.removeprefix(word) for one in self.got if one.startswith(word)}

    async def until(self, data: bytes) -> None:
        async with asyncio.timeout(20):
            await self._wanted.setdefault(data, asyncio.Event()).wait()


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
    """The files of the second one are a copy of those of the first."""
    desk, first = bench.machine("desk", "operator"), bench.machine("build7", "host")
    first.start("work")
    desk.until_session("build7", "work")
    second = Machine(bench.folder / "second", "second")
    bench.machines.append(second)
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
