"""The scripted agent under test: starting it, the hooks it is given, and what it wrote down."""

from __future__ import annotations

import json
from collections.abc import Callable

from remuda.testing.scripted_agent.probe import Probe

Start = Callable[..., Probe]
"""Starts the agent with further flags; `env` is laid over its environment, the rest is the probe's."""


def command(line: str, **more: object) -> dict[str, object]:
    return {"type": "command", "command": line, **more}


def saying(answer: object, **more: object) -> dict[str, object]:
    """A hook that prints this JSON."""
    return command(f"cat > /dev/null; printf '%s' '{json.dumps(answer)}'", **more)


def texts(agent: Probe, kind: str, session_id: str | None = None) -> list[str]:
    """The plain texts of a conversation's user or assistant lines; of the newest without an id."""
    found = []
    for line in agent.transcript(session_id):
        if line["type"] == kind:
            content = line["message"]["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            found += [block["text"] for block in blocks if block["type"] == "text"]
    return found
