"""Claude Code's registry file, `sessions/<pid>.json`, and rows of `claude agents --json`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.agents.events import Report, StatusReported
from remuda.agents.state import Source
from remuda.untrusted import finite, name_at


def read_registry(document: Mapping[str, Any]) -> Report:
    """Report the status, dated when it began."""
    pid = document.get("pid")
    changed = document.get("statusUpdatedAt") or document.get("updatedAt") or document.get("startedAt")
    status = document.get("status")
    event = StatusReported(
        "" if status is None else str(status),
        str(document.get("waitingFor", "")),
        document.get("statusUpdatedAt"),
        document.get("procStart"),
    )
    facts = {
        name: value
        for key, name in (("cwd", "cwd"), ("entrypoint", "entrypoint"), ("name", "title"))
        if (value := name_at(document, key)) is not None
    }
    return Report(
        source=Source.REGISTRY,
        name="registry",
        events=(event,),
        at=max(0.0, finite(changed) / 1000),
        id=f"registry:{pid}:{changed}:{status}",
        session_id=name_at(document, "sessionId") or None,
        pid=pid if isinstance(pid, int) or pid is None else -1,
        facts={"origin": "background" if is_background(document) else "registry", **facts},
    )


def is_background(document: Mapping[str, Any]) -> bool:
    """Return whether it is a background agent: the file and the command use different words."""
    return document.get("kind") in ("bg", "background")
