"""remuda approve, remuda deny and remuda approvals"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from remuda.boss.client import BossClient
from remuda.boss.navigator import labels
from remuda.duration import show_duration
from remuda.untrusted import one_line

from .common import check_alone, format_option, json_option, print_formatted
from .elsewhere import boss_of
from .output import complain, echo, print_json, print_table
from .permission_request import (
    ask_answers,
    check_refused,
    confirm_request,
    edited_input,
    find_approval,
    list_approvals,
    must_be_seen,
    must_be_terminal,
    outcome,
    print_request,
    questions_of,
    read_answers,
    read_object,
    request_lines,
    send_decision,
    session_of,
)
from .waiting import waiting_argument


@click.command("approve")
@waiting_argument("word", metavar="ID|SESSION")
@click.option(
    "--edit",
    is_flag=False,
    flag_value="",
    metavar="[JSON|-]",
    help="Allow with this input instead. Without JSON, edit it in $EDITOR.",
)
@click.option(
    "--edit-file", type=click.Path(path_type=Path), help="Allow with the input in this file instead."
)
@click.option("--always", is_flag=True, help="Also allow the same in this conversation from now on.")
@click.option(
    "--answer",
    "answers",
    multiple=True,
    metavar="Q=A",
    help="Answer a question, named by text, header or number. Repeat for each question.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def command(
    word: str,
    edit: str | None,
    edit_file: Path | None,
    always: bool,
    answers: tuple[str, ...],
    yes: bool,
    as_json: bool,
) -> None:
    """Allow a permission request, answer a question, or approve a plan.

    On a terminal, shows the complete request first, with a diff for an edit, and asks: y allows it, d denies
    it, n leaves it open. For a question, asks you for the answers. A plan that Remuda cannot display needs
    --yes; without it, the exit code is 8. The first decision counts: if someone decided before you, prints
    who it was and exits with 8.

    Not every agent can take --edit and --always. 'remuda approvals ID' says what it cannot take, and why.

    \b
    Examples:
      remuda approve work
      remuda approve 3f9a1c02de --yes
      remuda approve work --edit                       in $EDITOR
      remuda approve work --edit '{"command": "make test"}'
      remuda approve work --answer 'Which colour?=Blue'
    """
    boss, word = boss_of(word)
    approval = find_approval(boss, word)
    body: dict[str, Any] = {"behavior": "allow"}
    is_edited = edit is not None or edit_file is not None
    check_refused(approval, "edit" if is_edited else "always" if always else "allow")
    if edit == "" and edit_file is None:
        must_be_terminal()
        edited: dict[str, Any] | None = edited_input(approval)
    else:
        edited = read_object(edit, edit_file)
    if edited is not None:
        body["updated_input"] = edited
    if answers:
        body["answers"] = read_answers(answers)
    if always:
        body["always"] = True
    if not yes:
        session = session_of(boss, approval)
        if edited is None:
            must_be_seen(approval, session)
        must_be_terminal()
        questions = questions_of(approval)
        if questions and edited is None and not answers:
            echo(next(request_lines(approval, session)))
            body["answers"] = ask_answers(questions)
        else:
            final_request = approval if edited is None else {**approval, "input": edited, "detail": {}}
            question = "allow the edited request?" if edited is not None else "allow this?"
            if not confirm_request(final_request, session, question):
                body = {"behavior": "deny"}
    send_decision(boss, approval, body, as_json=as_json)


# ── remuda deny ──


@click.command("deny")
@waiting_argument("word", metavar="ID|SESSION")
@click.option("-m", "--message", metavar="TEXT", help="Reason for the agent. For a plan: what to change.")
@click.option("--interrupt", is_flag=True, help="Also end the agent's turn.")
@json_option
def deny_command(word: str, message: str | None, interrupt: bool, as_json: bool) -> None:
    """Deny a permission request. The agent gets the reason and continues without it.

    The first decision counts: if someone decided before you, prints who it was and exits with 8.

    \b
    Examples:
      remuda deny work --message "use the staging database"
      remuda deny 3f9a1c02de --interrupt
    """
    boss, word = boss_of(word)
    approval = find_approval(boss, word)
    body: dict[str, Any] = {"behavior": "deny"}
    if message:
        check_refused(approval, "message")
        body["message"] = message
    if interrupt:
        body["interrupt"] = True
    send_decision(boss, approval, body, as_json=as_json)


# ── remuda approvals ──


_HEAD = ("ID", "WHO", "TOOL", "AGE", "STATE", "WHAT")


@click.command("approvals")
@waiting_argument("word", required=False, metavar="[ID|SESSION]")
@click.option("-a", "--all", "everything", is_flag=True, help="Also list decided requests, newest first.")
@click.option(
    "-n",
    "limit",
    type=click.IntRange(1, 1000),
    metavar="N",
    default=100,
    help="List at most N.  [default: 100]",
)
@click.option("--local", is_flag=True, help="List only requests of this machine, not of your fleet.")
@json_option
@format_option("{id} {tool}")
def approvals_command(
    word: str | None, everything: bool, limit: int, local: bool, as_json: bool, template: str | None
) -> None:
    """List open permission requests, or show one: its input, a diff, who decided, and what happened then.

    On a machine that has joined a fleet, those of all hosts are listed. ID is as in the list.

    \b
    Examples:
      remuda approvals
      remuda approvals work
      remuda approvals --all --json | jq '.approvals[] | select(.by == "policy: docs")'
    """
    check_alone(template, json=as_json)
    if template is not None and word is not None:
        raise click.UsageError("--format is for lists")
    if word is not None:
        boss, word = boss_of(word)
        approval = find_approval(boss, word)
        print_json(approval) if as_json else print_request(approval, session_of(boss, approval))
        return
    boss = BossClient()
    document = list_approvals(boss, hosts=not local, state=None if everything else "open", limit=limit)
    for host, why in document.pop("failed", {}).items():
        complain(f"permission requests of {host} are not listed: {why}")
    if as_json:
        print_json(document)
        return
    if template is not None:
        print_formatted(template, document["approvals"])
        return
    if not document["approvals"]:
        echo("no permission requests yet" if everything else "no open permission requests")
        return
    names = _names(boss, {one["session_id"] for one in document["approvals"]})
    print_table(_HEAD, [_row(one, names) for one in document["approvals"]])


def _names(boss: BossClient, session_ids: set[str]) -> dict[str, str]:
    hosts = any(":" in one for one in session_ids) or None
    listed = boss.get_brief("sessions", all=True, hosts=hosts)["sessions"]
    sessions = [{"session_id": one["id"], "session": one} for one in listed if one["id"] in session_ids]
    return dict(zip((one["session_id"] for one in sessions), labels(sessions), strict=True))


def _row(approval: dict[str, Any], names: dict[str, str]) -> tuple[str, ...]:
    message = str(approval["detail"].get("message", "")).removeprefix(f"{approval['tool']}: ")
    return (
        approval["id"],
        names.get(approval["session_id"], approval["session_id"][:8]),
        approval["tool"],
        show_duration(max(0.0, time.time() - approval["asked_at"])),
        outcome(approval),
        one_line(message),
    )
