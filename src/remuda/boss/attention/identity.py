"""Which session is which: where it runs, and which one has a pane, a process or a name now. Pure.

A conversation is resumed in another pane, `/clear` puts a new one into the same process, a pane is reused. So
each event claims the pane, process and name that it comes from. The newest claim holds; a session whose place
another one holds is gone. A claim is never given back: a session that ends does not bring back the one
before.

An agent that only tmux reports gets a placeholder session (`is_stand_in`). It gives way to the agent's own
session as soon as that reports something, and never replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from remuda.names import is_name

from .model import Activity, BossSession, Event, EventKind, Origin, Source

_TEXTS = ("name", "cwd", "repo", "transcript_path", "agent", "entrypoint", "title")
HEARSAY = frozenset({"pane", "cwd", "repo", "agent", "transcript_path"})
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
class PlaceClaim:
    session_id: str
    at: float
    pid: int | None = None
    """The process that claimed it, if known."""


def place_facts(event: Event) -> dict[str, Any]:
    """Return what an event says about where its session runs.

    The end of a session says nothing about that.
    """
    if event.kind in (EventKind.ENDED, EventKind.GONE):
        return {}
    facts = _place_facts(event.facts)
    return {name: facts[name] for name in facts.keys() & HEARSAY} if event.facts.get("hearsay") else facts


def merge(session: BossSession, event: Event, facts: Mapping[str, Any]) -> BossSession:
    """Add what an event says about where the session runs. Older information changes nothing.

    Hearsay has dates of its own: it changes nothing that was reported otherwise, and keeps nothing else out.
    """
    mark = "hearsay " if event.facts.get("hearsay") else ""
    new = {
        name: value
        for name, value in facts.items()
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


def without_stored_hearsay(session: BossSession) -> BossSession:
    """Remove from a stored session a path that came with Trail Boss's token: versions before 0.2 kept it.

    They date it as any other, but do not write our mark next to it. Its events report it again.
    """
    at = session.dated.get("transcript_path")
    if session.transcript_path is None or (at is not None and session.dated.get(_TRUSTED_PATH) == at):
        return session
    dated = {name: at for name, at in session.dated.items() if not name.endswith("transcript_path")}
    return replace(session, transcript_path=None, dated=dated)


def _place_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    known: dict[str, Any] = {name: facts[name] for name in _TEXTS if isinstance(facts.get(name), str)}
    for name in ("cwd", "repo", "transcript_path"):
        if "\0" in known.get(name, ""):  # no path has one, and every use of it would fail
            del known[name]
    if not is_name(known.get("name", "")):  # it becomes part of paths
        known.pop("name", None)
    if isinstance(facts.get("pane"), str):
        known["pane"] = facts["pane"]
    if type(pid := facts.get("pid")) is int and 0 < pid < 1 << 31:
        known["pid"] = pid
    return known


def _origin(event: Event) -> Origin:
    if (origin := event.facts.get("origin")) is not None and origin in tuple(Origin):
        return Origin(origin)
    if isinstance(name := event.facts.get("name"), str) and is_name(name):
        return Origin.KEPT
    return _ORIGINS.get(event.source, Origin.TMUX)


def places(session: BossSession) -> list[str]:
    """Return what only one session can have at a time."""
    return _places(session.pane, session.tmux, session.pid, session.name)


def is_stand_in(session_id: str) -> bool:
    """Whether it is a placeholder: the id of a pane from Trail Boss's bootstrap, or a detector's."""
    return session_id.startswith(("%", "tmux-"))


def claims(event: Event, facts: Mapping[str, Any]) -> dict[str, PlaceClaim]:
    """Return the places that an event claims for its session."""
    claimed = _places(facts.get("pane"), _server_of(event), facts.get("pid"), facts.get("name"))
    if not claimed:
        return {}
    claim = PlaceClaim(event.session_id, event.at, facts.get("pid"))
    stands_in = is_stand_in(event.session_id)
    return {_stand_in(place) if stands_in else place: claim for place in claimed}


def rivals(session: BossSession) -> list[str]:
    """Return the claims by which another session may have replaced this one."""
    own = places(session)
    return [*own, *map(_stand_in, own)] if is_stand_in(session.id) else own


def _server_of(event: Event) -> str | None:
    tmux = event.facts.get("tmux")
    return tmux if isinstance(tmux, str) and tmux else None


def _stand_in(place: str) -> str:
    return f"stand-in {place}"


def _places(pane: str | None, tmux: str | None, pid: int | None, name: str | None) -> list[str]:
    names = [f"pane {_server(tmux)} {pane}"] if pane else []
    names += [f"pid {pid}"] if pid else []
    return names + ([f"name {name}"] if name else [])


def _server(tmux: str | None) -> str:
    """Emitters that do not name their server are in the default one."""
    return "" if not tmux or tmux.rpartition("/")[2] == "default" else tmux


def newer(claim: PlaceClaim, held: PlaceClaim | None) -> bool:
    return held is None or (claim.at, claim.session_id) > (held.at, held.session_id)


def is_replaced(session: BossSession, place: str, held: PlaceClaim, holder: BossSession | None) -> bool:
    """Whether the session that holds a place of this one has replaced it.

    An agent that runs another one in its own pane is not gone: their processes differ.
    """
    if held.session_id == session.id:
        return False
    if is_stand_in(session.id):
        over = (
            holder is None or holder.state in (Activity.ENDED, Activity.DEAD) or place not in places(holder)
        )
        return not over or is_stand_in(held.session_id)
    both = session.pid is not None and held.pid is not None
    return not (place.startswith("pane ") and both and session.pid != held.pid)
