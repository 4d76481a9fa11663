"""Start a boss in the background."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from remuda.errors import SpawnFailed, SpawnTimeout, from_code
from remuda.paths import private_folder
from remuda.untrusted import dump_json, parse_object

from .folder import BossFolder

READY_TIMEOUT = 30.0


def start_detached(
    folder: BossFolder,
    port: int,
    log_level: str = "info",
    log_max_bytes: int = 1 << 20,
    sources: tuple[str, ...] | None = None,
    *,
    any_port: bool = False,
    access: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return when it serves: its pid and port, and the name of a database that had to be renamed.

    `sources` are its sources of events besides what is posted; None for all. `access` has the keys of
    `[boss]` that say where it can be reached besides loopback.
    """
    private_folder(folder.path)
    reading, writing = os.pipe()
    try:
        arguments = {
            "folder": str(folder.path),
            "port": port,
            "log_level": log_level,
            "log_max_bytes": log_max_bytes,
            "sources": sources,
            "any_port": any_port,
            "access": dict(access or {}),
            "ready_fd": writing,
        }
        with open(folder.path / "boss.err", "ab", opener=_private) as errors:
            subprocess.Popen(
                [sys.executable, "-P", "-m", "remuda.boss", dump_json(arguments)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                cwd=folder.path,
                pass_fds=[writing],
                start_new_session=True,
            ).returncode = 0  # it is not ours to wait for
        os.close(writing)
        writing = -1
        return _told(reading)
    finally:
        os.close(reading)
        if writing >= 0:
            os.close(writing)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_TRUNC, 0o600)


def _told(fd: int) -> dict[str, Any]:
    ready, _, _ = select.select([fd], [], [], READY_TIMEOUT)
    if not ready:
        raise SpawnTimeout(f"the boss was not ready within {READY_TIMEOUT:g} s", hint="see its log")
    line = os.read(fd, 1 << 16)
    if not line:
        raise SpawnFailed(
            "the boss ended before it was ready", hint="'remuda up' without --detach prints the reason"
        )
    document: dict[str, Any] = parse_object(line)
    if "error" in document:
        raise from_code(document["error"]["code"], document["error"]["message"], document["error"]["hint"])
    return document
