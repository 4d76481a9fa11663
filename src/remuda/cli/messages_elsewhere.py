"""Messages to sessions of other hosts: send, follow, list and cancel them"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remuda.boss.client import BossClient, RemoteBoss
from remuda.duration import show_duration
from remuda.errors import HostUnreachable, InvalidOptions, MessageDead, MessageNotFound, WaitTimeout
from remuda.inbox.catalog import Listed
from remuda.keeper.cancel import Cancelled, Fate
from remuda.untrusted import one_line

from .elsewhere import Document, list_elsewhere, own_host
from .output import complain, echo, print_answer, print_json
from .redraw import ProgressLine

_TIMEOUT = 5.0
_POLL = 30.0


def send_elsewhere(
    host: str,
    name: str,
    prompt: str,
    options: Mapping[str, Any],
    timeout: float | None,
    *,
    wait: bool,
    as_json: bool,
) -> int | None:
    """Send a message to a session of another host, or type into an agent there that has no inbox."""
    if options.get("sender"):
        raise InvalidOptions("--from is for this machine", hint="the hub names the sender itself")
    if (agent := _agent_without_inbox(host, name)) is not None:
        _type_elsewhere(host, agent, prompt, options, wait=wait, as_json=as_json)
        return None
    given = {key: value for key, value in options.items() if value}
    receipt = BossClient(timeout=2 * _POLL).post(
        "fleet", "hosts", host, "sessions", name, "messages", body={"prompt": prompt, "options": given}
    )
    if wait:
        return wait_elsewhere(receipt, timeout, as_json=as_json)
    if as_json:
        print_json(receipt)
    if receipt["stage"] in ("dead", "expired", "dropped"):
        raise _not_answered(receipt)
    if not as_json:
        echo(f"{'sent' if receipt['stage'] == 'sent' else 'accepted'} {receipt['id']}")
    if receipt["stage"] == "sent":
        complain(f"the message is at {receipt['where']}; 'remuda messages {receipt['id']}' follows it")
    return None


def _agent_without_inbox(host: str, word: str) -> str | None:
    """Return the id of an agent in a pane that this word means there. A kept session comes first."""
    sessions = [one["session"] for one in list_elsewhere(lambda _: None) if one["host"] == host]
    if any(one.get("name") == word for one in sessions):
        return None
    meant = [
        str(one["id"])
        for one in sessions
        if not one.get("name")
        and (word in (one.get("pane"), one.get("label")) or (len(word) > 3 and one["id"].startswith(word)))
    ]
    if len(meant) > 1:
        raise InvalidOptions(f"'{word}' means {len(meant)} agents on {host}", hint="use the id of one")
    return meant[0] if meant else None


def _type_elsewhere(
    host: str, agent: str, prompt: str, options: Mapping[str, Any], *, wait: bool, as_json: bool
) -> None:
    given = [name for name, value in options.items() if value and name not in ("command", "literal")]
    if wait or given:
        raise InvalidOptions(f"{'--wait' if wait else given[0]} is for kept sessions", hint="leave it out")
    flags = {name: bool(options.get(name)) for name in ("command", "literal")}
    typed = RemoteBoss(host).post("sessions", agent, "reply", body={"text": prompt, **flags}, timeout=60.0)
    print_json(typed) if as_json else echo(f"{typed['stage']} to {host}/{agent[:8]}")
    if "note" in typed:
        complain(typed["note"])


def find_sent(word: str) -> Document:
    """Return the receipt of a message that was sent from here to another host. Raises `MessageNotFound`."""
    if own_host() is None:
        raise MessageNotFound(f"message '{word}' not found", hint="'remuda messages' lists them")
    receipt: Document = BossClient().get("fleet", "messages", word)
    return receipt


def wait_elsewhere(receipt: Document, timeout: float | None, *, as_json: bool) -> int:
    """Follow a message to its end and print the answer. Raises `MessageDead` and `WaitTimeout`."""
    deadline = None if timeout is None else time.monotonic() + timeout
    boss = BossClient(timeout=_POLL + _TIMEOUT)
    with ProgressLine() as progress:
        while not receipt["ended"]:
            progress.say(f"{receipt['id']}: {receipt['stage']}, at {receipt['where']}")
            left = _POLL if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise WaitTimeout(
                    f"message {receipt['id']} has not ended within "
                    f"{show_duration(timeout or 0.0, precise=True)}; its last step is "
                    f"`{receipt['stage']}`, at {receipt['where']}"
                )
            wait = {"wait": round(min(left, _POLL), 3), "steps": len(receipt["steps"])}
            receipt = boss.get("fleet", "messages", receipt["id"], **wait)
    if as_json:
        print_json(receipt)
    if receipt["stage"] != "acked":
        raise _not_answered(receipt)
    if not as_json:
        print_answer(str((receipt["answer"] or {}).get("text") or ""))
    return 0


def _not_answered(receipt: Document) -> MessageDead:
    why = one_line(str(receipt["steps"][-1].get("reason") or "no reason given"))
    return MessageDead(
        f"message {receipt['id']} was not answered: {receipt['stage']}, {why}",
        hint=f"'remuda messages {receipt['id']}' shows every step",
    )


def listed_messages(host: str, session: str, limit: int) -> tuple[list[Document], list[Listed]]:
    """Return the messages of a session there, oldest first: as JSON, and as lists print them."""
    waiting = BossClient().get("fleet", "hosts", host, "sessions", session, "messages")["messages"]
    try:
        known = RemoteBoss(host).get("sessions", session, "messages", limit=min(limit, 200))["messages"][::-1]
    except HostUnreachable as error:
        complain(f"only messages that were sent from here are listed: {error}")
        known = []
    here = {one["id"] for one in known}
    documents = [*({**one, "host": host, "session": session} for one in known)]
    documents += [one for one in waiting if one["id"] not in here]
    folder = Path(host) / session
    listed = [
        Listed(
            str(one["id"]),
            folder,
            str(one["stage"]),
            float(one.get("sent_at") or one.get("steps", [{}])[0].get("at") or 0.0),
            float(one.get("at") or 0.0),
            reason=str(one.get("reason") or one["steps"][-1].get("reason") or ""),
            prompt=str(one.get("prompt") or ""),
        )
        for one in documents
    ]
    return documents, listed


# ── cancelling ──


def cancel_elsewhere(host: str, session: str, timeout: float, *, everything: bool) -> list[Cancelled]:
    """Interrupt the turn of a session there, or cancel its waiting messages. As `remuda cancel` does here."""
    boss = RemoteBoss(host)
    messages = boss.get("sessions", session, "messages")["messages"]
    waiting = [str(one["id"]) for one in messages if not one["ended"]][::-1]

    def cancel(message: str) -> Cancelled:
        return _outcome(boss.post("sessions", session, "messages", message, "cancel", timeout=timeout))

    done = [cancel(one) for one in reversed(waiting)][::-1] if everything else []
    stopped = boss.post("sessions", session, "interrupt", timeout=timeout)
    if stopped["outcome"] != "nothing":
        return [*done, _outcome(stopped)]
    if everything or not waiting:
        return done
    if len(waiting) > 1:
        raise InvalidOptions(
            f"no turn is running, and {len(waiting)} messages are waiting", hint="pass --all to cancel all"
        )
    return [cancel(waiting[0])]


def cancel_sent(receipt: Document, timeout: float) -> Cancelled:
    """Cancel a message that was sent from here. One that only the hub has cannot be taken back."""
    if receipt["ended"]:
        return Cancelled(Fate.ANSWERED if receipt["stage"] == "acked" else Fate.ENDED, receipt["id"])
    if receipt["stage"] == "sent":
        raise HostUnreachable(
            f"message {receipt['id']} is at {receipt['where']}, and cannot be cancelled there",
            hint=f"try again when {receipt['host']} is back; it expires after 5 days, or its --ttl",
        )
    way = ("sessions", receipt["session"], "messages", receipt["id"], "cancel")
    return _outcome(RemoteBoss(receipt["host"]).post(*way, timeout=timeout))


def _outcome(document: Document) -> Cancelled:
    return Cancelled(Fate(document["outcome"]), document["id"], str(document["reason"]))
