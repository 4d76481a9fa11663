"""remuda status, without a name: how the boss is."""

from __future__ import annotations

import time
from typing import Any

import click

from remuda.boss.client import BossClient
from remuda.duration import show_duration

from .common import print_json, short_path
from .inbox_target import shown


def show_boss(as_json: bool) -> None:
    """Raises `BossDown` when there is none: its exit code tells that from an empty queue."""
    document = BossClient().get("health")
    if as_json:
        print_json(document)
        return
    for label, value in _lines(document):
        click.echo(f"{label:<10} {value}")


def _lines(document: dict[str, Any]) -> list[tuple[str, str]]:
    uptime = show_duration(document["uptime"])
    lines = [
        ("boss", f"{document['status']}, pid {document['pid']}, version {document['version']}, up {uptime}"),
        ("url", f"http://127.0.0.1:{document['port']}"),
        ("waiting", f"{document['waiting']}, and {document['hidden']} put off"),
        ("sessions", str(document["sessions"])),
        ("database", short_path(document["database"])),
    ]
    if document["laid_aside"]:
        lines.append(("note", f"an earlier database could not be used; it is {document['laid_aside']}"))
    for limit in document.get("limits", []):
        left = show_duration(max(0.0, limit["until"] - time.time()))
        lines.append(("limited", f"account {limit['account']} for {left}: {shown(limit['reason'])}"))
    for source in document["sources"]:
        error = f": {source['error']}" if source["error"] else ""
        lines.append(("source", f"{source['name']}: {source['state']}{error}"))
    return lines
