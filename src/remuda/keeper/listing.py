"""List all sessions of a folder: the living from their keepers, the dead from their records."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from remuda.errors import RemudaError
from remuda.paths import SessionPaths, known_names

from .client import KeeperClient
from .hidden import living_names
from .record import SessionRecord

# A request waits and computes little; a keeper that does not answer must not delay the others.
_AT_ONCE = 16


def list_sessions(folder: Path, *, include_dead: bool = False) -> list[dict[str, Any]]:
    """Return one document for each session, by name.

    A keeper that does not answer is listed as unreachable.
    """
    names = living_names(folder)
    with ThreadPoolExecutor(min(_AT_ONCE, max(1, len(names)))) as pool:
        living = list(pool.map(lambda name: _ask(folder, name), names))
    dead = [from_record(record) for record in dead_records(folder, set(names))] if include_dead else []
    return sorted(living + dead, key=lambda document: str(document["name"]))


def _ask(folder: Path, name: str) -> dict[str, Any]:
    try:
        with KeeperClient.connect(name, folder) as client:
            return client.describe()
    except (RemudaError, EOFError, OSError) as error:
        return {"name": name, "alive": None, "state": "unreachable", "detail": str(error)}


def dead_records(folder: Path, living: set[str]) -> Iterator[SessionRecord]:
    """Yield the records of sessions that are not in `living`, by name."""
    for name in sorted(known_names(folder) - living):
        if (record := SessionRecord.load(SessionPaths(folder, name).record)) is not None:
            yield record


def from_record(record: SessionRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "agent": record.agent,
        "argv": record.argv,
        "cwd": record.cwd,
        "alive": False,
        "state": "dead",
        "since": record.ended_at,
        "exit_code": record.exit_code,
        "detail": record.end_reason or "its keeper was killed",
        "started_at": record.started_at,
        "conversation": record.conversation,
        **({"started_by": record.options["started_by"]} if record.options.get("started_by") else {}),
    }
