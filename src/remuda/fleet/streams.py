"""What the hub stores: its streams, and a queue in them for each key. Pure.

They are in an account of their own, `FLEET`, and the keys in another one, `MEMBERS`. The server writes
answers to whatever subject a client names, without asking for its rights. In one account such an answer, or
a copy of a stored value, was stored in the place of another host's session. Now it stays among the members,
where nothing is stored. What a member publishes comes to the streams through an import; an answer does not.

A value that was stored is announced to the members at `new.SUBJECT`, without its content. Anyone can forge
that, so it only says what to load again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from remuda.errors import FolderUnusable

from .subjects import (
    ACCOUNTS,
    EVENTS,
    HOSTS,
    INBOX,
    MAX_PAYLOAD_BYTES,
    NEW,
    RECEIPT,
    SESSIONS,
    TIME,
    KeyRecord,
    Role,
    queue_subject,
    rights,
    write,
)

Document = dict[str, Any]

STREAMS_ACCOUNT, MEMBERS_ACCOUNT = "FLEET", "MEMBERS"
KEPT_SECONDS = 5 * 86400
"""How long the hub keeps a message for a host that does not come. Receipts of an inbox stay for a week, so a
message that is delivered again was always known there."""
_RECEIPT_SECONDS = 14 * 86400
_EVENT_SECONDS = 7 * 86400
_DEDUP_SECONDS = 600
MAX_STREAM_BYTES = 1 << 30
_LEAST_STREAM_BYTES = 2 * MAX_PAYLOAD_BYTES
_SMALL = 64 << 10
_MAX_SESSION_BYTES = 1 << 20
"""Several times what a host of ours stores. The server ends the connection of a client that lags by 64 MiB,
which few large events of one host could do to all who follow."""
ACK_WAIT = 10.0
BATCH = 256
"""Messages or events that a member may have without having acknowledged them. It puts them in order."""
SHARED_LEASE = 30.0
"""How long a host has a request for any host without extending it."""
_ANSWER_SECONDS = "30s"
"""How long the server remembers where an answer goes."""
_SUBJECTS = {
    INBOX: "in.*.*.*.*",
    RECEIPT: "rc.*.*",
    EVENTS: "ev.*.*",
    HOSTS: "$KV.hosts.*",
    SESSIONS: "$KV.sessions.*.*",
    ACCOUNTS: "$KV.accounts.*.*",
}
_RENAMED = {f"$JS.API.STREAM.INFO.{HOSTS}": TIME, f"$JS.API.CONSUMER.INFO.{INBOX}.*": queue_subject("*")}
"""In an account without streams the server answers these itself, that there are none."""
_MEMBERS = "$KV.members.*"
_ONE_ANSWER = (*_SUBJECTS.values(), _MEMBERS, *_RENAMED, "$JS.ACK.>")
_MANY_ANSWERS = ("$JS.API.CONSUMER.MSG.NEXT.*.*", "$JS.API.DIRECT.GET.>")


def server_config(keys: Iterable[KeyRecord], admin: str, settings: Mapping[str, Any]) -> bytes:
    """Return the configuration of nats-server, which reads JSON. `admin` may do all with the streams."""
    return write(
        {
            "server_name": "remuda-hub",
            "max_payload": MAX_PAYLOAD_BYTES,
            "ping_interval": "10s",
            "ping_max": 2,
            "accounts": {
                STREAMS_ACCOUNT: {
                    "jetstream": "enabled",
                    "users": [{"nkey": admin}],
                    "exports": [{**one, "accounts": [MEMBERS_ACCOUNT]} for one in _exports()],
                },
                MEMBERS_ACCOUNT: {"users": [_user(one) for one in keys], "imports": list(_imports())},
            },
            **settings,
        }
    )


def _exports() -> Iterator[Document]:
    for subject in _ONE_ANSWER:
        yield {"service": subject, "response_type": "Singleton", "response_threshold": _ANSWER_SECONDS}
    for subject in _MANY_ANSWERS:
        yield {"service": subject, "response_type": "Stream", "response_threshold": _ANSWER_SECONDS}
    yield {"stream": f"{NEW}.>"}


def _imports() -> Iterator[Document]:
    for one in _exports():
        kind = "service" if "service" in one else "stream"
        renamed = {"to": _RENAMED[one[kind]]} if one[kind] in _RENAMED else {}
        yield {kind: {"account": STREAMS_ACCOUNT, "subject": one[kind]}, **renamed}


def _user(key: KeyRecord) -> Document:
    allowed = rights(key.name, key.roles)
    permissions = {
        "publish": {"allow": list(allowed.publish)},
        "subscribe": {"allow": list(allowed.subscribe)},
    }
    return {"nkey": key.public, "permissions": permissions}


def stream_bytes(disk_bytes: int) -> int:
    """Return how much each stream may hold on a disk with that much room. A quarter stays free.

    Raises `FolderUnusable` for one that is too small.
    """
    share = disk_bytes * 3 // 4 // len(_SUBJECTS)
    if share < _LEAST_STREAM_BYTES:
        needed = _LEAST_STREAM_BYTES * len(_SUBJECTS) * 4 // 3
        raise FolderUnusable(
            f"the disk has room for {disk_bytes >> 20} MiB, and the hub needs {needed >> 20}",
            hint="free space, or put REMUDA_HOME on another disk",
        )
    return min(share, MAX_STREAM_BYTES)


def streams(replicas: int, max_bytes: int = MAX_STREAM_BYTES) -> Iterator[Document]:
    """Yield the configuration of each stream. `replicas` is on how many servers of a cluster it is."""
    last = {"max_msgs_per_subject": 1, "allow_direct": True}
    values = {**last, "allow_msg_ttl": True, "deny_delete": True}
    particular: dict[str, Document] = {
        INBOX: {"retention": "workqueue", "discard": "new", "max_age": _nanoseconds(KEPT_SECONDS)},
        RECEIPT: {**last, "discard": "old", "max_age": _nanoseconds(_RECEIPT_SECONDS)},
        HOSTS: {**values, "discard": "new", "max_msg_size": _SMALL},
        SESSIONS: {**values, "discard": "new", "max_msg_size": _MAX_SESSION_BYTES},
        ACCOUNTS: {**values, "discard": "old", "max_msg_size": _SMALL},
        # A host that publishes more than fits makes others miss old events; it never blocks them.
        EVENTS: {"discard": "old", "max_age": _nanoseconds(_EVENT_SECONDS), "max_msg_size": _SMALL},
    }
    for name, own in particular.items():
        subject = _SUBJECTS[name]
        is_announced = name not in (INBOX, EVENTS)
        announced = {"src": subject, "dest": _announced(subject), "headers_only": True}
        yield {
            "name": name,
            "subjects": [subject, _MEMBERS] if name == HOSTS else [subject],
            "storage": "file",
            "retention": "limits",
            "max_bytes": max_bytes,
            "duplicate_window": _nanoseconds(_DEDUP_SECONDS),
            "num_replicas": replicas,
            **({"republish": announced} if is_announced else {}),
            **own,
        }


def consumers(keys: Iterable[KeyRecord]) -> Iterator[tuple[str, Document]]:
    """Yield the queues of the keys, each with its stream."""
    shared = _consumer("any", "in.any.>")
    # All hosts share it: the lease of a request, and no order.
    yield INBOX, {**shared, "ack_wait": _nanoseconds(SHARED_LEASE), "max_ack_pending": 10_000}
    for key in keys:
        if Role.HOST in key.roles:
            yield INBOX, _consumer(key.name, f"in.{key.name}.>")
        if {Role.OPERATOR, Role.VIEWER} & set(key.roles):
            yield EVENTS, _consumer(key.name, _SUBJECTS[EVENTS])


def _consumer(name: str, subject: str) -> Document:
    return {
        "name": name,
        "durable_name": name,
        "filter_subject": subject,
        "ack_policy": "explicit",
        "deliver_policy": "all",
        "replay_policy": "instant",
        "ack_wait": _nanoseconds(ACK_WAIT),
        "max_ack_pending": BATCH,
        "max_deliver": -1,
    }


def _announced(subject: str) -> str:
    words = subject.split(".")
    numbers = iter(range(1, len(words) + 1))
    return ".".join([NEW, *(f"{{{{wildcard({next(numbers)})}}}}" if one == "*" else one for one in words)])


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
