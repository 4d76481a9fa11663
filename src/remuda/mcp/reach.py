"""Which agents an agent reaches, and what is left of its limits: by the files of sessions and `mcp.toml`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple

from remuda.boss.client import BossClient
from remuda.boss.elsewhere import Document, find_sent
from remuda.errors import (
    InvalidOptions,
    MessageNotFound,
    PermissionRefused,
    RemudaError,
    SessionNotFound,
)
from remuda.inbox.receipts import sender_of
from remuda.keeper.elsewhere import own_host, split_host
from remuda.keeper.hidden import living_names
from remuda.keeper.record import SessionRecord
from remuda.names import is_name
from remuda.paths import SessionPaths, known_names, sessions_folder
from remuda.session import Session
from remuda.untrusted import one_line

from .caller import chain_of, find_session, load_rights, rights_file, root_of
from .ledger import DAY, count_message, used_tokens
from .rights import Caller, Right, Rights, StartLimits, caller_with, why_not_spend


class Reached(NamedTuple):
    session: Session
    record: SessionRecord | None
    """None for a session of another host: nothing there says who started it."""


class Reach:
    """What one agent may do now. Its files are read at each call; `caller` is called once, at the first."""

    def __init__(self, caller: Callable[[], Caller]) -> None:
        self._find_caller = caller
        self._caller: Caller | None = None

    @property
    def caller(self) -> Caller:
        if self._caller is None:
            self._caller = self._find_caller()
        return self._caller

    def rights(self) -> Rights:
        return load_rights(rights_file(os.environ))

    def limits(self) -> StartLimits:
        """Return the limits of the root: an agent cannot start one that may do more."""
        return self.rights().limits_of(caller_with(root_of(self.caller)))

    def may(self, right: Right, record: SessionRecord, rights: Rights) -> bool:
        return rights.may(self.caller, right, record.name, chain_of(record))

    def may_reach(self, right: Right, reached: Reached) -> bool:
        if reached.record is not None:
            return self.may(right, reached.record, self.rights())
        return self.rights().may(self.caller, right, reached.session.name, ())

    def find(self, name: str, right: Right, message: str | None = None) -> Reached:
        """Return a session that the caller may do that with. `message`: or one that it sent a message to.

        `name` is SESSION or HOST/SESSION. Raises `NotInFleet` for the latter on a machine without a fleet.
        """
        reached = _find(name)
        sent_by = right != "kill" and message is not None
        if reached is None or not (
            self.may_reach(right, reached) or (sent_by and self._sent(reached.session, str(message)))
        ):
            raise SessionNotFound(
                f"you reach no session {one_line(name)[:80]!r}",
                hint="list_agents lists those that you reach",
            )
        return reached

    def _sent(self, session: Session, message: str) -> bool:
        if session.host is None:
            return sender_of(session.inbox.folder, message) == self.caller.id
        try:
            sent = find_sent(message)
        except (MessageNotFound, InvalidOptions):  # the latter: it is the beginning of several
            return False
        wanted = (message, session.name, self.caller.id)
        return (sent["id"], f"{sent['host']}/{sent['session']}", sent.get("sender")) == wanted

    def elsewhere(self) -> list[Document]:
        """Return the sessions of other hosts that the caller may read, as the boss here knows them."""
        if own_host() is None or not (rights := self.rights()).reaches_hosts(self.caller):
            return []
        listed = BossClient().get("fleet", "sessions")["sessions"]
        return [
            one
            for one in listed
            if (name := one["session"].get("name"))
            and rights.may(self.caller, "read", f"{one['host']}/{name}", ())
        ]

    def sessions(self, *, ended: bool) -> list[SessionRecord]:
        """Return those of this machine that the caller may read."""
        folder, rights = sessions_folder(), self.rights()
        names = known_names(folder) if ended else set(living_names(folder))
        records = (SessionRecord.load(SessionPaths(folder, name).record) for name in sorted(names))
        return [one for one in records if one is not None and self.may("read", one, rights)]

    def tree(self) -> list[SessionRecord]:
        """Return the running sessions of the caller's tree."""
        folder, root = sessions_folder(), root_of(self.caller)
        records = (SessionRecord.load(SessionPaths(folder, name).record) for name in living_names(folder))
        return [one for one in records if one is not None and root in chain_of(one)]

    def spend_message(self) -> None:
        """Count a message that is sent next. Raises `PermissionRefused` if the limits leave no room."""
        limits = self.limits()
        tokens = self.output_tokens() if limits.max_output_tokens else None
        why = why_not_spend(limits, 0, tokens) or why_not_spend(
            limits, count_message(root_of(self.caller), limits.max_messages), None
        )
        if why is not None:
            raise PermissionRefused(why[0], hint=why[1])

    def output_tokens(self) -> int | None:
        """Return what sessions and pool requests of the tree used in a day; None if nothing is known."""
        root = root_of(self.caller)
        own = find_session(root)
        records = [one for one in self.records() if root in chain_of(one)] + ([own] if own else [])
        counts = [used_tokens(root), *(self._used_by(one) for one in records)]
        known = [one for one in counts if one is not None]
        return sum(known) if known else None

    def _used_by(self, record: SessionRecord) -> int | None:
        """Count all conversations of a session: after `/clear` it has another one."""
        since = time.time() - DAY
        try:
            total = BossClient().get("usage", by="session", since=since, kept=record.name)["total"]
        except RemudaError:  # no boss, or one of an older version
            return None
        count: int | None = total["tokens"]["output"]
        return count

    def records(self) -> list[SessionRecord]:
        folder = sessions_folder()
        found = (SessionRecord.load(SessionPaths(folder, name).record) for name in known_names(folder))
        return [one for one in found if one is not None]


def _find(name: str) -> Reached | None:
    host, own = split_host(name)
    if not is_name(own):
        return None
    if host is not None:
        return Reached(Session(name), None)
    folder = sessions_folder()
    record = SessionRecord.load(SessionPaths(folder, own).record)
    return None if record is None or record.name != own else Reached(Session(own, folder=folder), record)
