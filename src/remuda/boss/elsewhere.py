"""Act on a session of another host, through the boss here: for the commands and for `remuda.Session`.

Blocking. Everything raises the error of the other host, and what prevents the way there: `BossDown`,
`HubUnreachable`, `HostUnreachable`, `PermissionRefused`, `NotInFleet`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from remuda.duration import show_duration
from remuda.errors import (
    HostUnreachable,
    InvalidOptions,
    MessageDead,
    MessageNotFound,
    NotInQueue,
    SessionNotFound,
    WaitTimeout,
)
from remuda.keeper.cancel import Cancelled, Fate
from remuda.keeper.elsewhere import own_host
from remuda.untrusted import one_line

from .client import BossClient, RemoteBoss

Document = dict[str, Any]

START_OPTIONS = ("agent", "cols", "rows", "trust", "resume")
"""Those of a start that another host takes, besides the command and its folder."""
POLL = 30.0
_TIMEOUT = 5.0
_LONGEST_GRACE = 60.0
_END_TIMEOUT = 30.0


def must_have(host: str, session: str) -> RemoteBoss:
    """Return the boss of a host that has this kept session. Raises `SessionNotFound`.

    A boss also finds an agent by its folder or the beginning of an id, which no program should act on.
    """
    boss = RemoteBoss(host)
    try:
        name = boss.get("sessions", session, "messages", limit=1)["session"]
    except NotInQueue as error:
        raise SessionNotFound(f"session '{host}/{session}' not found", hint=error.hint) from None
    if name not in (session, None):  # None is an agent without a keeper, which the boss there refuses
        raise SessionNotFound(f"session '{host}/{session}' not found", hint=f"did you mean '{host}/{name}'?")
    return boss


# ── messages ──


def send(
    host: str, session: str, prompt: str, options: Mapping[str, Any], sender: str | None = None
) -> Document:
    """Send a message; returns its receipt when the hub has it on its disk, or the host a moment later."""
    way = ("fleet", "hosts", host, "sessions", session, "messages")
    body = {"prompt": prompt, "options": options} | ({"sender": sender} if sender else {})
    receipt: Document = BossClient(timeout=2 * POLL).post(*way, body=body)
    return receipt


def find_sent(word: str) -> Document:
    """Return the receipt of a message that was sent from here to another host. Raises `MessageNotFound`."""
    if own_host() is None:
        raise MessageNotFound(f"message '{word}' not found", hint="'remuda messages' lists them")
    receipt: Document = BossClient().get("fleet", "messages", word)
    return receipt


def look_at_sent(receipt: Document, wait: float) -> Document:
    """Return the receipt of a message that was sent from here, after its next step or `wait` seconds."""
    boss = BossClient(timeout=wait + _TIMEOUT)
    query = {"wait": round(wait, 3), "steps": len(receipt["steps"])}
    after: Document = boss.get("fleet", "messages", receipt["id"], **query)
    return after


def follow(
    receipt: Document,
    timeout: float | None,
    poll: float = POLL,
    look: Callable[[Document, float], Document] = look_at_sent,
) -> Iterator[Document]:
    """Yield the receipt of a message now, and again after each step or `poll` seconds, up to its end.

    `look` returns the next one after at most that many seconds; the default is for a message that was sent
    from here. Raises `WaitTimeout`.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    yield receipt
    while not receipt["ended"]:
        left = poll if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise WaitTimeout(
                f"message {receipt['id']} has not ended within "
                f"{show_duration(timeout or 0.0, precise=True)}; its last step is "
                f"`{receipt['stage']}`, at {receipt['where']}"
            )
        receipt = look(receipt, min(left, poll))
        yield receipt


def not_answered(receipt: Document) -> MessageDead:
    why = one_line(str(receipt["steps"][-1].get("reason") or "no reason given"))
    return MessageDead(
        f"message {receipt['id']} was not answered: {receipt['stage']}, {why}",
        hint=f"'remuda messages {receipt['id']}' shows every step",
    )


# ── cancelling ──


def cancel_sent(receipt: Document, timeout: float) -> Cancelled:
    """Cancel a message that was sent from here. One that only the hub has cannot be taken back."""
    if receipt["ended"]:
        return Cancelled(Fate.ANSWERED if receipt["stage"] == "acked" else Fate.ENDED, receipt["id"])
    if receipt["stage"] == "sent":
        raise HostUnreachable(
            f"message {receipt['id']} is at {receipt['where']}, and cannot be cancelled there",
            hint=f"try again when {receipt['host']} is back; it expires after 5 days, or its --ttl",
        )
    return cancel_message(RemoteBoss(receipt["host"]), receipt["session"], receipt["id"], timeout)


def cancel_message(boss: RemoteBoss, session: str, message: str, timeout: float) -> Cancelled:
    return _outcome(boss.post("sessions", session, "messages", message, "cancel", timeout=timeout))


def interrupt(boss: RemoteBoss, session: str, timeout: float) -> Cancelled | None:
    """Interrupt the turn that runs there; None if none runs."""
    stopped = boss.post("sessions", session, "interrupt", timeout=timeout)
    return None if stopped["outcome"] == "nothing" else _outcome(stopped)


def _outcome(document: Document) -> Cancelled:
    return Cancelled(Fate(document["outcome"]), document["id"], str(document["reason"]))


# ── beginning and end ──


def start(
    host: str,
    name: str,
    command: Sequence[str],
    cwd: str | None,
    options: Mapping[str, Any],
    timeout: float,
) -> Document:
    """Start a session there, with the environment of that boss; without `cwd` in the user's home folder."""
    body: Document = {key: value for key, value in options.items() if value not in (None, False)}
    body |= {"name": name, "command": list(command)} | ({"cwd": cwd} if cwd is not None else {})
    started: Document = RemoteBoss(host).post("sessions", body=body, timeout=timeout)
    return started


def resume(host: str, session: str) -> None:
    """Bring back a session there that has ended."""
    must_have(host, session).post("sessions", session, "resume", timeout=_END_TIMEOUT)


def end(host: str, session: str, grace: float | None) -> int | None:
    """End a session there and every process it started; returns its exit code."""
    if grace is not None and grace > _LONGEST_GRACE:
        raise InvalidOptions(f"another host waits at most {_LONGEST_GRACE:g} s, not {grace:g}")
    body = {} if grace is None else {"grace": grace}
    patience = (_LONGEST_GRACE if grace is None else grace) + _END_TIMEOUT
    ended = must_have(host, session).post("sessions", session, "end", body=body, timeout=patience)
    code: int | None = ended["exit_code"]
    return code
