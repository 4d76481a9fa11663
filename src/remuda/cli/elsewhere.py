"""Sessions of other hosts: HOST/SESSION on the command line, and their rows in lists

Loads almost nothing until a host is named: every command that takes a session imports this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from remuda.errors import BossDown, InvalidOptions, RemudaError, SessionNotFound
from remuda.keeper.elsewhere import own_host, split_host

from .output import complain

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from typing import Any

    from remuda.boss.client import BossClient

    Document = dict[str, Any]

_TIMEOUT = 5.0
_AT_ONCE = 16


def boss_of(word: str) -> tuple[BossClient, str]:
    """Return the boss that a word means, and the rest of it."""
    from remuda.boss.client import BossClient, RemoteBoss

    host, rest = split_host(word)
    return (BossClient(), rest) if host is None else (RemoteBoss(host), rest)


def hint_elsewhere(name: str) -> str:
    """Return a hint for a name that is not known here, but on other hosts; else an empty one."""
    if own_host() is None:
        return ""
    from remuda.boss.client import BossClient

    try:
        sessions = BossClient(timeout=_TIMEOUT).get("fleet", "sessions")["sessions"]
    except RemudaError:
        return ""
    named = sorted({f"{one['host']}/{name}" for one in sessions if one["session"].get("name") == name})
    return f"did you mean {' or '.join(repr(one) for one in named)}?" if named else ""


def with_hosts(error: RemudaError, name: str) -> RemudaError:
    """Return the error of a session that is not known here, with the hosts that have one of that name."""
    named = hint_elsewhere(name) if isinstance(error, SessionNotFound) else ""
    return SessionNotFound(error.message, hint=named) if named else error


# ── lists ──


def list_elsewhere(
    note: Callable[[str], None] = complain, *, ended: bool = False, timeout: float = _TIMEOUT
) -> list[Document]:
    """Return the sessions of other hosts with their items; none without a fleet.

    With `ended` also those that have ended, which the hosts themselves are asked for.
    """
    if (own := own_host()) is None:
        return []
    from remuda.boss.client import BossClient

    try:
        document = BossClient(timeout=timeout).get("fleet", "sessions")
    except BossDown:
        note("other hosts are not listed: the boss is not running")
        return []
    except RemudaError as error:
        note(f"other hosts are not listed: {error}")
        return []
    _note_hub(document, note)
    sessions: list[Document] = document["sessions"]
    return [*sessions, *_list_ended(own, sessions, note)] if ended and document["connected"] else sessions


def names_elsewhere(listed: list[Document], *, ended: bool = False) -> list[str]:
    """Return the kept sessions among them as HOST/NAME, in order; with `ended` also those that have ended."""
    kept = [
        one for one in listed if one["session"].get("name") and (ended or not one["session"].get("ended"))
    ]
    return sorted({f"{one['host']}/{one['session']['name']}" for one in kept})


def _note_hub(hub: Document, note: Callable[[str], None]) -> None:
    """Say that the hub cannot be reached, if it cannot."""
    if not hub["connected"]:
        from remuda.duration import show_duration

        ago = show_duration(max(0.0, time.time() - hub["since"]))
        note(f"the hub cannot be reached for {ago}: {hub['error'] or 'it does not answer'}")


def _list_ended(own: str, known: list[Document], note: Callable[[str], None]) -> list[Document]:
    """Return the sessions that have ended on hosts that can be reached, without those in `known`."""
    from concurrent.futures import ThreadPoolExecutor

    from remuda.boss.client import BossClient, RemoteBoss

    hosts = [one["name"] for one in BossClient(timeout=_TIMEOUT).get("fleet")["hosts"] if one["reachable"]]
    others = [one for one in hosts if one != own]
    seen = {(one["host"], one["session"]["id"]) for one in known}

    def ask(host: str) -> list[Document] | RemudaError:
        try:
            document: Document = RemoteBoss(host, timeout=_TIMEOUT).get_brief("sessions", all=True)
        except RemudaError as error:
            return error
        return [one for one in document["sessions"] if one["ended"] and not one["replaced_by"]]

    found: list[Document] = []
    with ThreadPoolExecutor(max(1, min(_AT_ONCE, len(others)))) as pool:
        for host, answer in zip(others, pool.map(ask, others), strict=True):
            if isinstance(answer, RemudaError):
                note(f"ended sessions of {host} are not listed: {answer}")
                continue
            here = {"host": host, "reachable": True, "unreachable_since": None, "item": None}
            found += [{**here, "session": one} for one in answer if (host, one["id"]) not in seen]
    return found


def session_document(one: Document) -> Document:
    """Return a session of another host as `remuda ls` shows it. Its state is not what it was last."""
    from .outside import OutsideAgent

    session, item = one["session"], one["item"]
    name = str(session.get("name") or session.get("label") or session["id"])
    given: dict[str, Any] = {"ended": None, "since": None, "agent": None, "cwd": None, "pid": None}
    given |= {"title": None, "transcript_path": None, "pane": None, "state": None}
    full = {**given, **session}
    if item is not None:
        item = {"message": "", "reason": "", "detail": {}, **item}
    document = OutsideAgent(name, full, item).document()
    document |= {"host": one["host"], "kept": bool(session.get("name")), "reachable": one["reachable"]}
    if document["last_message"] is None:
        document["last_message"] = session.get("last_message")
    if not one["reachable"]:
        since = one["unreachable_since"]
        document |= {"last_state": document["state"], "state": "unreachable", "since": since}
        document["age"] = round(max(0.0, time.time() - since), 3)
    return document


def read_queue(
    get: Callable[..., Any],
    note: Callable[[str], None] = complain,
    *,
    hidden: bool = False,
    wait: bool = False,
) -> Document:
    """Return the queue of all hosts, by a method of the boss that reads. Items of others have a `host`.

    `wait`: a moment for a connection to the hub that is being made.
    """
    document: Document
    if own_host() is not None:
        try:
            document = get("queue", hidden=hidden or None, hosts=True, wait=wait or None)
        except InvalidOptions:
            note("other hosts are not listed: the boss is older than this command; restart it")
        else:
            if document["hub"] is None:
                note(
                    "other hosts are not listed: the boss has not joined the fleet; see 'remuda fleet status'"
                )
            else:
                _note_hub(document["hub"], note)
            return document
    document = get("queue", hidden=hidden or None)
    return document


def item_elsewhere(host: str, item: Mapping[str, Any]) -> Document:
    """Return an item that the boss of another host sent, as the boss here lists it."""
    named = {name: f"{host}:{item[name]}" for name in ("id", "session_id")}
    session = {**(item.get("session") or {}), "host": host}
    return {**item, **named, "host": host, "session": session}


# ── the end of a session ──


def kill_elsewhere(host: str, session: str, grace: float | None) -> str:
    """End a session there; returns what to print."""
    from remuda.boss.elsewhere import end

    code = end(host, session, grace)
    ended = code in (None, 143, 129)
    return f"{host}/{session} " + ("ended" if ended else f"ended with exit code {code}")
