"""What hosts say to each other: messages, receipts, requests, and the sessions that a host shows. Pure.

Everything that is read here came from another machine, and is checked again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remuda.errors import (
    InputError,
    NotInQueue,
    PermissionRefused,
    RemoteProtocolError,
    SessionNotFound,
    from_code,
)
from remuda.inbox.message import check_prompt
from remuda.inbox.stop_hook import is_id
from remuda.names import check_name
from remuda.untrusted import as_objects, bounded, finite, one_line

from . import subjects

PROTOCOL = 1
"""Raised when an older host could not understand a newer one."""
OFFERS = ("attach", "logs", "start")
"""What a host offers besides protocol 1, so that one with an older Remuda is known to lack it."""
MESSAGE_OPTIONS: dict[str, tuple[type, ...]] = {
    "delay": (int, float),
    "ttl": (int, float),
    "dedup": (str,),
    "max_attempts": (int,),
    "priority": (int,),
    "command": (bool,),
    "literal": (bool,),
}
_NO_SESSION = (NotInQueue.code, SessionNotFound.code)
_DID_YOU_MEAN = re.compile(r"did you mean '[^']*'(?: or '[^']*')*\?")
_TEXT = 2000
_LATEST = 1e10
"""In the year 2286."""
_DETAIL_BYTES = 8000
_ANSWER = 1 << 18
_STEPS = 100
_MAX_PATH = 4000
_WORD = r"[^/?#]{1,900}"
_READS = re.compile(
    rf"/v1/(sessions(/{_WORD}(/(messages(/{_WORD})?|screen|history|states|conversation|changes))?)?"
    rf"|queue(/{_WORD})?|approvals(/{_WORD})?)(\?[^#]*)?"
)
_ACTS = re.compile(
    rf"/v1/(sessions(/{_WORD}/(end|interrupt|reply|resume|messages/{_WORD}/cancel))?"
    rf"|queue/{_WORD}/(skip|snooze|dismiss))"
)
_DECIDES = re.compile(rf"/v1/approvals/({_WORD})/answer")


# ── messages ──


@dataclass(frozen=True, slots=True)
class FleetMessage:
    """A prompt for a session of another host."""

    host: str
    session: str
    id: str
    sender: str
    prompt: str
    options: Mapping[str, Any]
    expires: float = 0.0
    """When its time to live is over, by the hub's clock; 0 if the sender does not say."""

    @property
    def subject(self) -> str:
        return subjects.message_subject(self.host, self.session, self.id, self.sender)

    def data(self) -> bytes:
        """Raises `InputError` for a message that is too large for the hub."""
        data = subjects.write(
            {
                "host": self.host,
                "session": self.session,
                "id": self.id,
                "prompt": self.prompt,
                "options": dict(self.options),
                **({"expires": self.expires} if self.expires else {}),
            }
        )
        if len(data) > subjects.MAX_PAYLOAD_BYTES:
            raise InputError(
                f"the message has {len(data)} bytes, and the hub takes {subjects.MAX_PAYLOAD_BYTES}",
                hint="put the text into a file on that host, and name the file in the prompt",
            )
        return data

    @property
    def ttl(self) -> float:
        return finite(self.options.get("ttl"))


def make_message(
    host: str,
    session: str,
    message_id: str,
    sender: str,
    prompt: str,
    options: Mapping[str, Any],
    now: float = 0.0,
) -> FleetMessage:
    """`now` is the hub's time. Raises `BadName`, `InputError`."""
    check_name(session)
    subjects.check_host(host)
    check_prompt(prompt, subjects.MAX_PAYLOAD_BYTES)
    given = {name: value for name, value in options.items() if value not in (None, False, 0, "")}
    ttl = finite(_check_options(given).get("ttl"))
    return FleetMessage(host, session, message_id, sender, prompt, given, now + ttl if now and ttl else 0.0)


