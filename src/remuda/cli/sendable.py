"""What can be known of a message before it is put into a session's inbox."""

from __future__ import annotations

from remuda.agents.speech import Speech
from remuda.keeper.recipient import find_speech
from remuda.paths import SessionPaths

from .inbox_target import Target


def check_agent(target: Target) -> Speech | None:
    """Raise for a session whose agent is never given messages. How to speak to it, where that is known."""
    if target.session is None:
        return None
    return find_speech(SessionPaths(target.folder.parent, target.session))


def check_sendable(target: Target, prompt: str, *, command: bool, literal: bool) -> None:
    """Raise for an agent that cannot be given prompts, or not this one."""
    if (speech := check_agent(target)) is not None:
        speech.check(prompt, command=command, literal=literal)
