"""What `remuda doctor` says of the boss: nothing where nobody uses it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from remuda.boss.client import BossClient
from remuda.boss.folder import BossFolder
from remuda.errors import BossDown, RemudaError
from remuda.tmux.command import installed_version
from remuda.untrusted import one_line

from .boss_files import written_files
from .finding import Finding
from .hooks_boss import found_hooks

_UNREACHED_AGE = 24 * 3600.0


def examine_boss() -> Iterator[Finding]:
    folder = BossFolder.default()
    if not folder.database.exists() and not found_hooks():
        return
    try:
        health = BossClient(folder).get("health")
    except BossDown as error:
        left = _left(folder)
        lost = f"; {left} events of your sessions wait for it" if left else ""
        yield Finding(
            "note",
            f"{error.message}{lost}",
            "remuda boss up --detach, or at every login: remuda setup boss --service",
        )
    except RemudaError as error:
        yield Finding(
            "fail", f"the boss: {error.message}", "remuda boss down --force, then remuda boss up --detach"
        )
    else:
        yield Finding(
            "ok", f"the boss runs (pid {health['pid']}); agents waiting for you: {health['waiting']}"
        )
        for source in health["sources"]:
            if source["state"] != "running":
                why = f": {source['error']}" if source["error"] else ""
                yield Finding("note", f"the boss has no events from {source['name']}: {source['state']}{why}")
        if health["laid_aside"]:
            yield Finding(
                "note",
                f"an earlier database of the boss could not be read; it was moved to {health['laid_aside']}",
            )
    yield from _unreached(folder)
    for one in written_files():
        if not one.is_right:
            yield Finding("note", f"the boss's {one.name} are {one.text}")
    yield from _tmux()


def _left(folder: BossFolder) -> int:
    try:
        return sum(not name.startswith(".") for name in os.listdir(folder.spool))
    except OSError:
        return 0


def _unreached(folder: BossFolder) -> Iterator[Finding]:
    """What the boss's hook wrote down last, if that is not long ago."""
    try:
        at, _, why = (folder.path / "unreached").read_text(errors="replace").partition(" ")
        age = time.time() - int(at)
    except (OSError, ValueError):
        return
    if age < _UNREACHED_AGE:
        text = f"a permission request did not reach the boss {age / 60:.0f} minutes ago: {one_line(why)}"
        yield Finding("note", text, "answer it in the agent's own terminal; boss.log has the details")


def _tmux() -> Iterator[Finding]:
    try:
        version = installed_version()
    except RemudaError as error:
        yield Finding("note", f"cannot switch to tmux panes: {error.message}", error.hint or "")
    else:
        yield Finding("ok", f"tmux {version}")