def read_message(subject: str, data: bytes, headers: Mapping[str, str], host: str) -> FleetMessage:
    """Read what the hub handed to `host`. Raises `RemoteProtocolError` for what no operator of ours sent.

    What is inside must name the same host, session and id as the subject: the server could have been made to
    copy a message for another host here. See `subjects`. Its options are not checked before `put_options`.
    """
    words = subject.split(".")
    if len(words) != 5 or words[0] != "in":
        raise RemoteProtocolError(f"{subject[:200]!r} is not the subject of a message")
    session, message_id, sender = subjects.decode(words[2]), subjects.decode(words[3]), words[4]
    document = subjects.read(data)
    inside = (document.get("host"), document.get("session"), document.get("id"))
    is_copy = "Nats-Subject" in headers or headers.get("Nats-Msg-Id") != message_id
    if is_copy or words[1] != host or inside != (host, session, message_id) or not is_id(message_id):
        raise RemoteProtocolError(f"the message at {subject[:200]!r} was meant for another place")
    options, prompt = document.get("options"), document.get("prompt")
    if not isinstance(options, dict) or not isinstance(prompt, str):
        raise RemoteProtocolError(f"the message {message_id[:80]} has no prompt")
    expires = moment(document.get("expires"))
    return FleetMessage(host, check_name(session), message_id, sender, prompt, options, expires)


def _check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in options.items():
        kinds = MESSAGE_OPTIONS.get(name)
        if kinds is None:
            raise RemoteProtocolError(
                f"a message has the option {name[:40]!r}, which this version does not know",
                hint="upgrade Remuda on that host",
            )
        is_flag = isinstance(value, bool) and bool not in kinds
        if not isinstance(value, kinds) or is_flag or (isinstance(value, float) and not math.isfinite(value)):
            raise RemoteProtocolError(f"the option {name} of a message cannot be {str(value)[:40]!r}")
    return dict(options)


def put_options(message: FleetMessage, age: float) -> dict[str, Any]:
    """Return the options for `Inbox.put`. `age`: seconds since the hub stored it, by the hub's clock.

    Raises `RemoteProtocolError`, whose reason reaches the sender: it may be a newer version.
    """
    options = _check_options(message.options)
    for name in ("delay", "ttl"):
        if name in options:
            options[name] = max(0.0 if name == "delay" else 0.001, float(options[name]) - max(0.0, age))
    # So that it is put once, also if it is handed out again after a crash.
    options.setdefault("dedup", f"fleet:{message.id}")
    return {**options, "message_id": message.id, "sender": f"fleet: {message.sender}"}


def expiry(message: FleetMessage, stored_at: float) -> float:
    """Return when a message expires, by the hub's clock; the network does not make that later."""
    by_age = stored_at + message.ttl if message.ttl else math.inf
    return min(by_age, message.expires or math.inf)


# ── receipts ──

CLAIMED = "sent"
"""The stage of a message with a time to live whose host takes it, and has not put it into the inbox yet."""


def receipt(
    message_id: str, host: str, session: str, steps: list[dict[str, Any]], answer: Any
) -> dict[str, Any]:
    """Return the receipt of a message as the hub keeps it. Long texts are cut."""
    text = answer.get("text") if isinstance(answer, dict) else None
    shown = {"text": text[:_ANSWER], "cut": len(text) > _ANSWER} if isinstance(text, str) else None
    document: dict[str, Any] = bounded(
        {
            "id": message_id,
            "host": host,
            "session": session,
            "stage": str(steps[-1]["stage"]),
            "steps": steps[-_STEPS:],
            "answer": shown,
        }
    )
    return document


def read_receipt(data: bytes, host: str) -> dict[str, Any]:
    """Raises `RemoteProtocolError`."""
    document = subjects.read(data)
    steps = document.get("steps")
    known = as_objects(steps)
    right = bool(known) and known == steps and all(isinstance(one.get("stage"), str) for one in known)
    if not right or document.get("host") != host or not isinstance(document.get("stage"), str):
        raise RemoteProtocolError("the hub has a receipt that cannot be read")
    return document


# ── requests ──


