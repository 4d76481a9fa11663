"""remuda status"""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any

import click

from remuda.duration import show_duration, show_moment

from .common import (
    coloured_state,
    complete_session,
    find_folder,
    folder_option,
    json_option,
    print_json,
    short_path,
)


@click.command("status")
@click.argument("name", required=False, shell_complete=complete_session)
@click.option("--explain", is_flag=True, help="Show every piece of evidence, its age, and which one decided.")
@folder_option
@json_option
def command(name: str | None, explain: bool, folder: Path | None, as_json: bool) -> None:
    """Say what a session is doing, since when, and how we know. Without a name: how the boss is.

    \b
    Examples:
      remuda status
      remuda status work
      remuda status work --explain
      remuda status work --json | jq -r .state
    """
    if name is None:
        from .status_boss import show_boss

        show_boss(as_json)
        return
    from remuda.keeper.client import KeeperClient

    with KeeperClient.connect(name, find_folder(folder)) as client:
        document = client.describe(explain=explain)
        other = client.other_version
    if as_json:
        print_json(document)
        return
    for label, value in _lines(document):
        click.echo(f"{label:<10} {value}")
    if other:
        click.echo(f"{'note':<10} its keeper is version {other}; what both know works")
    if explain:
        _explain(document.get("votes", []))


def _lines(document: dict[str, Any]) -> list[tuple[str, str]]:
    state = f"{coloured_state(str(document['state']))} for {show_duration(document.get('age', 0))}"
    source = document.get("source", "")
    detail = document.get("detail", "")
    lines = [
        ("session", str(document["name"])),
        ("state", f"{state} (by {source}{': ' + detail if detail else ''})"),
    ]
    if document.get("dissent"):
        lines.append(("disputed", f"by {', '.join(document['dissent'])}; see --explain"))
    lines.append(("pid", f"{document['pid']}{'' if document.get('alive') else ' (dead)'}"))
    lines.append(("silent", show_duration(document.get("idle", 0))))
    if "argv" in document:
        lines += _own_lines(document)
    return lines


def _own_lines(document: dict[str, Any]) -> list[tuple[str, str]]:
    size = (
        f"{document['cols']}x{document['rows']} ({document['size_policy']}), {document['clients']} watching"
    )
    lines = [
        ("agent", str(document["agent"])),
        ("command", shlex.join(document["argv"])),
        ("cwd", short_path(document["cwd"])),
        ("up", show_duration(document["uptime"])),
        ("terminal", size),
    ]
    if document.get("title"):
        lines.append(("title", document["title"]))
    if session_id := document.get("conversation", {}).get("session_id"):
        lines.append(("talk", session_id))
    lines += _delivery_lines(document.get("delivery") or {})
    if document.get("recording"):
        lines.append(("recording", document["recording"]))
    lines += [("degraded", reason) for reason in document.get("degraded", [])]
    return lines


def _delivery_lines(delivery: dict[str, Any]) -> list[tuple[str, str]]:
    lines = []
    if flight := delivery.get("in_flight"):
        since = show_duration(time.time() - flight["since"])
        lines.append(
            ("message", f"{flight['id']}: {flight['stage']} for {since}, attempt {flight['attempt']}")
        )
    if delivery.get("held"):
        until = delivery.get("limited_until")
        when = f" until {show_moment(until, time.time())}" if until else ""
        lines.append(("held", f"messages wait: {delivery['held']}{when}"))
    return lines


def _explain(votes: list[dict[str, Any]]) -> None:
    click.echo("\nevidence, the most valuable source first:")
    for vote in votes:
        mark = "▶" if vote["decides"] else " " if vote["counts"] else "·"
        state = coloured_state(vote["state"].ljust(18), vote["state"])
        age = f"{show_duration(vote['age']):>6} ago"
        click.echo(f"  {mark} {vote['source']:<10} {state} {age}  {vote['detail']}")
    click.echo("  ▶ decided; · does not count while better sources speak")
