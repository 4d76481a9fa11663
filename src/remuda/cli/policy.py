"""remuda policy"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import IO, Any

import click

from remuda.agents import DEFAULT_AGENT, find_permissions
from remuda.boss.answers.permission_policy import Policy, PolicyVerdict, load_policy, policy_file
from remuda.boss.answers.policy_request import make_request
from remuda.boss.answers.reading import UNKNOWN, Reading, read_command
from remuda.boss.attention.model import Reason
from remuda.boss.client import BossClient
from remuda.boss.folder import BossFolder
from remuda.errors import EXIT_CODES, BossDown, InvalidOptions
from remuda.untrusted import BadJson, dump_json, one_line, parse_object

from .common import json_option, short_path
from .output import complain, echo, print_json, print_lines, print_table
from .permission_request import outcome

_HEAD = ("ID", "TOOL", "DECISION", "RULE", "BEFORE", "WHAT")


@click.group("policy", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> int | None:
    """Rules that decide permission requests in your place. 'remuda help --page policy' has the reference.

    \b
    Examples:
      remuda policy check
      remuda policy check --dry-run
      remuda policy explain --command 'git push --force'
    """
    if ctx.invoked_subcommand is not None:
        return None
    print_lines(ctx.get_help().splitlines())
    return EXIT_CODES["INVALID_OPTIONS"]  # as in version 0.1


_file_option = click.option(
    "--file",
    "given",
    type=click.Path(path_type=Path),
    help="Policy file to check.  [default: the one of the boss]",
)


@command.command("check", short_help="Check the policy file against open requests.")
@_file_option
@click.option("--dry-run", is_flag=True, help="Also decide all earlier requests again, and print the result.")
@click.option(
    "-n", "limit", type=click.IntRange(1, 1000), default=100, help="Show at most N requests.  [default: 100]"
)
@json_option
def check(given: Path | None, dry_run: bool, limit: int, as_json: bool) -> None:
    """Check the policy file, and print what it would decide on open requests. Decides nothing.

    \b
    Examples:
      remuda policy check
      remuda policy check --dry-run
      remuda policy check --file new.toml --dry-run --json | jq '.requests[] | select(.decision == "allow")'
    """
    path, policy = _load(given)
    requests = _requests(policy, None if dry_run else "open", limit)
    if as_json:
        rules = [{"name": rule.name, "decision": str(rule.decision)} for rule in policy.rules]
        document = {"file": str(path), "exists": path.exists(), "dry_run": policy.dry_run, "rules": rules}
        print_json(document | {"requests": [_document(*one) for one in requests]})
        return
    state = f"{len(policy.rules)} rules" if path.exists() else "not found; every request needs a human"
    echo(f"{short_path(str(path))}: {state}{', dry run' if policy.dry_run else ''}")
    if requests:
        print_table(_HEAD, [_row(*one) for one in requests])


def _load(given: Path | None) -> tuple[Path, Policy]:
    path = given or policy_file(BossFolder.default(), os.environ)
    policy = load_policy(path)
    if given is not None and not path.exists():
        raise InvalidOptions(f"policy file {given} not found", hint="check the path given with --file")
    return path, policy


def _requests(policy: Policy, state: str | None, limit: int) -> list[tuple[dict[str, Any], PolicyVerdict]]:
    boss = BossClient()
    try:
        approvals = boss.get("approvals", state=state, limit=limit)["approvals"]
        sessions = {one["id"]: one for one in boss.get("sessions", all=True)["sessions"]}
    except BossDown:
        complain("the boss is not running, so only the file was checked")
        return []
    return [(one, _decide(policy, one, sessions.get(one["session_id"], {}))) for one in approvals]


def _decide(policy: Policy, approval: dict[str, Any], session: dict[str, Any]) -> PolicyVerdict:
    names = (approval["session_id"], session.get("name"))
    reason = Reason(approval["reason"])
    request = make_request(
        approval["tool"],
        reason,
        approval["input"],
        names,
        session.get("cwd"),
        policy.command_tools,
        agent=session.get("agent", DEFAULT_AGENT),
    )
    return policy.decide(request)


def _document(approval: dict[str, Any], verdict: PolicyVerdict) -> dict[str, Any]:
    return {
        "id": approval["id"],
        "tool": approval["tool"],
        "input": approval["input"],
        "decision": str(verdict.decision),
        "rule": verdict.name or None,
        "why": verdict.why or None,
        "was": outcome(approval),
    }


def _row(approval: dict[str, Any], verdict: PolicyVerdict) -> tuple[str, ...]:
    message = str(approval["detail"].get("message", "")).removeprefix(f"{approval['tool']}: ")
    what = one_line(message)
    by = verdict.name or verdict.why
    return approval["id"], approval["tool"], str(verdict.decision), by, outcome(approval), what


@command.command("explain", short_help="Print the decision on a request, and why.")
@_file_option
@click.option("--tool", default="Bash", help="Name of the tool.  [default: Bash]")
@click.option("--command", "text", help="Shell command to decide on.")
@click.option("--input", "document", help="Input of the tool, as JSON, instead of --command.")
@click.option("--folder", help="Folder where the session works.  [default: this one]")
@click.option("--session", help="Name of the session.")
@click.option(
    "--batch", type=click.File("rb"), help="Read requests from a file (- is stdin), one JSON object per line."
)
@json_option
def explain(
    given: Path | None,
    tool: str,
    text: str | None,
    document: str | None,
    folder: str | None,
    session: str | None,
    batch: IO[bytes] | None,
    as_json: bool,
) -> None:
    """Print what the policy decides on a request, by which rule, and how its command was read.

    Nothing is run or answered, and no boss is needed. A line of --batch is {"tool": "Bash", "input":
    {"command": "ls"}}; for each, one line of JSON is printed, in order.

    \b
    Examples:
      remuda policy explain --command 'git push --force'
      remuda policy explain --file new.toml --tool Read --input '{"file_path": "/etc/passwd"}'
      remuda policy explain --batch requests.jsonl | jq 'select(.decision == "ask")'
    """
    _, policy = _load(given)
    cwd = os.path.abspath(folder or ".")
    if (batch is not None) + (text is not None) + (document is not None) != 1:
        raise InvalidOptions("pass exactly one of --command, --input and --batch")
    if batch is not None:
        for line in batch:
            echo(dump_json(_explain_line(policy, line, session, cwd)))
        return
    values = {"command": text} if document is None else _object(document)
    if document is None and (field := policy.command_tools.get(tool)):
        values = {field: text}
    explanation = _explain(policy, tool, values, session, cwd)
    if as_json:
        print_json(explanation)
    else:
        _print_explanation(explanation)


def _object(text: str) -> dict[str, Any]:
    try:
        return parse_object(text)
    except BadJson as error:
        raise InvalidOptions(f"--input {one_line(text)!r}: {error}", hint="pass a JSON object") from None


def _explain_line(policy: Policy, line: bytes, session: str | None, cwd: str) -> dict[str, Any]:
    """Return the decision on a line; "ask" for a line that cannot be read, as for such a request."""
    try:
        values = parse_object(line)
        tool, given = values.get("tool"), values.get("input")
        if not isinstance(tool, str) or not isinstance(given, dict):
            raise BadJson("tool must be a string and input an object")
    except BadJson as error:
        return {"decision": "ask", "rule": None, "reading": None, "why": f"not a request: {error}"}
    return _explain(policy, tool, given, session, cwd)


def _explain(
    policy: Policy, tool: str, given: dict[str, Any], session: str | None, cwd: str
) -> dict[str, Any]:
    reason = Reason(find_permissions(DEFAULT_AGENT).reason(tool))
    request = make_request(tool, reason, given, [session], cwd, policy.command_tools)
    verdict = policy.decide(request)
    return {
        "decision": str(verdict.decision),
        "rule": verdict.name or None,
        "reading": None if request.command is None else _reading(read_command(request.command)),
        "why": verdict.why or None,
    }


def _reading(reading: Reading) -> dict[str, Any]:
    return {
        "understood": reading.is_understood,
        "why": reading.doubt or None,
        "commands": [[word.replace(UNKNOWN, "…") for word in part.words] for part in reading.parts],
    }


def _print_explanation(explanation: dict[str, Any]) -> None:
    why = f" ({explanation['why']})" if explanation["why"] else ""
    rule = f"rule {explanation['rule']!r}" if explanation["rule"] else "no rule"
    echo(one_line(f"{explanation['decision']}: {rule}{why}"))
    if (reading := explanation["reading"]) is None:
        return
    echo(one_line(f"understood: {'yes' if reading['understood'] else 'no, ' + reading['why']}"))
    for words in reading["commands"]:
        echo(f"  {one_line(shlex.join(words))}")
