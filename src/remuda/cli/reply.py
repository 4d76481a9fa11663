"""remuda reply"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from remuda.boss.client import BossClient
from remuda.errors import InvalidOptions, MessageDead, WaitTimeout

from .common import json_option, time_span
from .inbox_put import max_bytes_option, read_prompt
from .output import complain, echo, print_answer, print_json
from .receipt import held, wait_for_end
from .waiting import waiting_argument

_LONGEST = 3600.0
_TYPING = 60.0


@click.command("reply")
@waiting_argument()
@click.argument("text", required=False, metavar="[TEXT|-]")
@click.option("--wait", is_flag=True, help="Wait until the turn has ended, and print the answer.")
@click.option(
    "--timeout", type=time_span, metavar="TIME", help="With --wait: wait at most TIME (90, 45m, 2h30m)."
)
@click.option(
    "--dedup",
    metavar="KEY",
    help="Accept at most one message with this key per day (sessions of 'remuda start').",
)
@click.option("--command", "command_", is_flag=True, help="TEXT is a command of the agent, such as /compact.")
@click.option("--literal", is_flag=True, help="Refuse a prompt with an @file that the agent would read.")
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
    """Send a prompt to an agent that the boss knows. SESSION is a name, folder, pane or start of an id.

    A session of 'remuda start' gets it in its inbox, like 'remuda send'. For an agent in a tmux pane, types
    it only if the agent is idle, its composer is empty and no dialog is open. Otherwise types nothing, prints
    the reason and exits with 8. Without TEXT, or with '-', reads the prompt from stdin.

    \b
    Examples:
      remuda reply work "yes, and add a test"
      remuda reply %12 "go on" --wait
      remuda reply 1f0c /compact --command
    """
    if timeout is not None and not wait:
        raise InvalidOptions("--timeout needs --wait")
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
    return _tell(found, session, wait=wait, as_json=as_json)


def _follow(found: dict[str, Any], timeout: float | None, *, wait: bool, as_json: bool) -> int | None:
    if wait:
        return wait_for_end(found["id"], [Path(found["inbox"])], timeout, as_json=as_json)
    if as_json:
        print_json(found)
        return None
    echo(f"accepted {found['id']}")
    if not found["alive"]:
        complain(held(Path(found["inbox"])))
    return None


def _tell(found: dict[str, Any], session: str, *, wait: bool, as_json: bool) -> int | None:
    if as_json:
        print_json(found)
    elif not wait:
        where = "" if session == found["pane"] else f" (pane {found['pane']})"
        echo(f"{found['stage']} to {session}{where}")
    if "note" in found:
        complain(found["note"])
    if not wait:
        return None
    answer = found.get("answer")
    if answer is None:
        raise WaitTimeout(f"the prompt was {found['stage']}, but its turn did not end in time")
    if answer["end"] != "stopped":
        raise MessageDead(f"the agent did not answer: {answer['end']} {answer['text']}".rstrip())
    if not as_json:
        print_answer(answer["text"])
    return 0
