"""What can be known of a message before it is put into a session's inbox."""

from __future__ import annotations

from remuda.agents import find_agent
from remuda.agents.speech import Speech
from remuda.errors import InvalidOptions
from remuda.keeper.record import SessionRecord
from remuda.paths import SessionPaths

from .inbox_target import Target


def check_agent(target: Target) -> Speech | None:
    """Raise for a session whose agent is never given messages. How to speak to it, where that is known."""
    if target.session is None:
        return None
    record = SessionRecord.load(SessionPaths(target.folder.parent, target.session).record)
    if record is None:
        return None
    speech = find_agent(record.agent).speech
    if speech is None:
        raise InvalidOptions(
            f"session '{target.session}' runs a plain command, which never says what it took",
            hint=f"type into it: remuda attach {target.session}",
        )
    return speech


def check_sendable(target: Target, prompt: str, *, command: bool, literal: bool) -> None:
    """Raise for an agent that cannot be given prompts, or not this one."""
    if (speech := check_agent(target)) is not None:
        speech.check(prompt, command=command, literal=literal)
