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
    find_approval,
    lines,
    must_be_seen,
    must_be_terminal,
    read_answers,
    read_object,
    session_of,
)
from .questions import ask_answers, questions_of


@click.command("approve")
@waiting_argument("word", metavar="ID|SESSION")
@click.option("--edit", metavar="JSON|-", help="Allow it with this input instead.")
@click.option("--edit-file", type=click.Path(path_type=Path), help="The same, from a file.")
@click.option("--always", is_flag=True, help="Do not ask again for the like in this conversation.")
@click.option(
    "--answer",
    "answers",
    multiple=True,
    metavar="Q=A",
    help="To a question: its text, header or number, and the answer. Once for each.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask me.")
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
    """Allow what an agent asks leave for, answer its question, or agree to its plan.

    On a terminal all of what is asked is shown first, with a diff for an edit, and you are asked once more;
    to a question you are asked for the answers. A plan of which nothing is known is agreed to with --yes;
    else it is refused (exit code 8). The first answer counts: when somebody else was first you are told who,
    and the exit code is 8.

    \b
    Examples:
      remuda approve work
      remuda approve 3f9a1c02de --yes
      remuda approve work --edit '{"command": "make test"}'
      remuda approve work --answer 'Which colour?=Blue'
    """
    boss = BossClient()
    approval = find_approval(boss, word)
    body: dict[str, Any] = {"behavior": "allow"}
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
            click.echo(next(lines(approval, session)))
            body["answers"] = ask_answers(questions)
        else:
            shown = approval if edited is None else {**approval, "input": edited, "detail": {}}
            confirm(shown, session, "allow this as edited?" if edited is not None else "allow this?")
    answer(boss, approval, body, as_json=as_json)
