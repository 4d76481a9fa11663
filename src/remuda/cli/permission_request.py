"""Permission requests on the command line: find the one that is meant, show it completely, read a decision"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from remuda.boss.attention.display import label, why_hidden
from remuda.boss.client import BossClient, RemoteBoss
from remuda.duration import show_duration
from remuda.errors import Aborted, InvalidOptions, NotInQueue, NotSafe
from remuda.keeper.elsewhere import own_host
from remuda.untrusted import as_object, one_line, parse_json, printable, show_json, text_at

from .common import short_path
from .elsewhere import hint_elsewhere
from .output import ask_choice, ask_text, cells, echo, flat, print_json, style

Approval = dict[str, Any]

ANSWER_TIMEOUT = 60.0
_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def find_approval(boss: BossClient, word: str) -> Approval:
    """Find a request by its id, or the only open one of a session. Raises `NotInQueue`, `InvalidOptions`."""
    named = f"{boss.host}/{word}" if isinstance(boss, RemoteBoss) else word
    try:
        approval: Approval = boss.get("approvals", word)
    except NotInQueue:
        pass
    else:
        return approval
    try:
        session = boss.get("sessions", word)["session"]
    except NotInQueue as error:
        near = error.hint if error.hint and error.hint.startswith("did you mean") else None
        near = (hint_elsewhere(word) if not isinstance(boss, RemoteBoss) else "") or near
        raise NotInQueue(
            f"no permission request and no session '{named}'",
            hint=near or "'remuda approvals' lists open requests",
        ) from None
    approvals = open_approvals(boss)
    approvals = [one for one in approvals if one["session_id"] == session["id"]]
    if not approvals:
        items = boss.get("queue", hidden=True)["items"]
        own = next((one for one in items if one["session_id"] == session["id"]), None)
        if own is not None and "ask" in own["detail"]:
            boss.get("approvals", own["detail"]["ask"])  # raises: it can be decided only in its terminal
        raise NotInQueue(
            f"session '{named}' has no open permission request", hint="'remuda approvals' lists open requests"
        )
    if len(approvals) > 1:
        numbers = ", ".join(f"{one['id']} ({one['tool']})" for one in approvals)
        raise InvalidOptions(
            f"session '{named}' has {len(approvals)} open requests", hint=f"pass the id of one: {numbers}"
        )
    return approvals[0]


def open_approvals(boss: BossClient, *, hosts: bool = False) -> list[Approval]:
    """Return the open requests; with `hosts` of all hosts, if this machine has joined a fleet."""
    approvals: list[Approval] = list_approvals(boss, hosts=hosts, state="open", limit=1000)["approvals"]
    return approvals


def list_approvals(boss: BossClient, *, hosts: bool, **query: Any) -> dict[str, Any]:
    """Return the requests, as the boss lists them."""
    document: dict[str, Any]
    if hosts and own_host() is not None:
        try:
            document = boss.get("approvals", hosts=True, **query)
            return document
        except InvalidOptions:  # a boss before 0.3
            pass
    document = boss.get("approvals", **query)
    return document


def send_decision(boss: BossClient, approval: Approval, body: Mapping[str, Any], *, as_json: bool) -> None:
    decided = boss.post(
        "approvals", approval["id"], "answer", body={"by": "command line", **body}, timeout=ANSWER_TIMEOUT
    )
    if as_json:
        print_json(decided)
        return
    done = "allowed" if body["behavior"] == "allow" else "denied"
    echo(f"{done} {decided['id']}: {decided['tool']}")


def must_be_terminal() -> None:
    """Raise `InvalidOptions` if the user cannot be asked here."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidOptions("stdin or stdout is not a terminal, so you cannot confirm", hint="pass --yes")


def must_be_seen(approval: Approval, session: Mapping[str, Any] | None) -> None:
    """Raise `NotSafe` for a request that only its terminal shows."""
    if why := hidden_reason(approval):
        name = (session or {}).get("name")
        way = f"'remuda attach {name}'" if name else "'remuda next'"
        raise NotSafe(why, hint=f"go there with {way}, or pass --yes to approve without seeing it")


