"""What each key may and must not read or write on the hub, tried on a real nats-server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg
from nats.js.errors import NotFoundError

from remuda.fleet.hub import Hub
from remuda.fleet.hub_folder import new_seed
from remuda.fleet.membership import Key, Membership
from remuda.fleet.remote import RemoteHosts
from support.fleet import HubMachine


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
    own = hub.member(hub.new_key(name, *roles))
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
    own = hub.member(hub.new_key(name, *roles))
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
    evil, good = hub.member(hub.new_key(name, *roles)), hub.member(hub.new_key(victim, "host"))
    watcher = hub.member(hub.new_key("-".join(["watcher", *roles]), "viewer"))
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
