"""What `remuda doctor` says of the boss: nothing where nobody uses it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from remuda.boss.client import BossClient
from remuda.boss.folder import BossFolder
from remuda.errors import BossDown, RemudaError
from remuda.tmux.once import installed_version

from .boss_files import written_files
from .finding import Finding
from .hooks_boss import found_hooks


def examine_boss() -> Iterator[Finding]:
    folder = BossFolder.default()
    if not folder.database.exists() and not found_hooks():
        return
    try:
        health = BossClient(folder).get("health")
    except BossDown as error:
        left = _left(folder)
        lost = f"; {left} events of your sessions are left for it" if left else ""
        yield Finding(
            "note", f"{error.message}{lost}", "remuda up --detach, or for good: remuda up --install"
        )
    except RemudaError as error:
        yield Finding("fail", f"the boss: {error.message}", "remuda down --force, then remuda up --detach")
    else:
        yield Finding("ok", f"the boss runs (pid {health['pid']}), {health['waiting']} wait for you")
        for source in health["sources"]:
            if source["state"] != "running":
                why = f": {source['error']}" if source["error"] else ""
                yield Finding("note", f"the boss does not hear of {source['name']}: {source['state']}{why}")
        if health["laid_aside"]:
            yield Finding(
                "note", f"an earlier database of the boss could not be used; it is {health['laid_aside']}"
            )
    for one in written_files():
        if not one.is_right:
            yield Finding("note", f"the boss's {one.name} are {one.text}")
    yield from _tmux()


def _left(folder: BossFolder) -> int:
    try:
        return sum(not name.startswith(".") for name in os.listdir(folder.spool))
    except OSError:
        return 0


def _tmux() -> Iterator[Finding]:
    try:
        version = installed_version()
    except RemudaError as error:
        yield Finding("note", f"no jumping to panes: {error.message}", error.hint or "")
    else:
        yield Finding("ok", f"tmux {version}")
