"""Messages to sessions of other hosts: send, follow, list and cancel them"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remuda.boss.client import BossClient, RemoteBoss
from remuda.boss.elsewhere import cancel_message, follow, interrupt, not_answered, send
from remuda.errors import HostUnreachable, InvalidOptions
from remuda.inbox.catalog import Listed
from remuda.keeper.cancel import Cancelled

from .elsewhere import list_elsewhere
from .output import complain, echo, print_answer, print_json
from .redraw import ProgressLine

if TYPE_CHECKING:
    from .elsewhere import Document


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
    receipt = send(host, name, prompt, given)
    if wait:
        return wait_elsewhere(receipt, timeout, as_json=as_json)
    if as_json:
        print_json(receipt)
    if receipt["stage"] in ("dead", "expired", "dropped"):
        raise not_answered(receipt)
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


def wait_elsewhere(receipt: Document, timeout: float | None, *, as_json: bool) -> int:
    """Follow a message to its end and print the answer. Raises `MessageDead` and `WaitTimeout`."""
    with ProgressLine() as progress:
        last = receipt
        for last in follow(receipt, timeout):
            progress.say(f"{last['id']}: {last['stage']}, at {last['where']}")
    if as_json:
        print_json(last)
    if last["stage"] != "acked":
        raise not_answered(last)
    if not as_json:
        print_answer(str((last["answer"] or {}).get("text") or ""))
    return 0


def wait_for_rest_elsewhere(
    host: str, name: str, timeout: float | None, *, as_json: bool, answer: bool = False
) -> int:
    """Wait until a session there is idle and its inbox empty; with `answer`, print its last answer then."""
    from remuda.boss.session_elsewhere import SessionElsewhere

    where = f"{host}/{name}"
    session = SessionElsewhere(where)
    with ProgressLine() as progress:
        document = session.wait_for_rest(
            timeout,
            lambda why: progress.say(f"waiting until '{where}' is idle and its inbox empty; now {why}"),
        )
    if answer:
        return wait_elsewhere(session.last_receipt(ended=True), None, as_json=as_json)
    print_json(document) if as_json else echo(str(document["state"]))
    return 0


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
        return cancel_message(boss, session, message, timeout)

    done = [cancel(one) for one in reversed(waiting)][::-1] if everything else []
    if (stopped := interrupt(boss, session, timeout)) is not None:
        return [*done, stopped]
    if everything or not waiting:
        return done
    if len(waiting) > 1:
        raise InvalidOptions(
            f"no turn is running, and {len(waiting)} messages are waiting", hint="pass --all to cancel all"
        )
    return [cancel(waiting[0])]
