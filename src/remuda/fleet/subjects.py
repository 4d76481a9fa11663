"""Names on the hub: subjects, who may use which, and how names and values are written. Pure.

    in.HOST.SESSION.MESSAGE.SENDER   stream INBOX: a message, the hub's until the host has it on its disk
    in.any.PROFILE.REQUEST.SENDER    stream INBOX: a request for any host: its id, which no one can guess
    fl.SENDER.REQUEST.HOST           a host claims a request, gets its payload, reports events and the end
    rc.HOST.MESSAGE                  stream RECEIPT: how far a message got; the last one counts
    $KV.hosts.HOST                   stream KV_hosts: which machine has this name; renewed by its revision
    $KV.members.NAME                 the same for a machine that is not a host
    $KV.sessions.HOST.SESSION        stream KV_sessions: a session with its waiting item; written on change
    $KV.accounts.HOST.ACCOUNT        stream KV_accounts: a limit that HOST met; goes when the limit ends
    ev.HOST.SESSION                  stream EVENTS: what happened there, in order; kept for a week
    rq.HOST.read|act.SENDER          a request to the boss of a host
    ap.HOST.REQUEST.SENDER           a decision about a permission request
    io.HOST.read|type.SENDER.ID      bytes for a session's terminal: of one who watches, or who may type
    io.HOST.out.SENDER.ID            bytes of that terminal, which only SENDER can read
    an.NAME.HOST.TOKEN               the answer of HOST to a request of NAME, which no other key can read
    _INBOX_NAME.>                    answers of the server to NAME, which no other key can read
    hub.time                         asks the server for a stream, whose answer has the time of the hub
    hub.queue.HOST                   asks the server about the queue of messages for HOST
    new.SUBJECT                      of the server: a value was stored there; says nothing about it

A key can publish only under its own name: as HOST for what a host reports, as SENDER for what an operator
sends. So the server proves who sent a message, and no payload has to be believed about it.

No key has the right `allow_responses` of the server. A client can name any reply subject in a message to
itself, and that right would let it publish there: a host could act as an operator.

The server copies what is stored to any reply subject that a client names. Into a stream no copy comes: see
`streams`. In the place of a request it is refused by the receiver: it has no reply subject of its own in
`an.SENDER`, or has the header `Nats-Subject` (`is_from`). And a message repeats its subject inside (`host`,
`session`, `id`). An ID of bytes and a TOKEN are random and known to their two ends only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from remuda.errors import BadName, RemoteProtocolError
from remuda.untrusted import BadJson, dump_json, parse_object

INBOX, RECEIPT, HOSTS, SESSIONS = "INBOX", "RECEIPT", "KV_hosts", "KV_sessions"
EVENTS, ACCOUNTS = "EVENTS", "KV_accounts"
NEW, TIME = "new", "hub.time"
MAX_PAYLOAD_BYTES = 8 << 20
"""The most that NATS recommends for one message."""
MAX_PROMPT_BYTES = 4 << 20
"""A prompt is written as JSON, where a character can take six bytes; most take one."""
_HOST = re.compile(r"[a-z0-9][a-z0-9-]{0,31}", re.ASCII)
_RESERVED = ("any", "hub")
_PLAIN = re.compile(rb"[A-Za-z0-9_-]")
_TOKEN = re.compile(r"(?:[A-Za-z0-9_-]|=[0-9A-F]{2})+", re.ASCII)
_MAX_TOKEN = 1024


class Role(StrEnum):
    """What a key may do. One key can have several roles."""

    HOST = "host"
    """Offers its own sessions."""
    OPERATOR = "operator"
    """Reads all, sends, decides and ends sessions."""
    VIEWER = "viewer"
    """Reads all."""


class SubjectRights(NamedTuple):
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def check_host(name: str) -> str:
    """Return a name of a host or key. Raises `BadName`."""
    if not _HOST.fullmatch(name) or name in _RESERVED:
        raise BadName(
            f"{name[:64]!r} cannot name a host",
            hint="use a-z, 0-9 and '-', at most 32; begin with a letter or digit; not 'any' or 'hub'",
        )
    return name


def rights(name: str, roles: Iterable[Role]) -> SubjectRights:
    """Return what a key may publish and subscribe to."""
    roles = set(roles)
    own = name_subject(name, roles)
    publish = [TIME, own, f"$JS.API.DIRECT.GET.{HOSTS}.{own}"]
    subscribe = [f"{reply_prefix(name)}.>", f"an.{name}.*.*"]
    if Role.HOST in roles:
        publish += [
            f"rc.{name}.*",
            f"$KV.sessions.{name}.*",
            # No right to create a consumer: it could deliver to any subject, also to those of others.
            f"$JS.API.CONSUMER.MSG.NEXT.{INBOX}.{name}",
            f"$JS.ACK.{INBOX}.{name}.>",
            queue_subject(name),
            f"io.{name}.out.*.*",
            f"ev.{name}.*",
            f"$KV.accounts.{name}.*",
            f"fl.*.*.{name}",
            f"$JS.API.CONSUMER.MSG.NEXT.{INBOX}.any",
            f"$JS.ACK.{INBOX}.any.>",
            f"$JS.API.DIRECT.GET.{ACCOUNTS}",
        ]
        subscribe += [f"rq.{name}.*.*", f"ap.{name}.*.*", f"io.{name}.read.*.*", f"io.{name}.type.*.*"]
        subscribe.append(f"{NEW}.$KV.accounts.*.*")
    if roles & {Role.OPERATOR, Role.VIEWER}:
        publish += [f"$JS.API.DIRECT.GET.{stream}" for stream in (HOSTS, SESSIONS, RECEIPT)]
        publish += [f"rq.*.read.{name}", f"io.*.read.{name}.*"]
        publish += [f"$JS.API.CONSUMER.MSG.NEXT.{EVENTS}.{name}", f"$JS.ACK.{EVENTS}.{name}.>"]
        subscribe += [f"{NEW}.{one}" for one in ("$KV.hosts.*", "$KV.sessions.*.*", "rc.*.*")]
        subscribe.append(f"io.*.out.{name}.*")
    if Role.OPERATOR in roles:
        publish += [
            queue_subject("*"),
            f"in.*.*.*.{name}",
            f"rq.*.act.{name}",
            f"ap.*.*.{name}",
            f"io.*.type.{name}.*",
        ]
        subscribe.append(f"fl.{name}.*.*")
    if roles & {Role.HOST, Role.OPERATOR}:
        publish.append(f"an.*.{name}.*")
    return SubjectRights(tuple(publish), tuple(subscribe))


# ── subjects ──


def encode(text: str) -> str:
    """Write any text as one token of a subject or key: other bytes than a-z A-Z 0-9 _ - become =XX."""
    data = text.encode("utf-8", "surrogatepass")
    token = "".join(chr(byte) if _PLAIN.match(bytes([byte])) else f"={byte:02X}" for byte in data)
    if not 0 < len(token) <= _MAX_TOKEN:
        raise BadName(f"{text[:40]!r} is empty, or too long for a name on the hub")
    return token


def decode(token: str) -> str:
    """Raises `RemoteProtocolError` for what `encode` does not write."""
    if len(token) > _MAX_TOKEN or not _TOKEN.fullmatch(token):
        raise RemoteProtocolError(f"{token[:80]!r} is not a name on the hub")
    data = re.sub(rb"=([0-9A-F]{2})", lambda one: bytes.fromhex(one[1].decode()), token.encode())
    try:
        text = data.decode("utf-8", "surrogatepass")
        if encode(text) == token:
            return text
    except UnicodeDecodeError:
        pass
    raise RemoteProtocolError(f"{token[:80]!r} is not a name on the hub")


def message_subject(host: str, session: str, message: str, sender: str) -> str:
    return f"in.{host}.{encode(session)}.{encode(message)}.{sender}"


def any_subject(profile: str, request: str, sender: str) -> str:
    return f"in.any.{encode(profile)}.{encode(request)}.{sender}"


def work_subject(sender: str, request: str, host: str) -> str:
    return f"fl.{sender}.{encode(request)}.{host}"


def receipt_subject(host: str, message: str) -> str:
    return f"rc.{host}.{encode(message)}"


def host_subject(host: str) -> str:
    return f"$KV.hosts.{host}"


def name_subject(name: str, roles: Iterable[Role]) -> str:
    """Return where the machine that has a name is stored. Only hosts are listed."""
    return host_subject(name) if Role.HOST in set(roles) else f"$KV.members.{name}"


def session_subject(host: str, session: str) -> str:
    return f"$KV.sessions.{host}.{encode(session)}"


def account_subject(host: str, account: str) -> str:
    return f"$KV.accounts.{host}.{encode(account)}"


def event_subject(host: str, session: str) -> str:
    return f"ev.{host}.{encode(session)}"


def request_subject(host: str, kind: str, sender: str) -> str:
    return f"rq.{host}.{kind}.{sender}"


def decision_subject(host: str, request: str, sender: str) -> str:
    return f"ap.{host}.{encode(request)}.{sender}"


def bytes_subject(host: str, kind: str, sender: str, number: str) -> str:
    """`kind` is read, type or out."""
    return f"io.{host}.{kind}.{sender}.{number}"


def answer_subject(asked: str, sender: str, token: str) -> str:
    """Return where the answer to a request of `sender` goes. `asked` is the subject of that request."""
    return f"an.{sender}.{asked.split('.')[1]}.{token}"


def is_answer(reply: str, name: str) -> bool:
    """Whether an answer of `name` may go there. A sender could name any subject: one of this key, or one that
    the server refuses, which the status would report."""
    words = reply.split(".")
    return len(words) == 4 and (words[0], words[2]) == ("an", name) and all(map(_TOKEN.fullmatch, words))


def queue_subject(host: str) -> str:
    return f"hub.queue.{host}"


def reply_prefix(name: str) -> str:
    return f"_INBOX_{name}"


def is_from(sender: str, reply: str, headers: Mapping[str, str] | None) -> bool:
    """Whether a request was published by the key that its subject names, and not copied by the server."""
    return reply.startswith(f"an.{sender}.") and "Nats-Subject" not in (headers or {})


# ── values ──


def write(document: Mapping[str, Any]) -> bytes:
    return dump_json(document).encode()


def read(data: bytes) -> dict[str, Any]:
    """Read a value that came over the hub. Raises `RemoteProtocolError`."""
    try:
        return parse_object(data)
    except BadJson as error:
        raise RemoteProtocolError(f"the hub delivered a value that cannot be read: {error}") from None


# ── the configuration of the server ──


class KeyRecord(NamedTuple):
    """A key that the hub knows."""

    name: str
    public: str
    roles: tuple[Role, ...]
