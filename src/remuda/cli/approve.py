"""remuda approve"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from remuda.boss.client import BossClient

from .asking import waiting_argument
from .common import json_option
from .leave import (
    answer,
    confirm,
    edited_input,
    find_approval,
    lines,
    must_be_seen,
    must_be_terminal,
    read_answers,
    read_object,
    session_of,
)
from .output import echo
from .questions import ask_answers, questions_of


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

    \b
    Examples:
      remuda approve work
      remuda approve 3f9a1c02de --yes
      remuda approve work --edit                       in $EDITOR
      remuda approve work --edit '{"command": "make test"}'
      remuda approve work --answer 'Which colour?=Blue'
    """
    boss = BossClient()
    approval = find_approval(boss, word)
    body: dict[str, Any] = {"behavior": "allow"}
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
            echo(next(lines(approval, session)))
            body["answers"] = ask_answers(questions)
        else:
            shown = approval if edited is None else {**approval, "input": edited, "detail": {}}
            question = "allow the edited request?" if edited is not None else "allow this?"
            if not confirm(shown, session, question):
                body = {"behavior": "deny"}
    answer(boss, approval, body, as_json=as_json)
