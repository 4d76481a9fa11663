"""What the dashboard lists, which row is marked, and what may be decided. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from remuda.boss.attention.display import distinct, label
from remuda.cli.queue_keys import READ, SeenRequest

Document = Mapping[str, Any]

DECIDABLE = ("permission", "plan", "question")
"""Reasons to wait that a request to the boss can answer."""

_LONG = 4096
"""Characters of one text that are looked at: names and messages come from outside."""


@dataclass(frozen=True, slots=True)
class BossSnapshot:
    """What the boss reported at one moment."""

    items: Sequence[Document] = ()
    sessions: Sequence[Document] = ()
    approvals: Mapping[str, Document] = field(default_factory=dict)
    """The open requests, by id."""
    at: float = 0.0


class Row(NamedTuple):
    """One agent in the list."""

    key: str
    """The id of its session."""
    label: str
    session: Document
    item: Document | None = None
    """Why it waits; None if it does not."""

    @property
    def request_id(self) -> str:
        """Return the id of its permission request, plan or question; empty if it has none."""
        if self.item is None or self.item["reason"] not in DECIDABLE:
            return ""
        return str((self.item.get("detail") or {}).get("ask") or "")


class Dashboard:
    """The list: waiting agents in the order of the queue, then all others. The marked agent stays marked."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.snapshot = BossSnapshot()
        self.rows: list[Row] = []
        self.at = 0
        self.filter = ""
        self.reading = SeenRequest(clock)
        self._clock = clock
        self._slipped_at = float("-inf")
        """When the mark went to another agent by itself."""
        self.whole: dict[str, Document] = {}
        """Items and requests that are too long for a list, by id, as they were read one by one."""
        self._left = ""
        """The agent that the user has answered or put off: the mark goes to the next one when it is done."""

    @property
    def marked(self) -> Row | None:
        return self.rows[self.at] if self.rows else None

    @property
    def request(self) -> Document | None:
        """Return the open request of the marked agent, complete if it was read."""
        request = self.snapshot.approvals.get(self.marked.request_id) if self.marked else None
        return None if request is None else self._complete(request)

    @property
    def item(self) -> Document | None:
        """Return why the marked agent waits, complete if it was read."""
        item = self.marked.item if self.marked else None
        return None if item is None else self._complete(item)

    @property
    def missing(self) -> tuple[str, str] | None:
        """Return what must be read to show the marked agent's request: where it is, and its id."""
        for where, one in (("approvals", self.request), ("queue", self.item)):
            if one is not None:
                return (where, str(one["id"])) if one.get("cut") else None
        return None

    def _complete(self, one: Document) -> Document:
        whole = self.whole.get(str(one["id"])) if one.get("cut") else None
        return one if whole is None else {**one, **{name: whole[name] for name in one["cut"]}, "cut": []}

    def take(self, snapshot: BossSnapshot) -> Row | None:
        """Return the marked agent if it is not listed any more: then the mark is on another one."""
        before, self.snapshot = self.marked, snapshot
        known = {*snapshot.approvals, *(str(one["id"]) for one in snapshot.items)}
        self.whole = {key: one for key, one in self.whole.items() if key in known}
        if self._list() or before is None or before.key == self._left:
            return None
        self._slipped_at = self._clock()
        return before

    def search(self, text: str) -> None:
        self.filter = text
        self._list()

    def move(self, by: int) -> None:
        self.at = max(0, min(self.at + by, len(self.rows) - 1))
        self._left = ""

    def leave(self) -> None:
        """Let the mark move on once the marked agent no longer waits: the user is done with it."""
        self._left = self.marked.key if self.marked else ""

    def _list(self) -> bool:
        """Return whether the marked agent is still there."""
        before = self.marked.key if self.marked else None
        self.rows = _rows(self.snapshot, self.filter.casefold())
        places = [number for number, row in enumerate(self.rows) if row.key == before]
        if before == self._left and places and self.rows[places[0]].item is None and self.rows[0].item:
            places.clear()
        self.at = places[0] if places else max(0, min(self.at, len(self.rows) - 1))
        return bool(places)

    # ── what may be done ──

    def drawn(self, *, is_complete: bool) -> None:
        """Note that the request of the marked agent is on the screen; `is_complete`: also its end."""
        key, reading = self.marked.request_id if self.marked else "", self.reading
        reading.drawn(key, is_complete=is_complete or (reading.shows(key) and reading.is_complete))

    def why_not(self, behavior: str, hidden: str = "") -> str:
        """Return why the marked request cannot be decided now; empty if it can. `hidden`: why not shown."""
        request = self.request
        if request is None:
            return "this agent asks nothing that can be decided here; Enter opens it"
        if why := self.reading.why_not(str(request["id"])):
            return why
        if behavior == "allow" and hidden:
            return f"{hidden}; Enter opens it"
        if behavior == "allow" and not self.reading.is_complete:
            return "scroll to the end of the request with J first"
        return ""

    def why_not_put_off(self) -> str:
        """Return why the marked agent cannot leave the queue now; empty if it can."""
        if self.marked is None or self.marked.item is None:
            return "this agent is not waiting"
        if self._clock() - self._slipped_at < READ:
            return "the list has just changed: look at it, then press the key again"
        return ""


def _rows(snapshot: BossSnapshot, wanted: str) -> list[Row]:
    sessions = {str(one["id"]): one for one in snapshot.sessions}
    for item in snapshot.items:
        sessions.setdefault(str(item["session_id"]), item.get("session") or {"id": item["session_id"]})
    names = distinct({key: _label(key, one) for key, one in sessions.items()})
    waiting = {str(one["session_id"]): one for one in reversed(snapshot.items)}
    order = [*dict.fromkeys(str(one["session_id"]) for one in snapshot.items)]
    rest = [key for key, one in sessions.items() if key not in waiting and not one.get("ended")]
    rest.sort(key=lambda key: sessions[key].get("first_seen") or 0.0)
    rows = [Row(key, names[key], sessions[key], waiting.get(key)) for key in [*order, *rest]]
    return [row for row in rows if wanted in _words(row)] if wanted else rows


def _label(key: str, session: Document) -> str:
    folder = session.get("repo") or session.get("cwd")
    text = label(session.get("name"), folder and str(folder)[-_LONG:], key)[:_LONG]
    return f"{session['host']}/{text}" if session.get("host") else text


def _words(row: Row) -> str:
    item = row.item or {}
    values = [
        row.label,
        *(row.session.get(name) for name in ("cwd", "agent", "agent_state", "last_message", "title", "pane")),
        *(item.get(name) for name in ("reason", "message")),
    ]
    return " ".join(str(one)[:_LONG] for one in values if one).casefold()
