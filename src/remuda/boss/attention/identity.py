"""Which session is which: what is known of where it runs, and who has a pane, a process or a name now. Pure.

A conversation is resumed in another pane, `/clear` puts a new one into the same process, a pane is used
again. So each event claims the pane, process and name that it comes from; the newest claim holds, and a
session whose place is held by another is not there any more. A claim is never given back: whoever leaves does
not bring the one before him back.

Where nobody but tmux tells of an agent, a session of ours stands in for it (`is_stand_in`). It gives way to
the agent's own session as soon as that one speaks, and never pushes it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from remuda.names import is_name

from .model import Event, EventKind, Origin, Session, Source, State

_TEXTS = ("name", "cwd", "repo", "transcript_path", "agent", "entrypoint", "title")
HEARSAY = frozenset({"pane", "cwd", "repo", "agent"})
"""What an event posted with Trail Boss's token may say of a session, until the agent itself says it. A file
or a process that it names would be read as evidence."""
_ORIGINS = {
    Source.PROCESS: Origin.HOOKS,
    Source.HOOK: Origin.HOOKS,
    Source.REGISTRY: Origin.REGISTRY,
    Source.TRANSCRIPT: Origin.REGISTRY,
}
_WORTH = {origin: number for number, origin in enumerate(Origin)}


@dataclass(frozen=True, slots=True)
class Claim:
    session_id: str
    at: float
    pid: int | None = None
    """The process that claimed it, where it said so."""


def told_by(event: Event) -> dict[str, Any]:
    """What an event says of where its session is. One of an end says where it is no more."""
    if event.kind in (EventKind.ENDED, EventKind.GONE):
        return {}
    told = _told(event.facts)
    return {name: told[name] for name in told.keys() & HEARSAY} if event.facts.get("hearsay") else told


def merge(session: Session, event: Event, told: Mapping[str, Any]) -> Session:
    """What an event told of where the session is. What is older than what we know changes nothing.

    Hearsay has dates of its own: it changes nothing that was told otherwise, and keeps nothing else out.
    """
    mark = "hearsay " if event.facts.get("hearsay") else ""
    new = {
        name: value
        for name, value in told.items()
        if event.at >= session.dated.get(mark + name, event.at) and not (mark and name in session.dated)
    }
    dated = {**session.dated, **{mark + name: event.at for name in new}}
    if "transcript_path" in new:
        dated[_TRUSTED_PATH] = event.at
    if "pane" in new:
        new["tmux"] = _server_of(event)
    origin = _origin(event)
    if _WORTH[origin] < _WORTH[session.origin] or not session.last_seen:
        new["origin"] = origin
    return replace(
        session,
        **new,
        dated=dated,
        first_seen=min(session.first_seen or event.at, event.at),
        last_seen=max(session.last_seen, event.at),
    )


_TRUSTED_PATH = "trusted transcript_path"


def without_stored_hearsay(session: Session) -> Session:
    """A session from the disk. Versions before 0.2 also stored a path that came with Trail Boss's token.

    They date it as any other, but do not write our mark beside it. Its events tell it again.
    """
    at = session.dated.get("transcript_path")
    if session.transcript_path is None or (at is not None and session.dated.get(_TRUSTED_PATH) == at):
        return session
    dated = {name: at for name, at in session.dated.items() if not name.endswith("transcript_path")}
    return replace(session, transcript_path=None, dated=dated)


def _told(facts: Mapping[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {name: facts[name] for name in _TEXTS if isinstance(facts.get(name), str)}
    if not is_name(told.get("name", "")):  # it becomes part of paths
        told.pop("name", None)
    if isinstance(facts.get("pane"), str):
        told["pane"] = facts["pane"]
    if type(pid := facts.get("pid")) is int and 0 < pid < 1 << 31:
        told["pid"] = pid
    return told


def _origin(event: Event) -> Origin:
    if (told := event.facts.get("origin")) is not None and told in tuple(Origin):
        return Origin(told)
    if isinstance(name := event.facts.get("name"), str) and is_name(name):
        return Origin.KEPT
    return _ORIGINS.get(event.source, Origin.TMUX)


def places(session: Session) -> list[str]:
    """What only one session can have at a time."""
    return _places(session.pane, session.tmux, session.pid, session.name)


def is_stand_in(session_id: str) -> bool:
    """A pane's id, as Trail Boss's bootstrap writes it, or what its detector and ours make of one."""
    return session_id.startswith(("%", "tmux-"))


def claims(event: Event, told: Mapping[str, Any]) -> dict[str, Claim]:
    """The places that an event comes from, as its session claims them."""
    found = _places(told.get("pane"), _server_of(event), told.get("pid"), told.get("name"))
    if not found:
        return {}
    claim = Claim(event.session_id, event.at, told.get("pid"))
    stands_in = is_stand_in(event.session_id)
    return {_stand_in(place) if stands_in else place: claim for place in found}


def rivals(session: Session) -> list[str]:
    """Claims by which another may have pushed the session out."""
    found = places(session)
    return [*found, *map(_stand_in, found)] if is_stand_in(session.id) else found


def _server_of(event: Event) -> str | None:
    tmux = event.facts.get("tmux")
    return tmux if isinstance(tmux, str) and tmux else None


def _stand_in(place: str) -> str:
    return f"stand-in {place}"


def _places(pane: str | None, tmux: str | None, pid: int | None, name: str | None) -> list[str]:
    found = [f"pane {_server(tmux)} {pane}"] if pane else []
    found += [f"pid {pid}"] if pid else []
    return found + ([f"name {name}"] if name else [])


def _server(tmux: str | None) -> str:
    """Emitters that do not say which server they are in are in the default one."""
    return "" if not tmux or tmux.rpartition("/")[2] == "default" else tmux


def newer(claim: Claim, held: Claim | None) -> bool:
    return held is None or (claim.at, claim.session_id) > (held.at, held.session_id)


def is_replaced(session: Session, place: str, held: Claim, holder: Session | None) -> bool:
    """Whether whoever holds a place of this session's has pushed it out.

    An agent that runs another in its own pane is not gone: their processes differ.
    """
    if held.session_id == session.id:
        return False
    if is_stand_in(session.id):
        over = holder is None or holder.state in (State.ENDED, State.DEAD) or place not in places(holder)
        return not over or is_stand_in(held.session_id)
    both = session.pid is not None and held.pid is not None
    return not (place.startswith("pane ") and both and session.pid != held.pid)
