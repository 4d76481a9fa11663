"""Requests for leave on the command line: which one is meant, and all of what it asks for."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from remuda.boss.answers.unseen import why_unseen
from remuda.boss.client import BossClient
from remuda.duration import show_duration
from remuda.errors import Aborted, InvalidOptions, NotInQueue, NotSafe

from .common import print_json, short_path
from .inbox_target import shown
from .questions import question_lines, questions_of

Approval = dict[str, Any]

ANSWER_TIMEOUT = 60.0
_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def find_approval(boss: BossClient, word: str) -> Approval:
    """By its id, or the only open one of a session. Raises `NotInQueue` and `InvalidOptions`."""
    try:
        found: Approval = boss.get("approvals", word)
    except NotInQueue:
        pass
    else:
        return found
    try:
        session = boss.get("sessions", word)["session"]
    except NotInQueue:
        raise NotInQueue(
            f"there is no request and no session '{word}'", hint="'remuda approvals' lists what is asked"
        ) from None
    asked = open_approvals(boss)
    asked = [one for one in asked if one["session_id"] == session["id"]]
    if not asked:
        raise NotInQueue(f"{word} asks for nothing")
    if len(asked) > 1:
        numbers = ", ".join(f"{one['id']} ({one['tool']})" for one in asked)
        raise InvalidOptions(f"{word} asks for {len(asked)} things", hint=f"say which: {numbers}")
    return asked[0]


def open_approvals(boss: BossClient) -> list[Approval]:
    found: list[Approval] = boss.get("approvals", state="open", limit=1000)["approvals"]
    return found


def answer(boss: BossClient, approval: Approval, body: Mapping[str, Any], *, as_json: bool) -> None:
    found = boss.post(
        "approvals", approval["id"], "answer", body={"by": "command line", **body}, timeout=ANSWER_TIMEOUT
    )
    if as_json:
        print_json(found)
        return
    done = "allowed" if body["behavior"] == "allow" else "denied"
    click.echo(f"{done} {found['id']}: {found['tool']}")


def must_be_terminal() -> None:
    """Raises `InvalidOptions` where nobody can be asked."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidOptions("this is no terminal, so that nobody can be asked", hint="say --yes")


def must_be_seen(approval: Approval, session: Mapping[str, Any] | None) -> None:
    """Raises `NotSafe` for what only its terminal shows."""
    if why := hidden(approval):
        name = (session or {}).get("name")
        way = f"'remuda attach {name}'" if name else "'remuda next'"
        raise NotSafe(why, hint=f"go there with {way}, or say --yes to agree to what you do not see")


def hidden(approval: Approval) -> str:
    """Why it cannot be agreed to from here; empty for what is shown."""
    return why_unseen(approval["reason"], approval["tool"], approval["input"])


def confirm(approval: Approval, session: Mapping[str, Any] | None, question: str) -> None:
    """Show all of it, and ask. Raises `Aborted` for a no."""
    show(approval, session)
    if not click.confirm(question):
        raise Aborted("nothing was answered")


def session_of(boss: BossClient, approval: Approval) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = boss.get("sessions", approval["session_id"])["session"]
    except NotInQueue:  # forgotten, its ledger is not
        return None
    return found


# ── showing ──


def show(approval: Approval, session: Mapping[str, Any] | None = None) -> None:
    """All of it: what is not shown cannot be agreed to."""
    for line in lines(approval, session):
        click.echo(line)


def lines(approval: Approval, session: Mapping[str, Any] | None = None) -> Iterator[str]:
    yield from _head(approval, session)
    questions = questions_of(approval)
    for name, value in approval["input"].items():
        if name == "questions" and questions:
            yield from (line for one in questions for line in question_lines(one))
        else:
            yield from _field(name, value)
    if approval["state"] == "open" and (why := hidden(approval)):
        yield f"  {why}"
    if diff := approval["detail"].get("diff"):
        yield from (_coloured(line) for line in shown(diff).splitlines())
    if would := approval["detail"].get("policy"):
        yield from _field("rule", f"{would['rule']} would decide: {would['decision']} (dry run)")
    yield from _outcome(approval)


def _head(approval: Approval, session: Mapping[str, Any] | None) -> Iterator[str]:
    asked = f"{show_duration(max(0.0, time.time() - approval['asked_at']))} ago"
    yield click.style(
        f"{shown(approval['tool'])} · {approval['reason']} {approval['id']}, {asked}", bold=True
    )
    if session is not None:
        yield f"  {'session':<12} {session.get('name') or session['id']}"
        if session.get("cwd"):
            yield f"  {'in':<12} {shown(short_path(session['cwd']))}"


def _field(name: str, value: object) -> Iterator[str]:
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    first, *rest = shown(text).splitlines() or [""]
    if not rest:
        yield f"  {shown(name):<12} {first}"
        return
    yield f"  {shown(name)}"
    yield from (f"    {line}" for line in [first, *rest])


def _coloured(line: str) -> str:
    return click.style(line, fg=_DIFF_COLOURS.get(line[:1]))


def _outcome(approval: Approval) -> Iterator[str]:
    if approval["state"] == "open":
        return
    yield f"  {'state':<12} {outcome(approval)}"
    for name, value in (approval["answer"] or {}).items():
        if name != "behavior":
            yield from _field(name, value)


def outcome(approval: Approval) -> str:
    """Who answered, and what is known of what happened then."""
    proof = approval["proof"] or {}
    if approval["state"] == "open":
        return "open"
    if approval["answer"] is None:
        said = "answered at the terminal" if "ran" in proof else "ended unanswered"
    else:
        said = f"{approval['answer'].get('behavior')} by {shown(approval['by'] or '?')}"
        said += "" if approval["delivered_at"] else ", not known to have arrived"
    if proof.get("ran") is True:
        return f"{said}; it ran{' and failed' if proof.get('failed') else ''}"
    return f"{said}; it did not run" if proof.get("ran") is False else said


# ── reading ──


def read_object(text: str | None, path: Path | None) -> dict[str, Any] | None:
    """The input to be used instead, from the command line ('-' for standard input) or a file."""
    if text is not None and path is not None:
        raise InvalidOptions("both --edit and --edit-file were given", hint="give one or the other")
    try:
        if path is not None:
            text = path.read_text()
        elif text == "-":
            text = sys.stdin.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOptions(f"cannot read the edited input: {error}") from error
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidOptions(f"the edited input is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidOptions("the edited input must be a JSON object")
    return found


def read_answers(given: tuple[str, ...]) -> dict[str, str | list[str]]:
    """`QUESTION=ANSWER`; the same question again is a further answer to it."""
    found: dict[str, str | list[str]] = {}
    for word in given:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise InvalidOptions(f"{word!r} is not QUESTION=ANSWER")
        before = found.get(name)
        if before is None:
            found[name] = value
        else:
            found[name] = [*(before if isinstance(before, list) else [before]), value]
    return found