def hidden_reason(approval: Approval) -> str:
    """Return why a request cannot be allowed from here; empty if it can be shown."""
    why = why_hidden(approval["reason"], approval["tool"], approval["input"])
    return why or why_refused(approval, "allow")


def why_refused(approval: Mapping[str, Any], decision: str) -> str:
    """Return why its agent cannot take a decision: allow, always, edit or message. Empty if it can.

    An older boss or keeper does not say: then the agent refuses after it was sent.
    """
    return one_line(text_at(as_object(approval.get("refuses")), decision) or "")


def check_refused(approval: Approval, decision: str) -> None:
    """Raise `InvalidOptions` for a decision that its agent cannot take."""
    if why := why_refused(approval, decision):
        raise InvalidOptions(why)


def confirm_request(approval: Approval, session: Mapping[str, Any] | None, question: str) -> bool:
    """Show the complete request and ask. Return whether to allow it. Raises `Aborted` for no decision."""
    print_request(approval, session)
    letter = ask_choice(f"{question} y: allow, d: deny, n: leave it open", "ynd", default="n")
    if letter == "n":
        raise Aborted("nothing was decided; the request is still open")
    return letter == "y"


def edited_input(approval: Approval) -> dict[str, Any]:
    """Open the input in the user's editor and return it. Raises `Aborted` if it was not saved."""
    from click import edit

    text = edit(show_json(approval["input"], indent=2) + "\n", extension=".json")
    if text is None:
        raise Aborted("nothing was decided: the input was not saved in the editor")
    edited = read_object(text, None)
    assert edited is not None
    return edited


def session_of(boss: BossClient, approval: Approval) -> dict[str, Any] | None:
    try:
        session: dict[str, Any] = boss.get("sessions", approval["session_id"])["session"]
    except NotInQueue:  # the boss forgot the session, but not its requests
        return None
    return session


# ── showing ──

_REFUSED_WORDS = {"edit": "no --edit", "always": "no --always", "message": "no --message"}


def print_request(approval: Approval, session: Mapping[str, Any] | None = None) -> None:
    """Print the complete request, on which the user decides."""
    for line in request_lines(approval, session):
        echo(line)
    if approval["state"] == "open":
        for name in _REFUSED_WORDS:
            if why := why_refused(approval, name):
                echo(f"  {_REFUSED_WORDS[name]:<12} {why}")


def request_lines(approval: Approval, session: Mapping[str, Any] | None = None) -> Iterator[str]:
    yield from _head_lines(approval, session)
    if over := approval["detail"].get("over_budget"):
        yield from _field_lines("over budget", over)
    questions = questions_of(approval)
    for name, value in approval["input"].items():
        if name == "questions" and questions:
            yield from (line for one in questions for line in question_lines(one))
        else:
            yield from _field_lines(name, value)
    if approval["state"] == "open" and (why := hidden_reason(approval)):
        yield f"  {why}"
    if diff := approval["detail"].get("diff"):
        yield from (_coloured(line) for line in printable(diff).splitlines())
    if would := approval["detail"].get("policy"):
        yield from _field_lines("rule", f"{would['rule']} would {would['decision']} this (dry run)")
    yield from _outcome_lines(approval)


def _head_lines(approval: Approval, session: Mapping[str, Any] | None) -> Iterator[str]:
    asked = f"{show_duration(max(0.0, time.time() - approval['asked_at']))} ago"
    yield style(f"{flat(approval['tool'])} · {approval['reason']} {approval['id']}, {asked}", bold=True)
    if session is not None:
        folder = session.get("repo") or session.get("cwd")
        yield f"  {'session':<12} {flat(label(session.get('name'), folder, session['id']))}"
        if session.get("cwd"):
            yield f"  {'in':<12} {flat(short_path(session['cwd']))}"


def _field_lines(name: str, value: object) -> Iterator[str]:
    text = value if isinstance(value, str) else show_json(value, indent=2)
    first, *rest = printable(text).splitlines() or [""]
    if not rest:
        yield f"  {flat(name):<12} {first}"
        return
    yield f"  {flat(name)}"
    yield from (f"    {line}" for line in [first, *rest])


