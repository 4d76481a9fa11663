"""remuda inbox, and its commands that inspect and repair an inbox; remuda stop-hook"""

from __future__ import annotations

import sys
import time
from calendar import timegm
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from remuda.duration import show_duration
from remuda.errors import InboxBusy, InvalidOptions
from remuda.frozen import fields_of
from remuda.inbox import stop_hook
from remuda.inbox.journal import Inbox, translated_errors
from remuda.inbox.locks import find_consumer
from remuda.inbox.message import find_letter
from remuda.inbox.stop_hook import Entry, Lock, Queue, number

from . import inbox_feed
from .click_types import OrderedGroup
from .common import check_alone, format_option, json_option, print_formatted, short_path
from .inbox_target import InboxTarget, find_target, first_line, inbox_argument, inbox_options, with_word
from .output import complain, echo, print_fields, print_json, print_lines, print_table, style

if TYPE_CHECKING:
    from remuda.inbox.stop_hook import Policy


@click.group("inbox", cls=OrderedGroup, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Put messages into an inbox, list those that are waiting, and handle dead letters.

    Each command takes the name of a session, or any folder with --inbox.

    \b
    Examples:
      remuda inbox put work "look at the failing tests"
      remuda inbox status work
      remuda inbox dead work
    """
    if ctx.invoked_subcommand is None:
        print_lines(ctx.get_help().splitlines())


command.add_command(inbox_feed.put_command)


# ── remuda inbox ls, status and dead ──


_HEAD = ("ID", "AGE", "DUE", "ATTEMPT", "TEXT")
_DEAD_HEAD = ("ID", "AGE", "REASON", "TEXT")


@command.command("ls", short_help="List waiting messages, in order.")
@inbox_argument
@inbox_options
@format_option("{id} {due_in}")
@json_option
def ls(name: str | None, path: Path | None, folder: Path | None, template: str | None, as_json: bool) -> None:
    """List the messages that have not ended: first the one in flight, then the waiting ones in order.

    \b
    Examples:
      remuda inbox ls work
      remuda inbox ls work --format '{id} {due_in}'
      remuda inbox ls work --json | jq -r '.[] | select(.in_flight) | .prompt'
      remuda inbox ls --inbox ~/agent/inbox.jsonl
    """
    check_alone(template, json=as_json)
    target = find_target(name, path, folder)
    messages = list_messages(target)
    if as_json:
        print_json(messages)
    elif template is not None:
        print_formatted(template, messages)
    elif messages:
        print_table(_HEAD, [_row(message) for message in messages])
    else:
        echo(f"no messages; put one with: remuda inbox put {target.words} TEXT")


def list_messages(target: InboxTarget) -> list[dict[str, Any]]:
    inbox = target.existing()
    flight = inbox.overview().in_flight
    entries = inbox.waiting()
    with translated_errors(), Lock(target.files):
        queue = Queue(target.files)
        queue.load(None)
    messages = [_message(entry, queue) for entry in entries]
    if flight is None:
        return messages
    first = [one for one in messages if one["id"] == flight.get("id")]
    for one in first:
        one |= {"in_flight": True, "attempt": int(number(flight.get("attempt"))) or 1}
    return first + [one for one in messages if not one["in_flight"]]


def _message(entry: Entry, queue: Queue) -> dict[str, Any]:
    fields, held = entry.fields, queue.find(entry.start)
    wait = entry.wait(queue.clock) if held is None else queue.wait(held, queue.clock())
    return {
        "id": entry.id,
        "in_flight": False,
        "broken": bool(entry.broken),
        "at": fields.get("at"),
        "due_in": round(max(0.0, wait), 3),
        "expires": fields.get("expires"),
        "attempt": int(number((held or {}).get("attempt"))) or 1,
        "from": fields.get("from"),
        "dedup": fields.get("dedup"),
        "prompt": entry.text,
    }


def _row(message: dict[str, Any]) -> tuple[str, ...]:
    now = time.time()
    return (
        message["id"],
        show_duration(now - number(message["at"])) if message["at"] else "-",
        _due(message),
        str(message["attempt"]),
        first_line(message["prompt"]),
    )


def _due(message: dict[str, Any]) -> str:
    if message["in_flight"]:
        return style("in flight", fg="cyan")
    if message["broken"]:
        return style("never", fg="red")  # cut short by a full disk; its sender got an error
    return f"in {show_duration(message['due_in'])}" if message["due_in"] else "now"


@command.command("status", short_help="Show how many messages are waiting.")
@inbox_argument
@inbox_options
@json_option
def status(name: str | None, path: Path | None, folder: Path | None, as_json: bool) -> None:
    """Show how many messages are waiting, which one is in flight, and how old the oldest is.

    \b
    Examples:
      remuda inbox status work
      remuda inbox status work --json | jq .waiting
    """
    target = find_target(name, path, folder)
    overview = fields_of(target.existing().overview())
    if overview["in_flight"]:
        overview["in_flight"].pop("flight", None)  # the complete line; 'ls' shows it
    if as_json:
        print_json({"inbox": str(target.folder), **overview})
        return
    print_fields(_status_lines(target, overview))


def _status_lines(target: InboxTarget, overview: dict[str, Any]) -> list[tuple[str, str]]:
    where = short_path(str(target.folder))
    lines = [("inbox", f"{where} ('{target.session}' is not running)" if target.alive is False else where)]
    delayed = f", {overview['delayed']} of them delayed" if overview["delayed"] else ""
    lines.append(("waiting", f"{overview['waiting']}{delayed}"))
    if flight := overview["in_flight"]:
        since = number(flight.get("at")) or _moment(flight.get("since"))
        duration = f" for {show_duration(time.time() - since)}" if since else ""
        attempt = int(number(flight.get("attempt"))) or 1
        lines.append(("in flight", f"{flight.get('id') or 'a line'}{duration}, attempt {attempt}"))
    if overview["oldest_age"] is not None:
        lines.append(("oldest", show_duration(overview["oldest_age"])))
    if overview["dead"]:
        lines.append(("dead", f"{overview['dead']}; 'remuda inbox dead {target.words}' shows why"))
    return lines


def _moment(stamp: object) -> float:
    try:
        return float(timegm(time.strptime(str(stamp), "%Y-%m-%dT%H:%M:%SZ")))
    except ValueError:
        return 0.0


# ── dead letters ──


@command.command("dead", short_help="List dead letters, or show one.")
@inbox_argument
@click.argument("letter_id", metavar="[ID]", required=False)
@inbox_options
@json_option
def dead(
    name: str | None, letter_id: str | None, path: Path | None, folder: Path | None, as_json: bool
) -> None:
    """List dead letters (messages that failed for good) and why they failed. With an ID, show one in full.

    The beginning of an ID is enough. 'remuda inbox redrive' puts them back into the inbox.

    \b
    Examples:
      remuda inbox dead work
      remuda inbox dead work m19a8c27f3b1-0d4be1f6a2
      remuda inbox dead work --json | jq -r '.[].reason'
    """
    name, letter_id = with_word(name, letter_id, path)
    target = find_target(name, path, folder)
    letters = list_dead(target.existing())
    if letter_id is not None:
        letter = find_letter(letters, letter_id, lambda one: {str(one["id"]), str(one["entry_id"])})
        _show_letter(letter, as_json=as_json)
    elif as_json:
        print_json(letters)
    elif letters:
        print_table(_DEAD_HEAD, [_dead_row(letter) for letter in letters])
    else:
        echo("no dead letters")


def list_dead(inbox: Inbox) -> list[dict[str, Any]]:
    return [_letter(document, inbox.entry_of(document)) for document in inbox.dead_letters()]


def _letter(document: dict[str, Any], entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "entry_id": document.get("entry_id"),
        "reason": document.get("reason"),
        "at": _moment(document.get("delivered_at")) or None,
        "from": entry.fields.get("from"),
        "prompt": entry.text,
    }


def _dead_row(letter: dict[str, Any]) -> tuple[str, ...]:
    age = show_duration(time.time() - letter["at"]) if letter["at"] else "-"
    return letter["id"], age, str(letter["reason"] or "-"), first_line(letter["prompt"])


def _show_letter(letter: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(letter)
        return
    print_fields((label, str(letter[label])) for label in ("id", "reason", "from") if letter[label])
    if letter["at"]:
        print_fields([("delivered", f"{show_duration(time.time() - letter['at'])} ago")])
    echo(f"\n{letter['prompt']}")


# ── remuda inbox recover, redrive and compact ──


_OUTCOMES = {
    "NothingToRecover": "nothing to recover: no message was in flight",
    "StaleOrphanDeleted": "nothing to recover: the message in flight had been answered",
    "ReQueued": "the message is waiting again",
    "DeadLettered": "the message is a dead letter now",
    "Dropped": "the message was dropped",
}


@command.command("recover", short_help="Recover the message of an agent that died.")
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
        # While the keeper holds the inbox, --force is refused too.
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


@command.command("redrive", short_help="Put dead letters back into the inbox.")
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


@command.command("compact", short_help="Free the disk space of messages that are done.")
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
    freed = target.existing().compact()
    if as_json:
        print_json(fields_of(freed))
        return
    if freed.note:
        complain(freed.note)
    echo(f"freed {freed.inbox + freed.receipts + freed.outbox + freed.dedup} bytes")


command.add_command(inbox_feed.serve_command)


# ── remuda stop-hook ──


@click.command(
    "stop-hook",
    help="\n\n".join(f"\b\n{paragraph}" for paragraph in stop_hook.HELP.split("\n\n")),
    options_metavar="[recover] --inbox FILE",
    context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS]")
def stop_hook_command(words: tuple[str, ...]) -> int:
    return run_words(list(words))


def run_words(words: list[str]) -> int:
    """Run the program of `inbox/stop_hook.py` on these words and return its exit code."""
    sys.argv = ["remuda stop-hook", *words]
    try:
        stop_hook.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0