def kind_of(method: str, path: str) -> str:
    """Return which right a request to a boss needs: read, act or decide. Raises `PermissionRefused`."""
    # Quoted, as a line of HTTP needs it.
    if len(path) <= _MAX_PATH and re.fullmatch("[!-~]+", path) and "%2f" not in path.lower():
        if method == "GET" and _READS.fullmatch(path):
            return "read"
        if method == "POST" and _ACTS.fullmatch(path):
            return "act"
        if method == "POST" and _DECIDES.fullmatch(path):
            return "decide"
    raise PermissionRefused(f"{method} {one_line(path[:200])} cannot be requested of another host")


def request_subject(host: str, method: str, path: str, sender: str) -> str:
    kind = kind_of(method, path)
    if kind == "decide":
        found = _DECIDES.fullmatch(path)
        assert found is not None
        return subjects.decision_subject(host, found[1], sender)
    return subjects.request_subject(host, kind, sender)


def write_request(method: str, path: str, body: Mapping[str, Any] | None, deadline: float) -> bytes:
    """`deadline` is in the hub's time: a request that was held up by the network is not carried out late."""
    return subjects.write({"method": method, "path": path, "body": body, "deadline": deadline})


@dataclass(frozen=True, slots=True)
class BossRequest:
    method: str
    path: str
    body: dict[str, Any] | None
    sender: str


def read_request(
    subject: str, data: bytes, reply: str, headers: Mapping[str, str], host: str, now: float
) -> BossRequest:
    """Raises `PermissionRefused` for a request to which the subject gives no right, or that is late."""
    sender = subject.rpartition(".")[2]
    document = subjects.read(data)
    method, path, body = document.get("method"), document.get("path"), document.get("body")
    if not isinstance(method, str) or not isinstance(path, str) or not isinstance(body, dict | None):
        raise RemoteProtocolError("a request over the hub cannot be read")
    if not subjects.is_from(sender, reply, headers) or subject != request_subject(host, method, path, sender):
        raise PermissionRefused("the sender of the request has no right to it")
    if finite(document.get("deadline")) < now:
        raise PermissionRefused("the request came too late, and nothing was done")
    if kind_of(method, path) == "decide":
        body = {**(body or {}), "by": f"fleet: {sender}"}
    return BossRequest(method, path, body, sender)


def write_answer(document: Any) -> bytes:
    data = subjects.write({"answer": document})
    if len(data) > subjects.MAX_PAYLOAD_BYTES:
        return write_error("FAILED", "the answer is too large for the hub", None)
    return data


def write_error(code: str, message: str, hint: str | None) -> bytes:
    return subjects.write({"error": {"code": code, "message": message, "hint": hint}})


def read_answer(data: bytes, host: str) -> Any:
    """Raises the error of the other boss."""
    document = subjects.read(data)
    error = document.get("error")
    if isinstance(error, dict):
        text = one_line(str(error.get("message"))[:_TEXT])
        raise from_code(str(error.get("code")), f"{host}: {text}", read_hint(error, host))
    if "answer" not in document:
        raise RemoteProtocolError(f"the answer of {host} cannot be read")
    return document["answer"]


def read_hint(error: Mapping[str, Any], host: str) -> str | None:
    """Return the hint of another host's error, worded for a reader here.

    It knows its sessions by their bare names. 'remuda kill work', run here, would end a session of ours.
    """
    if not error.get("hint"):
        return None
    hint = one_line(str(error["hint"])[:_TEXT])
    if error.get("code") in _NO_SESSION and (question := _DID_YOU_MEAN.match(hint)):
        named = re.sub(r"'([^'/]+)'", rf"'{host}/\1'", question[0])
        return named + hint[question.end() :]
    return f"on {host}: {hint}" if "'remuda " in hint else hint


# ── hosts ──


def missing(offers: Any) -> list[str]:
    """Return what a host does not offer, by what it says of itself."""
    known = offers if isinstance(offers, list) else []
    return [one for one in OFFERS if one not in known]


# ── sessions ──


