"""`remuda.Boss`: the attention queue, permission requests and replies, for a program."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from remuda.arguments import absolute_path, check_count, check_flag, check_text
from remuda.duration import as_seconds, check_seconds
from remuda.errors import InputError, InvalidOptions, NotInQueue, NotSafe
from remuda.keeper.elsewhere import own_host, split_host

from .attention.display import why_hidden
from .client import ANSWER_TIMEOUT, BossClient, RemoteBoss
from .folder import BossFolder

Answers = Mapping[str, str | Sequence[str]]
"""Answers to questions, by the question's text, header or number (from "1"). A list chooses several."""

_DECISION_TIMEOUT = 60.0
_TYPING_TIMEOUT = 60.0
_MOST_WAIT = 3600.0
_MOST_LISTED = 1000


@dataclass(frozen=True, slots=True)
class WaitingItem:
    """An entry of the attention queue. Times are seconds since the epoch."""

    id: str
    session_id: str
    """The id that the boss gives the agent's session."""
    reason: str
    """Why it waits: "stopped", "permission", "question", "plan", "api_error", "limited", "hung", "dead",
    "left_alone"…"""
    since: float
    message: str = ""
    """What the agent said or asked, if it is known."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    session: Mapping[str, Any] | None = None
    """The session: its `name` (of a kept session), `pane`, `cwd`, `state` and so on."""
    skip_until: float | None = None
    snooze_until: float | None = None
    resolved_at: float | None = None
    resolution: str | None = None
    host: str | None = None
    """The other host where it waits; None for this machine."""


@dataclass(frozen=True, slots=True)
class Approval:
    """A permission request, a question or a plan of an agent, and the decision. Times are epoch seconds."""

    id: str
    session_id: str
    reason: str
    """ "permission", "question" or "plan"."""
    tool: str
    input: Mapping[str, Any]
    """All the input of the tool."""
    asked_at: float
    state: str = "open"
    """ "open", "answered", or "ended" (answered at the terminal, or the turn is over)."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    answer: Mapping[str, Any] | None = None
    by: str | None = None
    """Who or what decided."""
    at: float | None = None
    """When it was answered or ended."""
    delivered_at: float | None = None
    proof: Mapping[str, Any] | None = None
    """What is known of what the agent did then."""
    refuses: Mapping[str, str] = field(default_factory=dict)
    """Decisions that its agent cannot take ("allow", "always", "edit", "message"), each with a sentence."""
    host: str | None = None
    """The other host where it was asked; None for this machine."""


@dataclass(frozen=True, slots=True)
class ReplyResult:
    """How far a reply got."""

    via: Literal["inbox", "pane"]
    """ "inbox" for a kept session, "pane" for an agent in a tmux pane."""
    stage: str
    """ "accepted" (in the inbox), "typed", "submitted" (the agent took it) or "answered"."""
    id: str | None = None
    """The message's id, of a kept session: `Session(name).wait(id)` waits for its end."""
    session: str | None = None
    """The name of the kept session."""
    duplicate: bool = False
    alive: bool = True
    """False if the kept session has ended: it gets the message when it is started again."""
    pane: str | None = None
    answer: Mapping[str, Any] | None = None
    """With `wait`, of an agent in a pane: `end` (how its turn ended) and `text`."""
    note: str | None = None
    """Why nothing more is known."""


_Record = TypeVar("_Record", WaitingItem, Approval, ReplyResult)


def _read(kind: type[_Record], document: Mapping[str, Any]) -> _Record:
    """Take the fields that this version knows: a newer boss may send more."""
    known = {one.name for one in fields(kind)}
    return kind(**{name: value for name, value in document.items() if name in known})


