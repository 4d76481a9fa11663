"""Agents without a keeper, in tmux panes or in the background: what the boss knows, in words of `ls`"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from remuda.boss.attention.display import beginnings, label
from remuda.boss.client import BossClient
from remuda.errors import BossDown, NotInQueue, RemudaError, SessionNotFound
from remuda.frozen import frozen
from remuda.names import check_name, did_you_mean, is_name
from remuda.paths import SessionPaths, known_names
from remuda.untrusted import one_line

from .common import find_folder, pick_session
from .elsewhere import hint_elsewhere
from .output import complain

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from typing import Any

    Document = dict[str, Any]
KEYS = (
    *(
        "name",
        "agent",
        "argv",
        "cwd",
        "pid",
        "keeper_pid",
        "alive",
        "exit_code",
        "started_at",
        "uptime",
        "idle",
    ),
    *("printed", "cols", "rows", "size_policy", "clients", "ephemeral", "asks_human", "title", "last_line"),
    *("recording", "degraded", "keeper_version", "state", "source", "detail", "since", "age", "dissent"),
    *("conversation", "delivery", "last_message", "hooks", "hooks_expected", "sleep"),
)
"""The fields that a keeper reports of its session. For an agent outside, unknown ones are null."""
_TIMEOUT = 2.0
"""`ls` must not hang if the boss hangs."""
_STATES = {
    "started": "idle",
    "background": "idle",
    "stopped": "idle",
    "working": "thinking",
    "hung": "thinking",
    "failed": "error",
    "limited": "limited",
    "ended": "dead",
    "dead": "dead",
}
"""For a boss before 0.2, which does not report `agent_state`."""


@frozen
class OutsideAgent:
    """An agent without a keeper, and its item in the queue."""

    name: str
    session: Mapping[str, Any]
    item: Mapping[str, Any] | None

    def document(self) -> Document:
        session, since = self.session, self.session["ended"] or self.session["since"]
        known = {
            "name": self.name,
            "agent": session["agent"],
            "cwd": session["cwd"],
            "pid": session["pid"],
            "alive": session["ended"] is None,
            "title": session["title"],
            "state": self._state(),
            "source": "boss",
            "detail": self._detail(),
            "since": since or None,
            "age": round(max(0.0, time.time() - since), 3) if since else None,
            "conversation": {"session_id": session["id"], "transcript_path": session["transcript_path"]},
            "last_message": one_line(str(self.item["message"] or "")) if self.item else None,
        }
        return {**dict.fromkeys(KEYS), **known, "kept": False, "pane": session["pane"]}

    def _state(self) -> str | None:
        if self.session["ended"] is not None:
            return "dead"
        if found := self.session.get("agent_state"):
            return str(found)
        if self.session["state"] == "waiting":
            return "waiting_answer" if (self.item or {}).get("reason") == "question" else "waiting_permission"
        return _STATES.get(str(self.session["state"]))

    def _detail(self) -> str | None:
        if self.item is None:
            return None
        tool = (self.item.get("detail") or {}).get("tool")
        return one_line(f"{self.item['reason']}: {tool}" if tool else str(self.item["reason"]))


def list_outside(*, ended: bool = False, note: Callable[[str], None] = complain) -> list[OutsideAgent]:
    """Return the agents of the boss without a keeper, in order of discovery; none if no boss runs.

    `note` gets a line about a boss that runs but does not answer.
    """
    boss = BossClient(timeout=_TIMEOUT)
    try:
        known = boss.get("sessions", all=ended or None)["sessions"]
        sessions = [
            one for one in known if not one["name"] and one["origin"] != "kept" and not one["replaced_by"]
        ]
        if not sessions:
            return []
        items = {item["session_id"]: item for item in boss.get("queue", hidden=True)["items"]}
    except BossDown:
        return []
    except RemudaError as error:
        note(f"agents outside of sessions are not listed: {error}")
        return []
    sessions.sort(key=lambda one: (one["ended"] is not None, one["first_seen"]))
    taken = {str(item["id"]) for item in items.values()} | known_names(find_folder(None))
    return [
        OutsideAgent(name, one, items.get(one["id"]))
        for name, one in zip(_names(sessions, known, taken), sessions, strict=True)
    ]


def with_tokens(documents: list[Document]) -> list[Document]:
    """Return the same with `tokens`, as the boss counts them; null where it does not know."""
    try:
        known = BossClient(timeout=_TIMEOUT).get("sessions", all=True)["sessions"]
    except RemudaError:
        known = []
    tokens = {one["id"]: one.get("tokens") for one in known}
    return [
        {**one, "tokens": tokens.get((one.get("conversation") or {}).get("session_id"))} for one in documents
    ]


def _names(sessions: list[Document], known: list[Document], taken: set[str]) -> list[str]:
    """Return the name of each agent: its folder, else the beginning of its id.

    A folder that could mean another agent is not used as a name: a folder can be called `%5`.
    """
    often = Counter(_folder_of(one) for one in known if not one["replaced_by"])
    begin, ids = beginnings([one["id"] for one in sessions]), [one["id"] for one in known]

    def is_clear(folder: str) -> bool:
        others = folder in taken or folder.startswith("%") or any(one.startswith(folder) for one in ids)
        return often[folder] == 1 and not others

    folders = [(_folder_of(one), one["id"]) for one in sessions]
    return [folder if is_clear(folder) else begin[number] for folder, number in folders]


def _folder_of(session: Document) -> str:
    return label(None, session["repo"] or session["cwd"], session["id"])


def find_by_name(name: str, folder: Path | None) -> str | OutsideAgent:
    """Return the session of that name, or an agent outside by its pane, folder, or the beginning of its id.

    A session's full name comes first, then what the boss knows, then the beginning of a session's name. The
    boss is asked only for sessions of the default folder. An unknown name is an error with similar names, and
    so is an ambiguous one.
    """
    where = find_folder(folder)
    if is_name(name) and (name in known_names(where) or SessionPaths(where, name).inbox.is_dir()):
        return name
    if name and folder is None and (found := _ask_for(name)) is not None:
        return found
    if name.startswith("%"):
        raise SessionNotFound(
            f"pane '{name}' has no agent that the boss knows", hint="'remuda ls' lists agents in panes"
        )
    if (picked := pick_session(check_name(name), where)) != name:
        return picked
    names = known_names(where) | ({one.name for one in list_outside()} if folder is None else set())
    near, hint = did_you_mean(name, names), "'remuda ls --all' lists all"
    near = (hint_elsewhere(name) if folder is None else "") or near
    raise SessionNotFound(f"session '{name}' not found", hint=f"{near} {hint}" if near else hint)


def _ask_for(word: str) -> str | OutsideAgent | None:
    try:
        found = BossClient().get("sessions", word)
    except (BossDown, NotInQueue):
        return None
    session = found["session"]
    if session["name"]:
        return str(session["name"])
    named = {one.session["id"]: one.name for one in list_outside(ended=session["ended"] is not None)}
    return OutsideAgent(named.get(session["id"], word), session, found["item"])
