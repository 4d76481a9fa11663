"""Requests for leave on the command line: which one is meant, and all of what it asks for."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from remuda.boss.attention.display import label, why_hidden
from remuda.boss.client import BossClient
from remuda.duration import show_duration
from remuda.errors import Aborted, InvalidOptions, NotInQueue, NotSafe
from remuda.untrusted import parse_json, printable, show_json

from .common import short_path
from .output import ask_choice, echo, flat, print_json, style
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
    except NotInQueue as error:
        near = error.hint if error.hint and error.hint.startswith("did you mean") else None
        raise NotInQueue(
            f"no permission request and no session '{word}'",
            hint=near or "'remuda approvals' lists open requests",
        ) from None
    asked = open_approvals(boss)
    asked = [one for one in asked if one["session_id"] == session["id"]]
    if not asked:
        items = boss.get("queue", hidden=True)["items"]
        own = next((one for one in items if one["session_id"] == session["id"]), None)
        if own is not None and "ask" in own["detail"]:
            boss.get("approvals", own["detail"]["ask"])  # raises: only its terminal can answer
        raise NotInQueue(
            f"session '{word}' has no open permission request", hint="'remuda approvals' lists open requests"
        )
    if len(asked) > 1:
        numbers = ", ".join(f"{one['id']} ({one['tool']})" for one in asked)
        raise InvalidOptions(
            f"session '{word}' has {len(asked)} open requests", hint=f"pass the id of one: {numbers}"
        )
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
    echo(f"{done} {found['id']}: {found['tool']}")


def must_be_terminal() -> None:
    """Raises `InvalidOptions` where nobody can be asked."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidOptions("stdin or stdout is not a terminal, so you cannot confirm", hint="pass --yes")


def must_be_seen(approval: Approval, session: Mapping[str, Any] | None) -> None:
    """Raises `NotSafe` for what only its terminal shows."""
    if why := hidden(approval):
        name = (session or {}).get("name")
        way = f"'remuda attach {name}'" if name else "'remuda next'"
        raise NotSafe(why, hint=f"go there with {way}, or pass --yes to approve without seeing it")


def hidden(approval: Approval) -> str:
    """Why it cannot be agreed to from here; empty for what is shown."""
    return why_hidden(approval["reason"], approval["tool"], approval["input"])


def confirm(approval: Approval, session: Mapping[str, Any] | None, question: str) -> bool:
    """Show all of it, and ask. Returns whether to allow it. Raises `Aborted` if it is left as it is."""
    show(approval, session)
    found = ask_choice(f"{question} y: allow, d: deny, n: leave it open", "ynd", default="n")
    if found == "n":
        raise Aborted("nothing was decided; the request is still open")
    return found == "y"


def edited_input(approval: Approval) -> dict[str, Any]:
    """Open the input in the user's editor. Raises `Aborted` if it was not saved, else as `read_object`."""
    from click import edit

    text = edit(show_json(approval["input"], indent=2) + "\n", extension=".json")
    if text is None:
        raise Aborted("nothing was decided: the input was not saved in the editor")
    found = read_object(text, None)
    assert found is not None
    return found


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
        echo(line)


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
        yield from (_coloured(line) for line in printable(diff).splitlines())
    if would := approval["detail"].get("policy"):
        yield from _field("rule", f"{would['rule']} would {would['decision']} this (dry run)")
    yield from _outcome(approval)


def _head(approval: Approval, session: Mapping[str, Any] | None) -> Iterator[str]:
    asked = f"{show_duration(max(0.0, time.time() - approval['asked_at']))} ago"
    yield style(f"{flat(approval['tool'])} · {approval['reason']} {approval['id']}, {asked}", bold=True)
    if session is not None:
        folder = session.get("repo") or session.get("cwd")
        yield f"  {'session':<12} {flat(label(session.get('name'), folder, session['id']))}"
        if session.get("cwd"):
            yield f"  {'in':<12} {flat(short_path(session['cwd']))}"


def _field(name: str, value: object) -> Iterator[str]:
    text = value if isinstance(value, str) else show_json(value, indent=2)
    first, *rest = printable(text).splitlines() or [""]
    if not rest:
        yield f"  {flat(name):<12} {first}"
        return
    yield f"  {flat(name)}"
    yield from (f"    {line}" for line in [first, *rest])


def _coloured(line: str) -> str:
    return style(line, fg=_DIFF_COLOURS.get(line[:1]))


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
        said = "decided in the terminal" if "ran" in proof else "ended without a decision"
    else:
        said = f"{approval['answer'].get('behavior')} by {flat(approval['by'] or '?')}"
        said += "" if approval["delivered_at"] else ", delivery not confirmed"
    if proof.get("ran") is True:
        return f"{said}; it ran{' and failed' if proof.get('failed') else ''}"
    return f"{said}; it did not run" if proof.get("ran") is False else said


# ── reading ──


def read_object(text: str | None, path: Path | None) -> dict[str, Any] | None:
    """The input to be used instead, from the command line ('-' for standard input) or a file."""
    if text is not None and path is not None:
        raise InvalidOptions("both --edit and --edit-file were given", hint="pass one of them")
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
        found = parse_json(text)
    except ValueError as error:
        raise InvalidOptions(f"the edited input is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidOptions(
            "the edited input is not a JSON object", hint='write for example {"command": "ls"}'
        )
    return found


def read_answers(given: tuple[str, ...]) -> dict[str, str | list[str]]:
    """`QUESTION=ANSWER`; the same question again is a further answer to it."""
    found: dict[str, str | list[str]] = {}
    for word in given:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise InvalidOptions(f"{word!r} is not QUESTION=ANSWER", hint="for example: --answer '1=Blue'")
        before = found.get(name)
        if before is None:
            found[name] = value
        else:
            found[name] = [*(before if isinstance(before, list) else [before]), value]
    return found
