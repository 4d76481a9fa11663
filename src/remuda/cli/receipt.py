"""remuda receipt and remuda wait: how far a message got"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import click

from remuda.boss.elsewhere import find_sent
from remuda.duration import show_duration
from remuda.errors import BossDown, MessageDead, MessageNotFound, RemudaError, WaitTimeout
from remuda.inbox.catalog import find_by_prefix, find_last, list_messages
from remuda.inbox.journal import Inbox
from remuda.inbox.receipts import Trace, follow
from remuda.inbox.stop_hook import number
from remuda.keeper.cancel import wait_for_rest
from remuda.keeper.claim import read_holder
from remuda.keeper.client import KeeperClient, check_delivers, dead_hint
from remuda.keeper.elsewhere import split_host
from remuda.keeper.record import SessionRecord
from remuda.paths import SessionPaths

from .common import folder_option, json_option, time_span
from .inbox_target import InboxTarget, complete_any, find_what, inbox_folders, session_of
from .messages_elsewhere import wait_elsewhere, wait_for_rest_elsewhere
from .output import complain, echo, flat, print_answer, print_json, style
from .redraw import ProgressLine

STAGE_COLOURS = {"acked": "green", "dead": "red", "expired": "red", "dropped": "red", "nacked": "yellow"}
_HIDDEN = (
    "id",
    "stage",
    "at",
    "attempt",
    "reported",
    "reported_characters",
    "usage",
    "due",
    "expires",
    "lease",
)
_UNDELIVERED = ("accepted", "nacked")
_WAITS = {
    "accepted": "waiting until the agent is ready for it",
    "written": "typed; waiting until the agent takes it",
    "submitted": "the agent is working on it",
    "recorded": "the agent is working on it",
    "nacked": "it failed; waiting for the next attempt",
    "requeued": "waiting for the next attempt",
}
"""What a message waits for after each step."""
_IDS = ("session_id", "transcript_path", "transcript_bytes", "prompt_id")


@click.command("receipt")
@click.argument("what", metavar="[ID|NAME]", required=False, shell_complete=complete_any)
@click.option(
    "--inbox", "path", type=click.Path(path_type=Path), help="Search this inbox, not those of sessions."
)
@folder_option
@json_option
def command(what: str | None, path: Path | None, folder: Path | None, as_json: bool) -> None:
    """Show the receipt of a message: every step it took, and the answer.

    ID is the id of a message, or the beginning of it. With the NAME of a session, show its last message; with
    neither, the last of all. HOST/NAME is a session on another machine of your fleet.

    The steps are accepted (on disk), written (typed, or passed as argument), submitted (the agent confirmed
    it), recorded (in the transcript), ended, acked. A failed attempt is nacked; then the message is tried
    again, or dead with the reason.

    \b
    Examples:
      remuda receipt
      remuda receipt work
      remuda receipt m19a8c27f3b1-0d4be1f6a2 --json | jq -r .answer.text
    """
    receipt = find_any_message(what, path, folder)
    if isinstance(receipt, Trace):
        print_receipt(receipt, what, as_json=as_json)
    else:
        print_sent(receipt, as_json=as_json)


def find_any_message(what: str | None, path: Path | None, folder: Path | None) -> Trace | dict[str, Any]:
    """Return a message here, or the receipt of one of another host."""
    host, what = split_host(what) if what and path is None and folder is None else (None, what)
    if host is not None:
        from remuda.boss.session_elsewhere import SessionElsewhere

        return SessionElsewhere(f"{host}/{what}").last_receipt()
    try:
        return find_message(what, path, folder)
    except MessageNotFound:
        if (sent := sent_elsewhere(what, path, folder)) is None:
            raise
        return sent


def sent_elsewhere(what: str | None, path: Path | None, folder: Path | None) -> dict[str, Any] | None:
    """Return the receipt of a message that was sent to another host; None if there is none."""
    if what is None or path is not None or folder is not None:
        return None
    try:
        return find_sent(what)
    except (MessageNotFound, BossDown):
        return None


def print_sent(receipt: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(receipt)
        return
    echo(f"{style(receipt['id'], bold=True)} to {receipt['host']}/{receipt['session']}")
    show_trace(Trace(receipt["id"], Path(), tuple(receipt["steps"]), receipt["answer"]))
    if not receipt["ended"]:
        echo(f"it is at {receipt['where']}")


def print_receipt(trace: Trace, what: str | None, *, as_json: bool) -> None:
    """`what`: the word of the user. A complete id is not printed again."""
    why = why_held(session_of(trace.folder)) if trace.stage in _UNDELIVERED else ""
    if as_json:
        print_json(trace.document() | ({"held": why} if why else {}))
        return
    if what != trace.id:
        echo(style(trace.id, bold=True))
    show_trace(trace)
    if why:
        echo(f"it waits: {flat(why)}")


def find_message(what: str | None, path: Path | None, folder: Path | None) -> Trace:
    """Find a message by the beginning of its id; the last one of a session, or of all."""
    if what is None:
        return find_last(inbox_folders(path, folder))
    target = find_what(what, path, folder)
    return target if isinstance(target, Trace) else find_last([target.folder])


def show_trace(trace: Trace) -> None:
    for step in trace.steps:
        stage = str(step["stage"])
        at = number(step.get("at"))
        age = f"{show_duration(time.time() - at):>7} ago" if at else " " * 11
        echo(f"{style(f'{stage:<10}', fg=STAGE_COLOURS.get(stage))} {age}  {flat(_facts(step))}".rstrip())
    if trace.answer is not None and trace.answer.get("text"):
        echo(f"\n{trace.answer['text']}")


def _facts(step: dict[str, Any]) -> str:
    facts = [f"attempt {step['attempt']}"] if number(step.get("attempt")) > 1 else []
    if due := number(step.get("due")):
        facts.append(f"next attempt in {show_duration(max(0.0, due - time.time()))}")
    facts += [
        f"{key}={value}"
        for key, value in step.items()
        if key not in (*_HIDDEN, *_IDS) and value not in (None, "")
    ]
    return ", ".join(facts)


def held(inbox: Path) -> str:
    """Return why a message for an ended session waits, and what to do."""
    session = SessionPaths(inbox.parent, inbox.name.removesuffix(".inbox"))
    record = SessionRecord.load(session.record)
    hint = dead_hint(record) if record is not None else f"'remuda start {session.name}' begins a new one"
    return f"the message waits: session '{session.name}' has ended; {hint}"


def why_held(session: SessionPaths | None) -> str:
    """Return why the keeper of a session delivers nothing now; empty if it does, or has ended."""
    if session is None or read_holder(session) is None:
        return ""
    try:
        with KeeperClient.connect(session.name, session.folder, read_only=True) as client:
            return str((client.describe().get("delivery") or {}).get("held") or "")
    except (RemudaError, EOFError, OSError):
        return ""


class _WaitReporter:
    """While the user waits for a message: prints why it is not delivered, and expires it in time."""

    def __init__(self, folder: Path, progress: ProgressLine) -> None:
        self._folder = folder
        self._progress = progress
        self._session = session_of(folder)
        self._reported = False
        self.why = ""
        """Why it was not delivered yet, if the keeper reports it."""

    def __call__(self, trace: Trace) -> None:
        self.why = why_held(self._session) if trace.stage in _UNDELIVERED else ""
        self._progress.say(f"{trace.id}: {self.why or _WAITS.get(trace.stage, trace.stage)}")
        if self._session is not None:
            check_delivers(self._session, trace.id)
            gone = read_holder(self._session) is None
            if gone and not self._reported:
                self._progress.tell(held(self._folder))
            self._reported = gone  # printed again if the session came back and ended again
        expires = number(trace.steps[0].get("expires"))
        if expires and time.time() >= expires:
            with contextlib.suppress(OSError, RemudaError):  # we may not be allowed to change it
                Inbox(self._folder).expire(trace.id)


def wait_for_end(message: str, folders: list[Path], timeout: float | None, *, as_json: bool) -> int:
    """Follow a message to its end and print the answer. Raises `MessageDead` and `WaitTimeout`."""
    trace = find_by_prefix(message, folders)
    folder, message = trace.folder, trace.id
    reporter = None
    try:
        with ProgressLine() as progress:
            reporter = _WaitReporter(folder, progress)
            for trace in follow(folder, message, timeout, reporter):
                progress.say(f"{message}: {_WAITS.get(trace.stage, trace.stage)}")
    except WaitTimeout as error:
        if reporter is None or not reporter.why:
            raise
        raise WaitTimeout(f"{error.message}: {reporter.why}", hint=error.hint) from None
    except KeyboardInterrupt:
        has_it = trace.stage in ("written", "submitted", "recorded")
        complain(
            f"the agent still works on message {message}; 'remuda cancel {message}' interrupts it"
            if has_it
            else f"message {message} stays in the inbox; 'remuda cancel {message}' cancels it"
        )
        raise
    if as_json:
        print_json(trace.document())
    if trace.stage != "acked":
        raise MessageDead(
            f"message {message} was not answered: {trace.stage}, {trace.reason or 'no reason given'}",
            hint=f"'remuda receipt {message}' shows every step",
        )
    if not as_json:
        print_answer(str((trace.answer or {}).get("text") or ""))
    return 0


# ── remuda wait ──


@click.command("wait")
@click.argument("what", metavar="NAME|ID", shell_complete=complete_any)
@click.option("--timeout", type=time_span, metavar="TIME", help="Stop waiting after TIME (90, 45m, 2h30m).")
@click.option("--inbox", "path", type=click.Path(path_type=Path), help="Search this inbox for the message.")
@folder_option
@json_option
def wait_command(
    what: str, timeout: float | None, path: Path | None, folder: Path | None, as_json: bool
) -> int:
    """Wait until a message has ended, and print the answer; or until a session is idle and its inbox empty.

    The beginning of a NAME or an ID is enough. If the message has ended already, wait returns at once.
    HOST/NAME is a session on another machine of your fleet.

    \b
    Examples:
      remuda wait work --timeout 10m
      remuda wait m19a8c27f3b1-0d4be1f6a2
    """
    host, what = split_host(what) if path is None and folder is None else (None, what)
    if host is not None:
        return wait_for_rest_elsewhere(host, what, timeout, as_json=as_json)
    try:
        target = find_what(what, path, folder)
    except MessageNotFound:
        if (sent := sent_elsewhere(what, path, folder)) is None:
            raise
        return wait_elsewhere(sent, timeout, as_json=as_json)
    return wait_for(target, timeout, as_json=as_json)


def wait_for(target: InboxTarget | Trace, timeout: float | None, *, as_json: bool) -> int:
    """Wait for the end of a message, or until a session is idle and its inbox is empty."""
    if isinstance(target, Trace):
        return wait_for_end(target.id, [target.folder], timeout, as_json=as_json)
    document = _wait_until_idle(target, timeout)
    if as_json:
        print_json(document)
    else:
        echo(str(document["state"]))
    return 0


def wait_for_answer(target: InboxTarget | Trace, timeout: float | None, *, as_json: bool) -> int:
    """Wait as `wait_for`, and print the answer; of a session, that of the message that ended last.

    Raises `MessageDead`.
    """
    if isinstance(target, Trace):
        return wait_for_end(target.id, [target.folder], timeout, as_json=as_json)
    _wait_until_idle(target, timeout)
    ended = [one for one in list_messages(target.folder) if one.ended]
    if not ended:
        raise MessageNotFound(
            f"no message of '{target.session}' has ended; it is idle",
            hint=f"'remuda messages {target.session}' lists those that wait",
        )
    return wait_for_end(max(ended, key=lambda one: one.at).id, [target.folder], timeout, as_json=as_json)


def _wait_until_idle(target: InboxTarget, timeout: float | None) -> dict[str, Any]:
    assert target.session is not None
    name = target.session
    with ProgressLine() as progress:
        return wait_for_rest(
            name,
            target.folder.parent,
            timeout,
            lambda why: progress.say(f"waiting until '{name}' is idle and its inbox empty; now {why}"),
        )
