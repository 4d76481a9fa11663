"""Check whether the agent of a session can receive messages, before one is put into its inbox."""

from __future__ import annotations

from remuda.agents import find_agent
from remuda.agents.speech import Speech
from remuda.errors import InvalidOptions
from remuda.paths import SessionPaths

from .claim import read_holder
from .client import KeeperClient
from .record import SessionRecord


def find_speech(paths: SessionPaths) -> Speech | None:
    """Return how to speak to the agent of a session; None if that is unknown.

    Raises `InvalidOptions` for a session whose program never receives messages.
    """
    refuse_foreign(paths)
    record = SessionRecord.load(paths.record)
    if record is None:
        return None
    speech = find_agent(record.agent).speech
    if speech is None:
        raise InvalidOptions(
            f"session '{paths.name}' runs a plain command, which never says what it took",
            hint=f"type into it: remuda attach {paths.name}",
        )
    return speech


def refuse_foreign(paths: SessionPaths) -> None:
    """Raise `InvalidOptions` when the name is held by a supervisor that is not ours."""
    holder, record = read_holder(paths), SessionRecord.load(paths.record)
    if holder is None or (record is not None and record.keeper_pid == holder.keeper_pid):
        return  # else the record may be of an earlier session
    with KeeperClient.connect(paths.name, paths.folder, read_only=True) as client:
        if client.welcome is not None:
            return
    raise InvalidOptions(
        f"session '{paths.name}' is kept by another program (hm), which delivers no messages",
        hint=f"type into it: remuda attach {paths.name}",
    )
