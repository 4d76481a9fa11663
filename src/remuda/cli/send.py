"""remuda send"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from remuda.errors import InvalidOptions
from remuda.inbox.inject import MAX_ATTEMPTS
from remuda.inbox.journal import Accepted

from .common import complain, folder_option, json_option, print_json, time_span
from .inbox_put import key, lifetime, max_bytes_option, read_prompt
from .inbox_target import Target, complete_inbox, find_target
from .receipt import held, wait_for_end
from .sendable import check_sendable


@click.command("send")
@click.argument("name", shell_complete=complete_inbox)
@click.argument("text", required=False, metavar="[TEXT|-]")
@click.option("--wait", is_flag=True, help="Wait for its end, and print the answer.")
@click.option("--timeout", type=time_span, metavar="TIME", help="With --wait: give up waiting after so long.")
@click.option("--dedup", type=key, metavar="KEY", help="At most one message of this key in a day.")
@click.option("--delay", type=time_span, metavar="TIME", help="Not before so long: 90, 45m, 2h30m.")
@click.option("--ttl", type=lifetime, metavar="TIME", help="Not after so long; the sender is told.")
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
@click.option("--literal", is_flag=True, help="Refuse a prompt whose @file would be read by the agent.")
@max_bytes_option
@folder_option
@json_option
def command(
    name: str,
    text: str | None,
    wait: bool,
    timeout: float | None,
    command_: bool,
    literal: bool,
    max_bytes: int,
    folder: Path | None,
    as_json: bool,
    **given: Any,
) -> int | None:
    """Send a prompt to the agent in session NAME. It is typed when the agent is idle, and has a receipt.

    TEXT is the prompt; '-', or nothing, reads it from standard input. It is on the disk when 'accepted ID' is
    printed. A prompt that begins with / is refused, unless --command says that a command is meant. For a
    session that has ended it is kept until the session is back.

    \b
    Examples:
      remuda send work "look at the failing tests"
      git diff | remuda send work - --wait --timeout 10m
      remuda send work /compact --command
      remuda receipt m19a8c27f3b1-0d4be1f6a2      what became of it
    """
    if timeout is not None and not wait:
        raise InvalidOptions("--timeout is for --wait")
    target = find_target(name, None, folder)
    prompt = text if text not in (None, "-") else read_prompt(max_bytes, asked=text == "-")
    check_sendable(target, prompt, command=command_, literal=literal)
    options = {key: value for key, value in given.items() if value}
    accepted = target.inbox(max_bytes).put(prompt, command=command_, literal=literal, **options)
    if not wait:
        _tell(accepted, target, as_json=as_json)
        return None
    return wait_for_end(accepted.id, [target.folder], timeout, as_json=as_json)


def _tell(accepted: Accepted, target: Target, *, as_json: bool) -> None:
    if as_json:
        print_json({"id": accepted.id, "duplicate": accepted.duplicate, "alive": target.alive})
        return
    click.echo(f"accepted {accepted.id}")
    if accepted.duplicate:
        complain("a message with this dedup key was accepted before, and this is its id")
    if not target.alive:
        complain(held(target.words))
