"""remuda send and remuda reply"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from remuda.errors import InvalidOptions, MessageDead, NotInQueue, WaitTimeout
from remuda.inbox.journal import Accepted
from remuda.keeper.elsewhere import split_host

from . import declare
from .common import folder_option, json_option, time_span
from .elsewhere import hint_elsewhere
from .inbox_target import InboxTarget, check_sendable, complete_any, find_target
from .message_options import dedup_option, max_bytes_option, message_options, read_prompt, schedule_options
from .output import after_success, complain, echo, print_answer, print_json
from .outside import OutsideAgent, find_by_name
from .waiting import waiting_argument

_FLAGS = {"sender": "from", "max_attempts": "max-attempts"}


@declare.command("send")
@declare.argument("name", shell_complete=complete_any)
@declare.argument("text", required=False, metavar="[TEXT|-]")
@declare.option("--wait", is_flag=True, help="Wait until the turn has ended, and print the answer.")
@declare.option("--timeout", type=time_span, metavar="TIME", help="With --wait: stop waiting after TIME.")
@dedup_option
@schedule_options
@message_options
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
    """Send a prompt to an agent. It is typed when the agent is idle, and has a receipt.

    NAME is a session, or an agent in a tmux pane that the boss knows; HOST/NAME is one on another machine of
    your fleet, and 'sent ID' says that only the hub has it so far. The message for a session is on disk
    when 'accepted ID' is printed; if the session has ended, the message waits until it is back. In a pane the
    prompt is typed at once if the agent is idle and its input is empty; else nothing is typed (exit code 8).

    TEXT is the prompt; '-' or no TEXT reads it from standard input. TEXT that begins with / is refused unless
    you pass --command.

    \b
    Examples:
      remuda send work "look at the failing tests"
      remuda send %12 "yes, and add a test"
      remuda send build7/work "go on"
      git diff | remuda send work - --wait --timeout 10m
      remuda send work /compact --command
    """
    if timeout is not None and not wait:
        raise InvalidOptions("--timeout needs --wait")
    host, name = split_host(name) if folder is None else (None, name)
    if host is not None:
        prompt = text if text not in (None, "-") else read_prompt(max_bytes, asked=text == "-")
        more = {**given, "command": command_, "literal": literal}
        from .messages_elsewhere import send_elsewhere

        return send_elsewhere(host, name, prompt, more, timeout, wait=wait, as_json=as_json)
    agent = find_by_name(name, folder)
    options = {key: value for key, value in given.items() if value}
    if isinstance(agent, OutsideAgent):
        only_kept = [f"--{_FLAGS.get(key, key)}" for key in options if key != "dedup"]
        if only_kept:
            raise InvalidOptions(
                f"{only_kept[0]} is for kept sessions, and '{agent.name}' is not one",
                hint="'remuda ls' lists kept sessions",
            )
        more = {"dedup": given["dedup"], "command_": command_, "literal": literal, "max_bytes": max_bytes}
        code: int | None = reply_command.callback(
            session=agent.session["id"], text=text, wait=wait, timeout=timeout, as_json=as_json, **more
        )
        return code
    target = find_target(agent, None, folder)
    prompt = text if text not in (None, "-") else read_prompt(max_bytes, asked=text == "-")
    check_sendable(target, prompt, command=command_, literal=literal)
    if "sender" not in options and (own := _own_session()) is not None:
        options["sender"] = own
    accepted = target.inbox(max_bytes).put(prompt, command=command_, literal=literal, **options)
    if agent != name:
        complain(f"'{name}' is session '{agent}'")
    with after_success(f"{accepted.id} was accepted"):
        if not wait:
            _print_accepted(accepted, target, as_json=as_json)
            return None
        from .receipt import wait_for_end

        return wait_for_end(accepted.id, [target.folder], timeout, as_json=as_json)


def _own_session() -> str | None:
    """Return the session that this command runs in; None if that is not certain.

    It is a name to show and no right: `remuda mcp` lets no agent do more for it.
    """
    if "REMUDA_SESSION" not in os.environ:
        return None
    from remuda.mcp.caller import find_caller

    caller = find_caller(os.environ, "/")
    return caller.name if caller.kind == "session" else None


def _print_accepted(accepted: Accepted, target: InboxTarget, *, as_json: bool) -> None:
    if as_json:
        print_json({"id": accepted.id, "duplicate": accepted.duplicate, "alive": target.alive})
        return
    echo(f"accepted {accepted.id}")
    if accepted.duplicate:
        complain("not sent again: a message with this --dedup key was accepted before, and this is its id")
    if not target.alive:
        from .receipt import held

        complain(held(target.folder))


# ── remuda reply ──


_LONGEST_WAIT = 3600.0
_TYPING_TIMEOUT = 60.0


@declare.command("reply")
@waiting_argument()
@declare.argument("text", required=False, metavar="[TEXT|-]")
@declare.option("--wait", is_flag=True, help="Wait until the turn has ended, and print the answer.")
@declare.option(
    "--timeout", type=time_span, metavar="TIME", help="With --wait: wait at most TIME (90, 45m, 2h30m)."
)
@declare.option(
    "--dedup",
    metavar="KEY",
    help="Accept at most one message with this key per day (sessions of 'remuda start').",
)
@declare.option(
    "--command", "command_", is_flag=True, help="TEXT is a command of the agent, such as /compact."
)
@declare.option("--literal", is_flag=True, help="Refuse a prompt with an @file that the agent would read.")
@max_bytes_option
@json_option
def reply_command(
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
    host, session = split_host(session)
    if host is not None:
        from .messages_elsewhere import send_elsewhere

        more = {"dedup": dedup, "command": command_, "literal": literal}
        return send_elsewhere(host, session, prompt, more, timeout, wait=wait, as_json=as_json)
    longest = min(timeout, _LONGEST_WAIT) if timeout is not None else _LONGEST_WAIT
    body: dict[str, Any] = {"text": prompt, "command": command_, "literal": literal}
    body |= {"dedup": dedup} if dedup else {}
    body |= {"wait": longest} if wait else {}
    from remuda.boss.client import BossClient

    try:
        result = BossClient().post(
            "sessions", session, "reply", body=body, timeout=_TYPING_TIMEOUT + (longest if wait else 0)
        )
    except NotInQueue as error:
        raise NotInQueue(error.message, hint=hint_elsewhere(session) or error.hint) from None
    if result["via"] == "inbox":
        with after_success(f"{result['id']} was accepted"):
            return _follow_inbox(result, timeout, wait=wait, as_json=as_json)
    with after_success(f"the prompt was {result['stage']}"):
        return _print_typed(result, session, wait=wait, as_json=as_json)


def _follow_inbox(result: dict[str, Any], timeout: float | None, *, wait: bool, as_json: bool) -> int | None:
    from .receipt import held, wait_for_end

    if wait:
        return wait_for_end(result["id"], [Path(result["inbox"])], timeout, as_json=as_json)
    if as_json:
        print_json(result)
        return None
    echo(f"accepted {result['id']}")
    if not result["alive"]:
        complain(held(Path(result["inbox"])))
    return None


def _print_typed(result: dict[str, Any], session: str, *, wait: bool, as_json: bool) -> int | None:
    if as_json:
        print_json(result)
    elif not wait:
        where = "" if session == result["pane"] else f" (pane {result['pane']})"
        echo(f"{result['stage']} to {session}{where}")
    if "note" in result:
        complain(result["note"])
    if not wait:
        return None
    answer = result.get("answer")
    if answer is None:
        raise WaitTimeout(f"the prompt was {result['stage']}, but its turn did not end in time")
    if answer["end"] != "stopped":
        raise MessageDead(f"the agent did not answer: {answer['end']} {answer['text']}".rstrip())
    if not as_json:
        print_answer(answer["text"])
    return 0
