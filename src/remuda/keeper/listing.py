"""List all sessions of a folder: the living from their keepers, the dead from their records."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from remuda._version import __version__
from remuda.errors import RemoteProtocolError, RemudaError
from remuda.paths import SessionPaths, connect_own, known_names
from remuda.readable import is_readable
from remuda.wire.connection import ANSWER_TIMEOUT, ClientConnection, WelcomeReceived
from remuda.wire.messages import PROTOCOL_VERSION

from .hidden import living_names

TYPE_CHECKING = False  # as type checkers read it
if TYPE_CHECKING:
    from typing import Any

    from .record import SessionRecord

# How many sockets are open at a time: macOS gives a process 256.
_BATCH = 64
# A request waits and computes little; a keeper that does not answer must not delay the others.
_AT_ONCE = 16
_READ_BYTES = 1 << 16
_GREETING = ClientConnection.hello(f"remuda {__version__}") + ClientConnection.ask_status()
"""A keeper answers HELLO with its status. A Heimdall supervisor answers only the other request."""


def list_sessions(folder: Path, *, include_dead: bool = False) -> list[dict[str, Any]]:
    """Return one document for each session, by name.

    A keeper that does not answer is listed as unreachable.
    """
    names = living_names(folder)
    living: dict[str, dict[str, Any]] = {}
    for first in range(0, len(names), _BATCH):
        living |= _ask_at_once(folder, names[first : first + _BATCH])
    if others := [name for name in names if name not in living]:
        living |= _ask_each(folder, others)
    dead = [from_record(record) for record in dead_records(folder, set(names))] if include_dead else []
    return sorted([*living.values(), *dead], key=lambda document: str(document["name"]))


def _ask_at_once(folder: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """Send the request to all keepers, then read their answers. Leaves out what needs `KeeperClient`.

    Threads would do the same; those of Python's pool take 8 ms to load.
    """
    sockets = {name: sock for name in names if (sock := _begin(SessionPaths(folder, name))) is not None}
    deadline = time.monotonic() + ANSWER_TIMEOUT
    try:
        answers = {name: _finish(sock, name, deadline) for name, sock in sockets.items()}
    finally:
        for sock in sockets.values():
            sock.close()
    return {name: answer for name, answer in answers.items() if answer is not None}


def _begin(paths: SessionPaths) -> socket.socket | None:
    """Send a request for the status, and wait for nothing. None if that is not possible."""
    try:
        if (sock := connect_own(paths.socket)) is None:
            return None
    except OSError:
        return None
    try:
        sock.send(_GREETING)  # some bytes, into an empty buffer
    except OSError:
        sock.close()
        return None
    return sock


def _finish(sock: socket.socket, name: str, deadline: float) -> dict[str, Any] | None:
    """Return the document of a session. None for a peer that is not a keeper of this version."""
    connection = ClientConnection()
    try:
        while is_readable(sock.fileno(), max(0.0, deadline - time.monotonic())):
            if not (data := os.read(sock.fileno(), _READ_BYTES)):
                return None
            for event in connection.receive(data):
                if not isinstance(event, WelcomeReceived):
                    return None
                is_ours = event.document.pop("version", None) == PROTOCOL_VERSION
                return event.document if is_ours else None
    except (RemoteProtocolError, OSError):
        return None
    return _unreachable(name, f"the keeper of '{name}' does not answer")


def _ask_each(folder: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(_AT_ONCE, len(names))) as pool:
        return dict(zip(names, pool.map(lambda name: _ask(folder, name), names), strict=True))


def _ask(folder: Path, name: str) -> dict[str, Any]:
    from .client import KeeperClient

    try:
        with KeeperClient.connect(name, folder) as client:
            return client.describe()
    except (RemudaError, EOFError, OSError) as error:
        return _unreachable(name, error)


def _unreachable(name: str, why: object) -> dict[str, Any]:
    return {"name": name, "alive": None, "state": "unreachable", "detail": str(why)}


def dead_records(folder: Path, living: set[str]) -> Iterator[SessionRecord]:
    """Yield the records of sessions that are not in `living`, by name."""
    from .record import SessionRecord

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
