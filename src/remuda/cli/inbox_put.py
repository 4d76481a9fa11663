"""remuda inbox put"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click

from remuda.errors import InputError, InvalidOptions
from remuda.inbox.inject import MAX_ATTEMPTS, without_line_end
from remuda.inbox.journal import Accepted, Inbox
from remuda.inbox.message import DEFAULT_MAX_BYTES

from .common import complain, json_option, print_json, time_span
from .inbox_target import (
    Target,
    find_target,
    inbox_argument,
    inbox_options,
    with_word,
)
from .sendable import check_agent, check_sendable


def key(text: str) -> str:
    """The type of an option that takes a name: an empty one is a variable that was not set."""
    if not text:
        raise click.BadParameter("it is empty")
    return text


def lifetime(text: str) -> float:
    """The type of an option that takes a time to live."""
    given = time_span(text)
    if not given:
        raise click.BadParameter("nothing can be delivered in no time")
    return given


max_bytes_option = click.option(
    "--max-bytes",
    type=click.IntRange(min=1),
    default=DEFAULT_MAX_BYTES,
    show_default=True,
    help="A larger prompt is refused.",
)


@click.command("put", short_help="Put a message into an inbox, safely on the disk.")
@inbox_argument
@click.argument("text", required=False, metavar="[TEXT|-]")
@click.option("--delay", type=time_span, metavar="TIME", help="Not before so long: 90, 45m, 2h30m.")
@click.option("--ttl", type=lifetime, metavar="TIME", help="Not after so long; the sender is told.")
@click.option("--dedup", type=key, metavar="KEY", help="At most one message of this key in a day.")
@click.option("--from", "sender", type=key, metavar="WHO", help="Who sends it; told when it bounces.")
@click.option(
    "--max-attempts",
    type=click.IntRange(1, MAX_ATTEMPTS),
    metavar="N",
    help="Then it is a dead letter.  [default: 10]",
)
@click.option(
    "--command", "command_", is_flag=True, help="TEXT is a command of the agent's, such as /compact."
)
@click.option("--literal", is_flag=True, help="An @file in it stays text.")
@click.option("--lines", is_flag=True, help="Each line of standard input is a message, as it comes.")
@max_bytes_option
@inbox_options
@json_option
def command(
    name: str | None,
    text: str | None,
    path: Path | None,
    folder: Path | None,
    lines: bool,
    max_bytes: int,
    as_json: bool,
    command_: bool,
    **given: Any,
) -> int:
    """Put a message into an inbox. It is on the disk when 'accepted ID' is printed.

    TEXT is the prompt; '-', or nothing, reads it from standard input, without the newline at its end.
    For a session that has ended it is kept until the session is back.

    \b
    Examples:
      remuda inbox put work "look at the failing tests"
      git log -p -1 | remuda inbox put work -
      remuda inbox put work "stand-up notes, please" --delay 2h30m --dedup standup-monday
      tail -F app.log | grep --line-buffered ERROR | remuda inbox put work --lines --ttl 1h
      remuda inbox put --inbox ~/agent/inbox.jsonl "any folder will do"
    """
    name, text = with_word(name, text, path)
    target = find_target(name, path, folder)
    options = {key: value for key, value in {**given, "command": command_}.items() if value}
    check_agent(target)
    if lines:
        _check_lines(text, options)
        return _put_lines(target, max_bytes, options, as_json=as_json)
    prompt = text if text not in (None, "-") else read_prompt(max_bytes, asked=text == "-")
    accepted = _put(target, target.inbox(max_bytes), prompt, options)
    if as_json:
        print_json(_document(accepted, target))
    else:
        click.echo(_told(accepted, target))
    return 0


def _put(target: Target, inbox: Inbox, prompt: str, options: dict[str, Any]) -> Accepted:
    check_sendable(
        target, prompt, command=options.get("command", False), literal=options.get("literal", False)
    )
    return inbox.put(prompt, **options)


def _told(accepted: Accepted, target: Target) -> str:
    said = f"accepted {accepted.id}"
    if accepted.duplicate:
        return f"{said} (duplicate: its dedup key was accepted before)"
    return f"{said} (kept: '{target.session}' is not running)" if target.alive is False else said


def _document(accepted: Accepted, target: Target) -> dict[str, Any]:
    return {"id": accepted.id, "duplicate": accepted.duplicate, "alive": target.alive}


# ── standard input ──


def _stdin() -> BinaryIO:
    if sys.stdin is None:
        raise InputError("standard input is closed", hint="give the prompt as TEXT")
    return sys.stdin.buffer


def read_prompt(max_bytes: int, *, asked: bool) -> str:
    source = _stdin()
    if not asked and sys.stdin.isatty():
        raise InputError("there is no prompt", hint="give it as TEXT, or pipe it in; '-' reads the terminal")
    data = source.read(max_bytes + 2)
    if len(data) > max_bytes + 1:
        raise InputError(
            f"the prompt has more than {max_bytes} bytes", hint="put it into a file and name that"
        )
    return without_line_end(_decoded(data, "standard input"))


def _decoded(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{what} is not valid UTF-8 (byte {error.start})", hint="convert it, for example with iconv"
        ) from None


def _check_lines(text: str | None, options: dict[str, Any]) -> None:
    if text not in (None, "-"):
        raise InvalidOptions("both TEXT and --lines were given", hint="--lines reads standard input")
    if "dedup" in options:
        raise InvalidOptions("--dedup with --lines would keep the first line alone", hint="leave it out")


def _put_lines(target: Target, max_bytes: int, options: dict[str, Any], *, as_json: bool) -> int:
    """A line that cannot be a prompt is told and skipped; a disk that refuses ends it."""
    inbox, code = target.inbox(max_bytes), 0
    for number, data in _numbered_lines(max_bytes):
        try:
            accepted = _put_line(target, inbox, data, max_bytes, options)
        except InputError as error:
            complain(f"line {number}: {error}")
            code = error.exit_code
        else:
            click.echo(json.dumps(_document(accepted, target)) if as_json else _told(accepted, target))
    return code


def _put_line(target: Target, inbox: Inbox, data: bytes, max_bytes: int, options: dict[str, Any]) -> Accepted:
    if len(data) > max_bytes:
        raise InputError(f"it has more than {max_bytes} bytes")
    return _put(target, inbox, _decoded(data, "it"), options)


def _numbered_lines(max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Lines that are not blank, without their ends; one that is too long is cut to show that it is."""
    source, number = _stdin(), 0
    while line := source.readline(max_bytes + 2):
        number += 1
        kept = line.removesuffix(b"\n").removesuffix(b"\r")
        while not line.endswith(b"\n") and (line := source.readline(1 << 16)):
            pass
        if kept.strip():
            yield number, kept