def shown_session(session: dict[str, Any], item: dict[str, Any] | None) -> dict[str, Any]:
    """Return a session and its waiting item as others see them. Long texts are cut."""
    session = {name: cut(value) for name, value in session.items() if name != "cut"}
    if item is not None:
        detail = item.get("detail")
        is_cut = ["message"] if len(item.get("message") or "") > _TEXT else []
        item = {name: cut(value) for name, value in item.items() if name not in _NOT_CUT}
        if isinstance(detail, Mapping):
            whole = bounded(dict(detail))
            is_short = len(subjects.write(whole)) <= _DETAIL_BYTES
            names = whole if is_short else [name for name in whole if name not in ("input", "diff")]
            is_cut += [] if is_short else ["detail"]
            item["detail"] = {name: whole[name] if is_short else cut(whole[name]) for name in names}
        item["cut"] = is_cut
    shown: dict[str, Any] = bounded({"session": session, "item": item})
    return shown


def cut(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_TEXT]
    if isinstance(value, list | tuple | dict) and len(str(value)) > _TEXT:
        return None
    return value


_NOT_CUT = ("detail", "session", "cut")
_SESSION_TIMES = ("since", "first_seen", "last_seen", "ended")
_ITEM_TIMES = ("since", "skip_until", "skipped_at", "snooze_until")


_TEXTS = (
    *("id", "origin", "agent", "name", "pane", "tmux", "cwd", "repo", "transcript_path", "entrypoint"),
    *("title", "state", "agent_state", "label", "source", "detail", "last_message", "replaced_by"),
)
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(_TEXTS, (str,)),
    **dict.fromkeys((*_SESSION_TIMES, "pid", "messages_waiting"), (int, float)),
    "degraded": (list,),
    "tokens": (dict,),
    "dated": (dict,),
    "cut": (list,),
}
_ITEM_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("id", "session_id", "reason", "message", "resolution"), (str,)),
    **dict.fromkeys((*_ITEM_TIMES, "resolved_at"), (int, float)),
    "detail": (dict,),
    "decision": (dict,),
    "cut": (list,),
}


_OF_AN_ITEM = ("id", "session_id", "reason", "since")


def read_session(data: bytes, ahead: float) -> dict[str, Any]:
    """Read a session of another host, with times of this one. `ahead`: how far that clock is ahead.

    Raises `RemoteProtocolError`, also for a known field with a value of another kind.
    """
    document = subjects.read(data)
    session, item = document.get("session"), document.get("item")
    if not isinstance(session, dict) or not _is_of(_KINDS, session, needed=("id", "agent_state")):
        raise RemoteProtocolError("the hub has a session that cannot be read")
    if item is not None and (not isinstance(item, dict) or not _is_of(_ITEM_KINDS, item, needed=_OF_AN_ITEM)):
        raise RemoteProtocolError("the hub has a queue item that cannot be read")
    # Every field is there for those who show it, whatever version wrote it.
    session = {**dict.fromkeys(_KINDS), "since": 0.0, "degraded": [], **session}
    item = {**dict.fromkeys(_ITEM_KINDS), "detail": {}, "cut": [], **item} if item is not None else None
    _move(session, _SESSION_TIMES, -ahead)
    if item is not None:
        _move(item, _ITEM_TIMES, -ahead)
    return {"session": session, "item": item}


def _is_of(
    kinds: Mapping[str, tuple[type, ...]], document: Mapping[str, Any], *, needed: tuple[str, ...]
) -> bool:
    """Whether each field that is there and not null has one of its kinds, and those that are needed are."""
    if any(document.get(name) is None for name in needed):
        return False
    values = ((document.get(name), some) for name, some in kinds.items())
    return all(
        value is None or (type(value) is not bool and isinstance(value, some)) for value, some in values
    )


def _move(document: dict[str, Any], names: tuple[str, ...], by: float) -> None:
    for name in names:
        value = document.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value:
            document[name] = moment(value + by)


def moment(value: Any) -> float:
    """Return a time from outside; 0 for what no clock shows, which could not be printed."""
    seconds = finite(value)
    return seconds if 0 <= seconds < _LATEST else 0.0


def skew(value: Any) -> float:
    """Return how far another machine says that a clock is ahead; 0 for what no clock can be."""
    seconds = finite(value)
    return seconds if abs(seconds) < _LATEST else 0.0
