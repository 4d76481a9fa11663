"""Scripted agents that are kept and ready."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remuda.keeper.environment import session_environment

from .keeper import Kept, Start, event_named
from .watcher import Watcher

Begin = Callable[..., tuple[Kept, Watcher]]


def begin_in(project: Path, config: Path, start: Start) -> Begin:
    """Return what keeps a scripted agent in that folder, by name, and waits until it is ready."""
    own = {"CLAUDE_CONFIG_DIR": str(config), "MOCK_TIME_SCALE": "0.01", "MOCK_DIALOG_GUARD": "0"}

    def one(name: str, *flags: str, **more: Any) -> tuple[Kept, Watcher]:
        env = session_environment({**os.environ, **own}, name, "HEIMDALL", {})
        argv = [sys.executable, "-P", "-m", "remuda.testing.scripted_agent", *flags]
        given: dict[str, Any] = {"agent": "demo", "classifier": "claude", "cols": 100, "rows": 30, **more}
        kept = start(name, argv, cwd=str(project), env=env, **given)
        client = kept.hello()
        client.request("watch")
        if not client.request("ready")["ready"]:
            event_named(client, "ready")
        return kept, Watcher(kept.hello())

    return one