def _coloured(line: str) -> str:
    return style(line, fg=_DIFF_COLOURS.get(line[:1]))


def _outcome_lines(approval: Approval) -> Iterator[str]:
    if approval["state"] == "open":
        return
    yield f"  {'state':<12} {outcome(approval)}"
    for name, value in (approval["answer"] or {}).items():
        if name != "behavior":
            yield from _field_lines(name, value)


_PAST = {"allow": "allowed", "deny": "denied"}


def outcome(approval: Approval) -> str:
    """Return who decided, and what is known of what happened then."""
    proof = approval["proof"] or {}
    if approval["state"] == "open":
        return "open"
    if approval["answer"] is None:
        text = "decided in the terminal" if "ran" in proof else "ended without a decision"
    else:
        behavior = str(approval["answer"].get("behavior"))
        text = f"{behavior} by {flat(approval['by'] or '?')}"
        if approval["by"] == "api: command line":
            text = f"{_PAST.get(behavior, behavior)} on the command line"
        text += "" if approval["delivered_at"] else ", delivery not confirmed"
    if proof.get("ran") is True:
        return f"{text}; it ran{' and failed' if proof.get('failed') else ''}"
    return f"{text}; it did not run" if proof.get("ran") is False else text


# ── reading ──


def read_object(text: str | None, path: Path | None) -> dict[str, Any] | None:
    """Return the input to use instead, from the command line ('-' for standard input) or a file."""
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
        document = parse_json(text)
    except ValueError as error:
        raise InvalidOptions(f"the edited input is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InvalidOptions(
            "the edited input is not a JSON object", hint='write for example {"command": "ls"}'
        )
    return document


def read_answers(words: tuple[str, ...]) -> dict[str, str | list[str]]:
    """Parse `QUESTION=ANSWER` words. A repeated question has several answers."""
    answers: dict[str, str | list[str]] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise InvalidOptions(f"{word!r} is not QUESTION=ANSWER", hint="for example: --answer '1=Blue'")
        before = answers.get(name)
        if before is None:
            answers[name] = value
        else:
            answers[name] = [*(before if isinstance(before, list) else [before]), value]
    return answers


# ── an agent's questions ──


Question = Mapping[str, Any]


def questions_of(approval: Mapping[str, Any]) -> list[Question]:
    """Return the questions of a request; empty if it has none, or none of a known form."""
    value = approval["input"].get("questions") if approval["reason"] == "question" else None
    questions = value if isinstance(value, list) else []
    return questions if all(isinstance(one, dict) for one in questions) else []


def question_lines(question: Question) -> Iterator[str]:
    several = " (you can choose several)" if question.get("multiSelect") else ""
    yield f"  {question.get('question', '')}{several}"
    options = _options(question)
    width = max((cells(_label(one)) for one in options), default=0)
    for number, one in enumerate(options, 1):
        name, more = flat(_label(one)), flat(str(one.get("description") or ""))
        yield f"    {number}  {name}{' ' * (width - cells(name))}  {more}".rstrip()


def ask_answers(questions: list[Question]) -> dict[str, str | list[str]]:
    """Ask the user each question. Return the answers by number."""
    answers: dict[str, str | list[str]] = {}
    for number, question in enumerate(questions, 1):
        for line in question_lines(question):
            echo(line)
        several = bool(question.get("multiSelect"))
        what = "numbers, separated by commas" if several else "a number"
        text = ask_text(f"{what}, or your own words" if _options(question) else "your answer")
        answers[str(number)] = meant(question, text)
    return answers


def meant(question: Question, said: str) -> str | list[str]:
    options = _options(question)
    words = [one.strip() for one in said.split(",")] if question.get("multiSelect") else [said.strip()]
    if all(one.isdecimal() and 1 <= int(one) <= len(options) for one in words):
        chosen = [_label(options[int(one) - 1]) for one in words]
        return chosen if question.get("multiSelect") else chosen[0]
    return said.strip()


def _options(question: Question) -> list[Mapping[str, Any]]:
    options = question.get("options")
    return [one for one in options if isinstance(one, dict)] if isinstance(options, list) else []


def _label(option: Mapping[str, Any]) -> str:
    return str(option.get("label", ""))
