"""Public callables with values that the system cannot be given, and values of other types."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remuda import (
    Client,
    Inbox,
    InvalidOptions,
    KeeperClient,
    RemoteClient,
    Session,
    SessionSpec,
    start_session,
)
from remuda.keeper.record import SessionRecord
from remuda.paths import SessionPaths

TEXTS = ["a\0b", "\ud800"]
TYPES = [math.inf, 7, b"x", object(), 1j, 10**5000]


def _spec(where: Path, **given: Any) -> object:
    whole: dict[str, Any] = {"name": "s", "folder": str(where), "argv": ["true"], "cwd": "/", "env": {}}
    return start_session(SessionSpec(**{**whole, **given}))


async def _client(**given: Any) -> None:
    async with Client(**given):
        pass


def _table(folder: Path) -> dict[str, tuple[Callable[[Any], object], list[Any]]]:
    """By the argument that the error must name: the call, and bad values for it."""
    dead = Session("dead", folder=folder)

    def starts(name: str = "s", command: Any = ("true",), **given: Any) -> object:
        return Session.start(name, command, **{"folder": folder, **given})

    paths = [*TEXTS, *TYPES, "~no-such-user/x"]
    words = [*TYPES, "true", ["true", "a\0b"], ["true", "\ud800"], ["true", 1]]
    variables = [*TYPES, {"A": 1}, {1: "A"}, {"A=B": "c"}, {"": "c"}, {"A": "\0"}, {"A": "\ud800"}]
    return {
        "Session name": (lambda v: Session(v, folder=folder), [*TYPES, None]),
        "Session folder": (lambda v: Session("dead", folder=v), paths),
        "Session.start name": (lambda v: starts(v), [*TYPES, None]),
        "Session.start command": (lambda v: starts(command=v), words),
        "Session.start cwd": (lambda v: starts(cwd=v), paths),
        "Session.start env": (lambda v: starts(env=v), variables),
        "Session.start folder": (lambda v: starts(folder=v), paths),
        "Session.start timeout": (lambda v: starts(timeout=v), ["x", b"x", None, math.inf, math.nan, -1]),
        "Session.start log_file": (lambda v: starts(log_file=v), paths),
        "Session.start record": (lambda v: starts(record=v), paths),
        "Session.start log_level": (lambda v: starts(log_level=v), [*TEXTS, *TYPES]),
        "Session.start log_filter": (lambda v: starts(log_filter=v), [*TEXTS, *TYPES]),
        "Session.start session_env_var": (lambda v: starts(session_env_var=v), [*TEXTS, *TYPES]),
        "Session.start agent": (lambda v: starts(agent=v), [*TEXTS, *TYPES]),
        "Session.send prompt": (lambda v: dead.send(v), [*TEXTS, *TYPES, None]),
        "Session.send literal": (lambda v: dead.send("x", literal=v), TYPES),
        "Session.send command": (lambda v: dead.send("/x", command=v), TYPES),
        "Session.receipt message": (lambda v: dead.receipt(v), [*TEXTS, *TYPES, "", "x" * 200000]),
        "Session.wait message": (lambda v: dead.wait(v, 0), [*TEXTS, *TYPES, "", "x" * 200000]),
        "KeeperClient.connect name": (lambda v: KeeperClient.connect(v, folder), [*TYPES, None]),
        "KeeperClient.connect folder": (lambda v: KeeperClient.connect("dead", v), paths),
        "start_session argv": (lambda v: _spec(folder, argv=v), words),
        "start_session env": (lambda v: _spec(folder, env=v), variables),
        "start_session cwd": (lambda v: _spec(folder, cwd=v), [*TEXTS, *TYPES]),
        "start_session folder": (lambda v: _spec(folder, folder=v), [*TEXTS, *TYPES]),
        "Inbox folder": (lambda v: Inbox(v), [*TEXTS, *TYPES, None]),
        "RemoteClient socket": (lambda v: RemoteClient(v), [*TEXTS, *TYPES]),
        "Client runtime_dir": (lambda v: asyncio.run(_client(runtime_dir=v)), paths),
        "Client cwd": (lambda v: asyncio.run(_client(cwd=v)), [*TEXTS, *TYPES, "x" * 200000]),
        "Client model": (lambda v: asyncio.run(_client(model=v)), [*TEXTS, *TYPES]),
        "Client backend": (lambda v: asyncio.run(_client(backend=v)), [*TEXTS, "x" * 200000]),
    }


def test_bad_value_of_an_argument_is_refused_by_its_name_and_starts_nothing(home: Path) -> None:
    folder = home / "sessions"
    folder.mkdir(mode=0o700)
    record = SessionRecord("dead", "claude", ["claude"], "/", 0.0, ended_at=1.0)
    record.save(SessionPaths(folder, "dead").record)
    wrong = []
    for what, (call, values) in _table(folder).items():
        for value in values:
            try:
                call(value)
            except InvalidOptions as error:
                if what.split()[1] not in str(error) or len(str(error)) > 300:
                    wrong.append((what, type(value), str(error)[:100]))
            except Exception as error:  # noqa: BLE001  # any other error is what this looks for
                wrong.append((what, type(value), f"{type(error).__name__}: {error}"[:100]))
            else:
                wrong.append((what, type(value), "was taken"))
    assert wrong == []
    assert os.listdir(folder) == ["dead.json"]
