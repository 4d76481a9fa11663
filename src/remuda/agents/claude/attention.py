"""What Claude Code's hooks, registry file and transcript say, as events of the attention queue. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from remuda.agents.attention import Event, attention_events

from .asking import Read, asked
from .hooks import read_hook
from .registry import is_background, read_registry
from .transcript import read_record

__all__ = ["hook_events", "is_background", "record_events", "registry_events"]

_AGENT = "claude"


def hook_events(
    payload: Mapping[str, Any],
    at: float,
    *,
    id: str = "",  # noqa: A002  # it is the event's
    env: Mapping[str, str] | None = None,
    read: Read | None = None,
) -> list[Event]:
    """What a hook's payload says. `env` is the hook's environment, as far as its emitter passed it on."""
    return attention_events(
        read_hook(payload, env, at), at, agent=_AGENT, describe=partial(asked, read=read), id=id
    )


def registry_events(document: Mapping[str, Any], *, now: float | None = None) -> list[Event]:
    """What the registry says, dated when its status began.

    Given `now` it is reported as what is true now: for a status that has contradicted all other sources for
    so long that something must have been missed.
    """
    report = read_registry(document)
    at, event_id = (report.at or 0.0, "") if now is None else (now, f"{report.id}:{now}")
    return attention_events(report, at, agent=_AGENT, id=event_id)


def record_events(record: Mapping[str, Any], session_id: str | None = None) -> list[Event]:
    """What a line of a transcript says. One without a date says nothing: it may be of any age."""
    return attention_events(read_record(record, session_id), 0.0, agent=_AGENT, describe=asked)
