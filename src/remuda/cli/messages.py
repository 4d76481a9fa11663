"""remuda messages"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from remuda.duration import show_duration
from remuda.errors import InvalidOptions, MessageNotFound, RemudaError
from remuda.inbox.catalog import Listed, list_messages, with_prompts
from remuda.inbox.receipts import Trace
from remuda.keeper.elsewhere import split_host

from .common import check_alone, folder_option, format_option, json_option, print_formatted, time_span
from .inbox import list_dead
from .inbox_target import complete_any, find_target, find_what, first_line, inbox_folders, session_of
from .messages_elsewhere import listed_messages, wait_elsewhere, wait_for_rest_elsewhere
from .output import complain, echo, print_json, print_table, style
from .receipt import (
    STAGE_COLOURS,
    find_message,
    print_receipt,
    print_sent,
    sent_elsewhere,
    wait_for_answer,
)

_HEAD = ("ID", "SESSION", "SENT", "STEP", "TEXT")
_GIVEN_UP = ("dead", "expired", "dropped")


@click.command("messages")
@click.argument("what", metavar="[NAME|ID]", required=False, shell_complete=complete_any)
@click.option("--waiting", is_flag=True, help="List only messages that have not ended.")
@click.option(
    "--dead", is_flag=True, help="List only dead letters, and messages that expired or were dropped."
)
@click.option(
    "--wait", is_flag=True, help="Wait for the end and print the answer; of a NAME, the last answer."
)
@click.option("--timeout", type=time_span, metavar="TIME", help="With --wait: stop waiting after TIME.")
@click.option(
    "-n", "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="List the last N."
)
@click.option(
    "--inbox", "path", type=click.Path(path_type=Path), help="Use this inbox, not those of sessions."
)
@format_option("{id} {stage}")
@folder_option
@json_option
def command(
    what: str | None,
    waiting: bool,
    dead: bool,
    wait: bool,
    timeout: float | None,
    limit: int,
    path: Path | None,
    template: str | None,
    folder: Path | None,
    as_json: bool,
) -> int | None:
    """List messages with the last step of each, the newest last; or show the receipt of one.

    With the NAME of a session, list its messages; without, those of all sessions. With an ID, show every step
    of that message and the answer. The beginning of either is enough. Ended messages are listed for a week.
    HOST/NAME lists those of a session on another machine of your fleet.

    \b
    Examples:
      remuda messages
      remuda messages work --waiting
      remuda messages m19a8c27f3b1
      remuda messages work --wait --timeout 10m
      remuda messages --dead --json | jq -r '.[].reason'
    """
    modes = [name for name, given in (("waiting", waiting), ("dead", dead), ("wait", wait)) if given]
    if len(modes) > 1:
        raise InvalidOptions(f"--{modes[0]} does not go with --{modes[1]}", hint="use one of them")
    if timeout is not None and not wait:
        raise InvalidOptions("--timeout needs --wait")
    check_alone(template, json=as_json, wait=wait)
    host, name = split_host(what) if what and path is None and folder is None else (None, what)
    if host is not None:
        return _elsewhere(host, str(name), modes, timeout, limit, template, as_json=as_json)
    try:
        target = find_what(str(name), path, folder) if name is not None else None
    except MessageNotFound:
        if (sent := sent_elsewhere(name, path, folder)) is None:
            raise
        if wait:
            return wait_elsewhere(sent, timeout, as_json=as_json)
        print_sent(sent, as_json=as_json)
        return None
    if wait:
        return wait_for_answer(target or find_message(None, path, folder), timeout, as_json=as_json)
    if not isinstance(target, Trace):
        folders = inbox_folders(path, folder) if target is None else [target.folder]
        listed = [one for one in _listed(folders, dead=dead) if not (waiting and one.ended)]
        _show_list(listed, limit, template, as_json=as_json, some=waiting or dead)
    elif modes or template is not None:
        lists = "--waiting, --dead and --format are for lists"
        raise InvalidOptions(f"'{what}' is one message, and {lists}", hint="leave them out")
    else:
        print_receipt(target, what, as_json=as_json)
    return None


def _elsewhere(
    host: str,
    session: str,
    modes: list[str],
    timeout: float | None,
    limit: int,
    template: str | None,
    *,
    as_json: bool,
) -> int:
    """List the messages of a session on another host, or wait for the last answer."""
    if modes == ["wait"]:
        return wait_for_rest_elsewhere(host, session, timeout, as_json=as_json, answer=True)
    documents, listed = listed_messages(host, session, limit)
    chosen = [
        (document, one)
        for document, one in zip(documents, listed, strict=True)
        if not (modes == ["waiting"] and one.ended) and not (modes == ["dead"] and one.stage not in _GIVEN_UP)
    ][-limit:]
    if as_json:
        print_json([document for document, _ in chosen])
    elif template is not None:
        print_formatted(template, [document for document, _ in chosen])
    elif not chosen:
        echo("no messages")
    else:
        print_messages([one for _, one in chosen])
    return 0


def _show_list(listed: list[Listed], limit: int, template: str | None, *, as_json: bool, some: bool) -> None:
    """`some`: the list has messages of one kind only."""
    messages = with_prompts(listed[-limit:])
    if as_json:
        print_json([one.document() for one in messages])
    elif template is not None:
        print_formatted(template, [{**one.document(), "session": _session(one)} for one in messages])
    elif not messages:
        echo("no messages" if some else "no messages; send one with: remuda send NAME TEXT")
    else:
        if len(listed) > len(messages):
            complain(f"the last {len(messages)} of {len(listed)} messages; -n lists more")
        print_messages(messages)


def _listed(folders: Sequence[Path], *, dead: bool) -> list[Listed]:
    listed: list[Listed] = []
    for folder in folders:
        try:
            messages = list_messages(folder)
            listed += [one for one in messages if one.stage in _GIVEN_UP] if dead else messages
            listed += _dead_letters(folder, {one.id for one in messages}) if dead else []
        except RemudaError as error:
            if len(folders) == 1:
                raise
            complain(str(error))
    return sorted(listed, key=lambda one: one.sent_at)


def _dead_letters(folder: Path, known: set[str]) -> Iterator[Listed]:
    """Yield dead letters without a receipt. They stay until they are redriven."""
    if not folder.is_dir():
        return
    for letter in list_dead(find_target(None, folder, None).existing()):
        if letter["id"] not in known:
            at = letter["at"] or 0.0
            reason, prompt = str(letter["reason"] or ""), str(letter["prompt"])
            yield Listed(letter["id"], folder, "dead", at, at, reason=reason, prompt=prompt)


def print_messages(messages: Sequence[Listed]) -> None:
    print_table(_HEAD, [_row(one) for one in messages], optional=("SENT",))


def _session(one: Listed) -> str:
    session = session_of(one.folder)
    return session.name if session is not None else one.folder.name


def _row(one: Listed) -> tuple[str, ...]:
    step = one.stage + (f" {show_duration(time.time() - one.at)} ago" if one.at and one.ended else "")
    if one.stage == "accepted" and (left := math.ceil(one.due - time.time())) > 0:
        step = f"accepted, due in {show_duration(left)}"
    text = first_line(one.prompt)
    return (
        one.id,
        _session(one),
        f"{show_duration(time.time() - one.sent_at)} ago" if one.sent_at else "-",
        style(step, fg=STAGE_COLOURS.get(one.stage)),
        f"({one.reason}) {text}" if one.reason and one.stage in (*_GIVEN_UP, "nacked") else text,
    )
