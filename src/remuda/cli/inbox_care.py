"""remuda inbox recover, redrive and compact"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from remuda.errors import InboxBusy, InvalidOptions
from remuda.inbox.locks import find_consumer

from .common import json_option
from .inbox_target import find_target, inbox_argument, inbox_options, with_word
from .output import complain, echo, print_json

if TYPE_CHECKING:
    from remuda.inbox.stop_hook import Policy

_OUTCOMES = {
    "NothingToRecover": "nothing to recover: no message was in flight",
    "StaleOrphanDeleted": "nothing to recover: the message in flight had been answered",
    "ReQueued": "the message is waiting again",
    "DeadLettered": "the message is a dead letter now",
    "Dropped": "the message was dropped",
}


@click.command("recover", short_help="Recover the message of an agent that died.")
@inbox_argument
@click.option(
    "--on-orphan",
    "policy",
    type=click.Choice(["retry", "deadletter", "drop"]),
    default="deadletter",
    show_default=True,
    help="What to do with a message that was in flight.",
)
@click.option("--force", is_flag=True, help="Also while the session is running.")
@inbox_options
@json_option
def recover(
    name: str | None, policy: str, force: bool, path: Path | None, folder: Path | None, as_json: bool
) -> None:
    """Recover the message that was in flight when its agent died.

    'retry' delivers it again and may run it twice. 'drop' may lose it. 'deadletter' keeps it as a dead letter
    for you to decide on ('remuda inbox dead').

    \b
    Examples:
      remuda inbox recover work
      remuda inbox recover --inbox ~/agent/inbox.jsonl --on-orphan retry
    """
    target = find_target(name, path, folder)
    if target.alive and not force:
        # While its keeper has the inbox, --force is refused too.
        forced = "" if find_consumer(target.folder) else ", or pass --force"
        raise InboxBusy(
            f"session '{target.session}' is running, and may still work on the message",
            hint=f"run 'remuda kill {target.session}' first{forced}",
        )
    outcome, notices = target.existing().recover(cast("Policy", policy))
    for notice in notices:
        complain(notice)
    if as_json:
        print_json({"outcome": outcome})
    else:
        echo(_OUTCOMES[outcome])


@click.command("redrive", short_help="Put dead letters back into the inbox.")
@inbox_argument
@click.argument("letter_id", metavar="[ID]", required=False)
@click.option("--all", "everything", is_flag=True, help="Put back all dead letters.")
@inbox_options
@json_option
def redrive(
    name: str | None,
    letter_id: str | None,
    everything: bool,
    path: Path | None,
    folder: Path | None,
    as_json: bool,
) -> None:
    """Put dead letters back into the inbox, as new messages at the end.

    \b
    Examples:
      remuda inbox redrive work m19a8c27f3b1-0d4be1f6a2
      remuda inbox redrive work --all
    """
    name, letter_id = with_word(name, letter_id, path)
    target = find_target(name, path, folder)
    if (letter_id is None) == (not everything):
        raise InvalidOptions("give either the ID of a dead letter or --all")
    ids = target.existing().redrive(letter_id)
    if as_json:
        print_json(ids)
        return
    for one in ids:
        echo(f"accepted {one}")
    if not ids:
        echo("no dead letters")


@click.command("compact", short_help="Free the disk space of messages that are done.")
@inbox_argument
@inbox_options
@json_option
def compact(name: str | None, path: Path | None, folder: Path | None, as_json: bool) -> None:
    """Free the disk space of acknowledged messages, and of old receipts and answers.

    This also happens by itself as an inbox grows. The file keeps its length, so that other programs can keep
    appending to it. The freed part is a hole in the file: 'du' shows the difference, 'ls -l' does not.

    \b
    Example:
      remuda inbox compact work
    """
    target = find_target(name, path, folder)
    given = target.existing().compact()
    if as_json:
        print_json(asdict(given))
        return
    if given.note:
        complain(given.note)
    echo(f"freed {given.inbox + given.receipts + given.outbox + given.dedup} bytes")
