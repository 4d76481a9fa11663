"""remuda reply"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from remuda.boss.client import BossClient
from remuda.errors import InvalidOptions, MessageDead, WaitTimeout

from .asking import waiting_argument
from .common import complain, json_option, print_json, time_span
from .inbox_put import max_bytes_option, read_prompt
from .inbox_target import shown
from .receipt import held, wait_for_end

_LONGEST = 3600.0
_TYPING = 60.0


@click.command("reply")
@waiting_argument()
@click.argument("text", required=False, metavar="[TEXT|-]")
@click.option("--wait", is_flag=True, help="Wait for its end, and print the answer.")
@click.option("--timeout", type=time_span, metavar="TIME", help="With --wait: give up waiting after so long.")
@click.option("--dedup", metavar="KEY", help="To a kept session: at most one message of this key in a day.")
@click.option(
    "--command", "command_", is_flag=True, help="TEXT is a command of the agent's, such as /compact."
)
@click.option("--literal", is_flag=True, help="Refuse a prompt whose @file would be read by the agent.")
@max_bytes_option
@json_option
def command(
    session: str,
    text: str | None,
    wait: bool,
    timeout: float | None,
    dedup: str | None,
    command_: bool,
    literal: bool,
    max_bytes: int,
    as_json: bool,
) -> int | None:
    """Give a prompt to a session that the boss knows: by name or folder, pane, or the beginning of its id.

    A kept session gets it through its inbox, as with 'remuda send'. One in a tmux pane is typed to, but only
    while it is proven to wait for a prompt with nothing in its composer and no dialog open; else nothing is
    typed, you are told why, and the exit code is 8. '-', or nothing, reads TEXT from standard input.

    \b
    Examples:
      remuda reply work "yes, and add a test"
      remuda reply %12 "go on" --wait
      remuda reply 1f0c /compact --command
    """
    if timeout is not None and not wait:
        raise InvalidOptions("--timeout is for --wait")
    prompt = text if text not in (None, "-") else read_prompt(max_bytes, asked=text == "-")
    longest = min(timeout, _LONGEST) if timeout is not None else _LONGEST
    body: dict[str, Any] = {"text": prompt, "command": command_, "literal": literal}
    body |= {"dedup": dedup} if dedup else {}
    body |= {"wait": longest} if wait else {}
    found = BossClient().post(
        "sessions", session, "reply", body=body, timeout=_TYPING + (longest if wait else 0)
    )
    if found["via"] == "inbox":
        return _follow(found, timeout, wait=wait, as_json=as_json)
    return _tell(found, wait=wait, as_json=as_json)


def _follow(found: dict[str, Any], timeout: float | None, *, wait: bool, as_json: bool) -> int | None:
    if wait:
        return wait_for_end(found["id"], [Path(found["inbox"])], timeout, as_json=as_json)
    if as_json:
        print_json(found)
        return None
    click.echo(f"accepted {found['id']}")
    if not found["alive"]:
        complain(held(found["session"]))
    return None


def _tell(found: dict[str, Any], *, wait: bool, as_json: bool) -> int | None:
    if as_json:
        print_json(found)
    elif not wait:
        click.echo(f"{found['stage']} in {found['pane']}")
    if "note" in found:
        complain(found["note"])
    if not wait:
        return None
    answer = found.get("answer")
    if answer is None:
        raise WaitTimeout(f"it was {found['stage']}, and its end was not heard of")
    if answer["end"] != "stopped":
        raise MessageDead(f"it was not answered: {answer['end']} {shown(answer['text'])}".rstrip())
    if not as_json:
        click.echo(shown(answer["text"]))
    return 0
