"""remuda status, without a name: how the boss is."""

from __future__ import annotations

import time
from typing import Any

from remuda.boss.client import BossClient
from remuda.duration import show_duration

from .common import limit_lines, short_path
from .output import print_fields, print_json


def show_boss(as_json: bool) -> None:
    """Raises `BossDown` when there is none: its exit code tells that from an empty queue."""
    document = BossClient().get("health")
    if as_json:
        print_json(document)
        return
    print_fields(_lines(document))


def _lines(document: dict[str, Any]) -> list[tuple[str, str]]:
    uptime = show_duration(document["uptime"])
    put_off = f", and {document['hidden']} postponed" if document["hidden"] else ""
    lines = [
        ("boss", f"{document['status']}, pid {document['pid']}, version {document['version']}, up {uptime}"),
        ("url", f"http://127.0.0.1:{document['port']}"),
        ("waiting", f"{document['waiting']}{put_off}"),
        ("sessions", str(document["sessions"])),
        ("database", short_path(document["database"])),
    ]
    if document["laid_aside"]:
        lines.append(
            ("note", f"an earlier database could not be read; it was moved to {document['laid_aside']}")
        )
    for limit in document.get("limits", []):
        first, *rest = limit_lines(limit, time.time())
        lines += [("limited", first), *(("", line) for line in rest)]
    lines += [("sources", line) for line in _sources(document["sources"])]
    lines += [("hooks", line) for line in _hooks()]
    return lines + _written()


def _written() -> list[tuple[str, str]]:
    from .boss_files import written_files

    return [(one.name, one.text) for one in written_files()]


def _hooks() -> list[str]:
    """Those of sessions that nobody keeps, in the settings that apply here."""
    from .hooks_boss import boss_hooks

    found = boss_hooks()
    if not found:
        return ["none; 'remuda setup boss' lets Claude Code sessions report to it"]
    return [
        f"{len(one.events)} in {short_path(str(one.path))}"
        + "".join(f"; {problem}: {one.fix}" for problem in one.problems[:1])
        for one in found
    ]


def _sources(sources: list[dict[str, Any]]) -> list[str]:
    """Those that run on one line, and each that does not on one of its own."""
    running = [source["name"] for source in sources if source["state"] == "running"]
    others = [source for source in sources if source["state"] != "running"]
    lines = [f"{', '.join(running)}: running"] if running else []
    return lines + [
        f"{source['name']}: {source['state']}" + (f": {source['error']}" if source["error"] else "")
        for source in others
    ]
