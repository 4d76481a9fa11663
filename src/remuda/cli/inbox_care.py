"""remuda inbox recover, redrive and compact"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from remuda.errors import InboxBusy, InvalidOptions
from remuda.inbox.consumer_lock import holder

from .common import complain, json_option, print_json
from .inbox_target import find_target, inbox_argument, inbox_options, with_word

if TYPE_CHECKING:
    from remuda.inbox.stop_hook import Policy

_OUTCOMES = {
    "NothingToRecover": "nothing was in flight",
    "StaleOrphanDeleted": "what was in flight had been answered",
    "ReQueued": "it waits again",
    "DeadLettered": "it is a dead letter now",
    "Dropped": "it was dropped",
}


@click.command("recover", short_help="Decide on a message whose agent died.")
@inbox_argument
@click.option(
    "--on-orphan",
    "policy",
    type=click.Choice(["retry", "deadletter", "drop"]),
    default="deadletter",
    show_default=True,
    help="What becomes of a message that was in flight.",
)
@click.option("--force", is_flag=True, help="Also while the session runs, and may still be at it.")
@inbox_options
@json_option
def recover(
    name: str | None, policy: str, force: bool, path: Path | None, folder: Path | None, as_json: bool
) -> None:
    """Decide on the message that was in flight when its agent died.

    'retry' may run it twice, 'drop' may lose it, 'deadletter' leaves it to you: see 'remuda inbox dead'.

    \b
    Examples:
      remuda inbox recover work
      remuda inbox recover --inbox ~/agent/inbox.jsonl --on-orphan retry
    """
    target = find_target(name, path, folder)
    if target.alive and not force:
        # While its keeper has the inbox, --force is refused too.
        forced = "" if holder(target.folder) else ", or --force"
        raise InboxBusy(
            f"session '{target.session}' is running, and may still be at it",
            hint=f"'remuda kill {target.session}' first{forced}",
        )
    outcome, notices = target.existing().recover(cast("Policy", policy))
    for notice in notices:
        complain(notice)
    if as_json:
        print_json({"outcome": outcome})
    else:
        click.echo(_OUTCOMES[outcome])


@click.command("redrive", short_help="Put dead letters back into the inbox.")
@inbox_argument
@click.argument("letter_id", metavar="[ID]", required=False)
@click.option("--all", "everything", is_flag=True, help="Every dead letter.")
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
    """Put dead letters back into the inbox, as new messages at its end.

    \b
    Examples:
      remuda inbox redrive work m19a8c27f3b1-0d4be1f6a2
      remuda inbox redrive work --all
    """
    name, letter_id = with_word(name, letter_id, path)
    target = find_target(name, path, folder)
    if (letter_id is None) == (not everything):
        raise InvalidOptions("give the ID of a dead letter, or --all")
    ids = target.existing().redrive(letter_id)
    if as_json:
        print_json(ids)
        return
    for one in ids:
        click.echo(f"accepted {one}")
    if not ids:
        click.echo("no dead letters")


@click.command("compact", short_help="Give the disk back what is done.")
@inbox_argument
@inbox_options
@json_option
def compact(name: str | None, path: Path | None, folder: Path | None, as_json: bool) -> None:
    """Give the disk back what is done: acknowledged messages, and receipts and answers that are old.

    It is done by itself as an inbox grows. The file keeps its length and its place, so that whoever appends
    to it can go on: what was given back is a hole in it ('du' shows it, 'ls -l' does not).

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
    click.echo(f"gave back {given.inbox + given.receipts + given.outbox + given.dedup} bytes")