def _named(host: str | None, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what the boss of another host sent, with ids as the boss here lists it."""
    if host is None:
        return document
    ids = {name: f"{host}:{document[name]}" for name in ("id", "session_id")}
    return {**document, **ids, "host": host}


def _check_word(name: str, value: object) -> str:
    """Return a word for a session or a request. Raises `InvalidOptions`, also for an empty one."""
    word = check_text(name, value)
    if not word:
        raise InvalidOptions(f"{name} is empty")
    return word


class Boss:
    """Read the attention queue, decide permission requests, and reply to agents.

    Needs a running boss (`remuda boss up`), and uses its private socket. The object holds nothing open: each
    call connects again, so that the boss may restart between two calls. Every method blocks for at most
    `timeout` seconds, unless it says otherwise. In asyncio use `AsyncBoss`, which has the same methods.

    On a machine that has joined a fleet, `queue` and `permissions` are of all hosts, and HOST/SESSION is a
    word for a session of another one. Methods for such a session also raise `HostUnreachable`,
    `HubUnreachable` and `NotInFleet`.

    Every method raises `BossDown` if the boss does not run, `WaitTimeout` if it does not answer in time, and
    `PermissionRefused` if it refuses the token.

        boss = Boss()
        for request in boss.permissions():
            if request.tool == "Read":
                boss.approve(request)
            else:
                boss.deny(request, "only reading is allowed here")
    """

    def __init__(
        self,
        *,
        folder: Path | str | None = None,
        timeout: float = ANSWER_TIMEOUT,
        host: str | None = None,
    ) -> None:
        """Make a client. `folder` has the boss's files; None is the one that the commands use.

        `host` is another machine of your fleet: everything is asked of the boss there, through the one here.
        Then methods also raise `HostUnreachable`, `HubUnreachable` and `NotInFleet`.
        """
        self._host = None if host is None else check_text("host", host)
        self._folder = None if folder is None else BossFolder(absolute_path("folder", folder))
        self._timeout = check_seconds("timeout", timeout)

    @property
    def _client(self) -> BossClient:
        if self._host is not None:
            return RemoteBoss(self._host, self._folder, timeout=self._timeout)
        return BossClient(self._folder, timeout=self._timeout)

    # ── the queue ──

    def _at(self, word: str) -> tuple[BossClient, str | None, str]:
        """Return the boss that a word means, its host if that is another one, and the word there."""
        host, rest = split_host(word) if self._host is None else (None, word)
        client = self._client if host is None else RemoteBoss(host, self._folder, timeout=self._timeout)
        return client, host, rest

    def _lists_hosts(self, hosts: bool) -> bool | None:
        return (check_flag("hosts", hosts) and self._host is None and own_host() is not None) or None

    def queue(self, *, hidden: bool = False, hosts: bool = True) -> list[WaitingItem]:
        """Return what waits for a human, the first to answer first; with `hidden` also what was put off.

        With `hosts` that is on all hosts of the fleet that this machine has joined, as `remuda queue` lists
        it. The `session` of an item has `reachable` false while its host cannot be reached.
        """
        others = self._lists_hosts(hosts)
        hides = check_flag("hidden", hidden)
        items = self._client.get("queue", hidden=hides or None, hosts=others, wait=others)["items"]
        return [_read(WaitingItem, one) for one in items]

    def later(self, item: WaitingItem | str, when: float | str = "10m") -> WaitingItem:
        """Put a waiting item off and return it as it is now.

        `item` is an item of `queue`, or a word for its session: a name, a folder, a pane, or the beginning of
        an id. `when` is a TIME ("45m", "2h30m", or seconds) after which it shows up again. "end" puts it at
        the end of the queue; "never" takes it out until the agent waits for something new. The agent is not
        touched. Raises `NotInQueue` if it does not wait, and `InvalidOptions`.
        """
        words: dict[object, str] = {"end": "skip", "never": "dismiss"}
        action, body = words.get(when if isinstance(when, str) else None), {}
        if action is None:
            action, body = "snooze", {"until": time.time() + as_seconds("when", when)}
        return _read(WaitingItem, self._client.post("queue", self._item_id(item), action, body=body))

    def _item_id(self, item: WaitingItem | str) -> str:
        if isinstance(item, WaitingItem):
            return item.id
        client, host, word = self._at(_check_word("item", item))
        waiting = client.get("sessions", word)["item"]
        if waiting is None:
            raise NotInQueue(
                f"{word} is not waiting",
                hint="'remuda queue --all' lists all waiting agents, also hidden ones",
            )
        return str(_named(host, waiting)["id"])

    # ── permission requests ──

    def permissions(
        self,
        *,
        all: bool = False,  # noqa: A002
        limit: int = 100,
        hosts: bool = True,
    ) -> list[Approval]:
        """Return the open permission requests, the newest first; with `all` also those that are decided.

        `limit` (1 to 1000) is how many at most. With `hosts` those of all hosts of the fleet that this
        machine has joined and that can be reached.
        """
        count = check_count("limit", limit, 1, _MOST_LISTED)
        state = None if check_flag("all", all) else "open"
        others = self._lists_hosts(hosts)
        approvals = self._client.get("approvals", state=state, limit=count, hosts=others)["approvals"]
        return [_read(Approval, one) for one in approvals]

    def permission(self, which: str) -> Approval:
        """Return one permission request, by its id or by a word for its session.

        Raises `NotInQueue` if there is none, and `InvalidOptions` if the session has several open ones.
        """
        client, host, word = self._at(_check_word("which", which))
        try:
            return _read(Approval, _named(host, client.get("approvals", word)))
        except NotInQueue:
            pass
        try:
            session = client.get("sessions", word)["session"]
        except NotInQueue:
            raise NotInQueue(
                f"no permission request or session '{which}'",
                hint="'remuda approvals' lists the open requests",
            ) from None
        listed = client.get("approvals", state="open", limit=_MOST_LISTED)["approvals"]
        found = [_named(host, one) for one in listed if one["session_id"] == session["id"]]
        if not found:
            raise NotInQueue(f"{which} has no open permission request")
        if len(found) > 1:
            ids = ", ".join(f"{one['id']} ({one['tool']})" for one in found)
            raise InvalidOptions(
                f"{which} has {len(found)} open permission requests", hint=f"give an id: {ids}"
            )
        return _read(Approval, found[0])

    def approve(
        self,
        which: Approval | str,
        *,
        answers: Answers | None = None,
        input: Mapping[str, Any] | None = None,  # noqa: A002
        always: bool = False,
        unseen: bool = False,
        by: str | None = None,
    ) -> Approval:
        """Allow a permission request, answer a question, or accept a plan. Returns the request as it is now.

        `which` is a request, its id, or a word for its session. `answers` are for a question. `input`
        replaces the tool's input. `always` allows the same for the rest of the conversation. `by` is a name
        for the log of decisions.

            boss.approve("work", answers={"Which colour?": "Blue"})

        The first decision counts. Raises `AlreadyAnswered` if another one was first, `NotInQueue`,
        `InvalidOptions`, and `NotSafe` for a plan or dialog that only the agent's terminal shows, unless
        `unseen` is True.
        """
        request = self._request(which)
        why = why_hidden(request.reason, request.tool, request.input)
        if why and not check_flag("unseen", unseen) and input is None:
            raise NotSafe(why, hint="look at its terminal, or pass unseen=True")
        body: dict[str, Any] = {"behavior": "allow"}
        if answers is not None:
            body["answers"] = {
                name: one if isinstance(one, str) else list(one) for name, one in answers.items()
            }
        if input is not None:
            if not isinstance(input, Mapping):
                raise InvalidOptions(f"input must be a mapping, not {type(input).__name__}")
            body["updated_input"] = dict(input)
        if check_flag("always", always):
            body["always"] = True
        return self._decide(request, body, by)

    def deny(
        self, which: Approval | str, message: str = "", *, interrupt: bool = False, by: str | None = None
    ) -> Approval:
        """Deny a permission request and return it as it is now.

        `which` is a request, its id, or a word for its session. The agent reads `message` and goes on without
        the tool; `interrupt` ends its turn instead. Raises as `approve`.
        """
        body: dict[str, Any] = {"behavior": "deny"}
        if check_text("message", message):
            body["message"] = message
        if check_flag("interrupt", interrupt):
            body["interrupt"] = True
        return self._decide(self._request(which), body, by)

    def _request(self, which: Approval | str) -> Approval:
        return which if isinstance(which, Approval) else self.permission(which)

    def _decide(self, request: Approval, body: dict[str, Any], by: str | None) -> Approval:
        body |= {"by": check_text("by", by)} if by else {}
        limit = max(self._timeout, _DECISION_TIMEOUT)  # it returns when the agent has heard of it
        return _read(Approval, self._client.post("approvals", request.id, "answer", body=body, timeout=limit))

    # ── replies ──

    def reply(
        self,
        session: str,
        text: str,
        *,
        wait: float = 0.0,
        dedup: str | None = None,
        command: bool = False,
        literal: bool = False,
    ) -> ReplyResult:
        """Give a prompt to an agent that the boss knows, and return how far it got.

        `session` is a name, a folder, a tmux pane, or the beginning of an id. A kept session gets the prompt
        in its inbox. For an agent in a pane it is typed, if the agent is proven to be idle with an empty
        composer and no open dialog. `wait` is how many seconds (at most 3600) to wait for the answer of an
        agent in a pane; for a kept session use `Session.wait` with the returned id. The other options are
        those of `Inbox.put`. Blocks for up to a minute, and for `wait` in addition.

        Raises `NotSafe` with the reason if nothing was typed, `NotInQueue` if no such agent is known, and
        `InputError` for a prompt that the agent cannot take.
        """
        longest = min(check_seconds("wait", wait), _MOST_WAIT)
        body: dict[str, Any] = {
            "text": check_text("text", text),
            "command": check_flag("command", command),
            "literal": check_flag("literal", literal),
        }
        body |= {"dedup": check_text("dedup", dedup)} if dedup else {}
        body |= {"wait": longest} if longest else {}
        limit = max(self._timeout, _TYPING_TIMEOUT) + longest
        client, host, where = self._at(_check_word("session", session))
        try:
            result = client.post("sessions", where, "reply", body=body, timeout=limit)
        except InputError as error:
            if error.hint:  # it is written for the command line
                error.hint = error.hint.replace("--command", "command=True")
            raise
        if host is not None and result.get("session"):
            result["session"] = f"{host}/{result['session']}"
        return _read(ReplyResult, result)
