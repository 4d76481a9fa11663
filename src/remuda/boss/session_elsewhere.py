"""`remuda.Session` for a session of another host: the same methods, by the ways that the commands use."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, Unpack

from remuda.arguments import check_count, check_flag, check_words
from remuda.duration import as_seconds, check_seconds
from remuda.errors import (
    InvalidOptions,
    MessageNotFound,
    NotInQueue,
    SessionDead,
    SessionNotFound,
)
from remuda.inbox.journal import Accepted, Inbox
from remuda.inbox.message import PutOptions, check_prompt, check_put_options
from remuda.inbox.receipts import Trace
from remuda.keeper.cancel import DEFAULT_CANCEL_TIMEOUT, Cancelled, wait_until_resting
from remuda.keeper.client import KeeperClient
from remuda.keeper.elsewhere import split_host
from remuda.keeper.history_stream import HistoryStream
from remuda.names import check_name
from remuda.session import Session, last_lines, limit_of, message_id

from . import elsewhere
from .client import BossClient, RemoteBoss
from .elsewhere import Document

_HERE_ONLY = ("message_id", "now")
_ATTENDED_WAIT = 2.0
_LOOK_INTERVAL = 1.0
_MOST_LISTED = 200


class SessionElsewhere(Session):
    """A session of another host. Needs a running boss here and there, and a key that may act there.

    Every method also raises `BossDown`, `HubUnreachable`, `HostUnreachable` and `PermissionRefused`.
    """

    def __init__(self, name: str, *, folder: Path | str | None = None) -> None:  # as the base
        host, rest = split_host(name)
        assert host is not None
        self._host, self._name = host, check_name(rest)

    def __repr__(self) -> str:
        return f"Session({self.name!r})"

    @property
    def name(self) -> str:
        return f"{self._host}/{self._name}"

    @property
    def host(self) -> str:
        return self._host

    @property
    def alive(self) -> bool:
        try:
            with self.attach(read_only=True):
                return True
        except (SessionDead, SessionNotFound):
            return False

    @property
    def inbox(self) -> Inbox:
        self._refuse("its inbox is a folder of that host", "use 'send' and 'receipt'")

    def _refuse(self, why: str, hint: str) -> NoReturn:
        raise InvalidOptions(f"'{self.name}' is a session of another host: {why}", hint=hint)

    @contextmanager
    def _found(self) -> Iterator[None]:
        try:
            yield
        except NotInQueue as error:
            raise SessionNotFound(f"session '{self.name}' not found", hint=error.hint) from None

    def _boss(self) -> RemoteBoss:
        return elsewhere.must_have(self._host, self._name)

    # ── looking ──

    def attach(self, *, read_only: bool = False) -> KeeperClient:
        is_reader = check_flag("read_only", read_only)
        with self._found():
            client = KeeperClient.connect_elsewhere(self._host, self._name, read_only=is_reader)
        if client.name != self.name:  # a boss also finds it by its folder; see `must_have`
            client.close()
            raise SessionNotFound(f"session '{self.name}' not found", hint=f"did you mean '{client.name}'?")
        return client

    def screen(self) -> list[str]:
        return list(self._boss().get("sessions", self._name, "screen")["lines"])

    def history(self, lines: int | None = None) -> list[str]:
        if lines is not None:
            check_count("lines", lines, 0, sys.maxsize)
        self._boss()
        try:
            with HistoryStream(self._host, self._name) as reader:
                return last_lines(reader, lines)
        except SessionNotFound:  # none was kept
            return []

    # ── messages ──

    def send(self, text: str, **options: Unpack[PutOptions]) -> Accepted:
        check_put_options(options)
        check_prompt(text)
        for name in _HERE_ONLY:
            if options.get(name) is not None:
                self._refuse(f"{name} cannot be given there", "leave it out")
        given = {name: value for name, value in options.items() if value}
        for name in ("delay", "ttl"):
            if name in given:
                given[name] = as_seconds(name, given[name])
        given.pop("sender", None)
        receipt = elsewhere.send(self._host, self._name, text, given, options.get("sender"))
        if receipt["stage"] in ("dead", "expired", "dropped"):
            raise elsewhere.not_answered(receipt)
        return Accepted(str(receipt["id"]))

    def receipt(self, message: str) -> Trace:
        return self._trace(self._receipt(message_id(message)))

    def _receipt(self, message: str) -> Document:
        """Return the receipt of a message that was sent from here, or that the host has from others."""
        absent = MessageNotFound(f"message '{message}' not found in session '{self.name}'")
        try:
            receipt = self._find(message)
        except InvalidOptions:  # the beginning of several ids
            raise absent from None
        if (receipt["id"], receipt["host"], receipt["session"]) != (message, self._host, self._name):
            raise absent
        return receipt

    def _find(self, message: str) -> Document:
        try:
            return elsewhere.find_sent(message)
        except MessageNotFound:
            found = self._boss().get("sessions", self._name, "messages", message)
        answer = None if found["answer"] is None else {"text": found["answer"]}
        where = {"host": self._host, "session": self._name, "where": self._host}
        return {**found, **where, "answer": answer}

    def last_receipt(self, *, ended: bool = False) -> Document:
        """Return the receipt of its last message, or of the last that has ended. Raises `MessageNotFound`."""
        if not ended and (sent := self._on_its_way()):
            return sent[-1]
        known = self._boss().get("sessions", self._name, "messages", limit=_MOST_LISTED)["messages"]
        found = [one for one in known if one["ended"] or not ended]
        if not found:
            raise MessageNotFound(
                f"session '{self.name}' has no message" + (" that has ended" if ended else ""),
                hint=f"'remuda messages {self.name}' lists those that wait" if ended else None,
            )
        return self._find(
            str(max(found, key=lambda one: float(one["at"]))["id"] if ended else found[0]["id"])
        )

    def _on_its_way(self) -> list[Document]:
        """Return the receipts of messages that were sent from here, and that its host has not taken."""
        way = ("fleet", "hosts", self._host, "sessions", self._name, "messages")
        sent: list[Document] = BossClient().get(*way)["messages"]
        return sent

    def _trace(self, receipt: Document) -> Trace:
        folder = Path(self._host) / self._name
        return Trace(str(receipt["id"]), folder, tuple(receipt["steps"]), receipt["answer"])

    def _wait(self, message: str, timeout: float | None, check: Callable[[], None] | None = None) -> Trace:
        limit = limit_of(timeout)
        receipt = self._receipt(message_id(message))
        is_ours = "prompt" not in receipt

        def look(seen: Document, wait: float) -> Document:
            if check is not None:
                check()
            if is_ours:
                return elsewhere.look_at_sent(seen, wait)
            time.sleep(min(wait, _LOOK_INTERVAL))  # no step of a message that others sent comes by itself
            return self._receipt(message)

        poll = elsewhere.POLL if check is None else _ATTENDED_WAIT
        *_, last = elsewhere.follow(receipt, limit, poll, look)
        return self._trace(last)

    def cancel(self, message: str | None = None, timeout: float = DEFAULT_CANCEL_TIMEOUT) -> Cancelled | None:
        if message is None:
            return self.interrupt(timeout)
        return elsewhere.cancel_sent(self._receipt(message_id(message)), check_seconds("timeout", timeout))

    def interrupt(self, timeout: float = DEFAULT_CANCEL_TIMEOUT) -> Cancelled | None:
        return elsewhere.interrupt(self._boss(), self._name, check_seconds("timeout", timeout))

    def _wait_idle(self, timeout: float | None, check: Callable[[], None]) -> dict[str, Any]:
        return self.wait_for_rest(limit_of(timeout), lambda _: check())

    def wait_for_rest(self, timeout: float | None, report: Callable[[str], None]) -> dict[str, Any]:
        """Wait until it is idle and its inbox empty, and return its state. `report` hears why it is not."""
        with self.attach(read_only=True) as client:
            return wait_until_resting(client, self._has_due, timeout, report)

    def _has_due(self) -> bool:
        """Whether a message waits in the inbox there, or was sent from here and is on its way."""
        way = ("sessions", self._name, "messages")
        known = RemoteBoss(self._host).get(*way, limit=_MOST_LISTED)["messages"]
        now = time.time()
        is_due = any(not one["ended"] and (one["due"] or 0.0) <= now for one in known)
        return is_due or any(one["stage"] == "sent" for one in self._on_its_way())

    # ── the end ──

    def kill(self, grace: float | None = None) -> int | None:
        return elsewhere.end(self._host, self._name, None if grace is None else check_seconds("grace", grace))


def start(
    host: str,
    name: str,
    command: Sequence[str],
    cwd: Path | str | None,
    env: Mapping[str, str] | None,
    timeout: float,
    options: Mapping[str, Any],
) -> Session:
    """Start a session on another host, as `Session.start`."""
    given = {key: value for key, value in {"env": env, **options}.items() if value is not None}
    if other := [key for key in given if key not in elsewhere.START_OPTIONS]:
        raise InvalidOptions(
            f"{other[0]} cannot be given for a session of another host", hint="start it on that machine"
        )
    where = None if cwd is None else str(cwd)
    limit = check_seconds("timeout", timeout)
    words = check_words("command", command)
    elsewhere.start(host, check_name(name), words, where, given, limit)
    return Session(f"{host}/{name}")


def list_sessions() -> list[Session]:
    """Return the kept sessions of other hosts that were running when they were last heard of."""
    listed = BossClient().get("fleet", "sessions")["sessions"]
    running = [one for one in listed if one["session"].get("name") and not one["session"].get("ended")]
    return [Session(name) for name in sorted({f"{one['host']}/{one['session']['name']}" for one in running})]
