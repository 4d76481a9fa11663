"""What a turn needs from the program around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from .agent_conversation import AgentConversation
from .agent_flags import Knobs
from .agent_loop import Loop
from .face import Face
from .hook_runner import HookVerdict
from .settings import Settings
from .tool import Tools


class TurnAborted(Exception):  # not an error: the user pressed Esc
    """Thrown into a turn where it waits."""


class TurnEnded(Exception):  # not an error
    """A call was rejected, by hand or by a hook: the turn is over, no Stop."""


class Stage(Protocol):
    """The program, seen from a turn."""

    loop: Loop
    face: Face
    session: AgentConversation
    tools: Tools
    knobs: Knobs
    environ: Mapping[str, str]

    def settings(self) -> Settings:
        """Return the settings as they are now."""

    async def fire(self, event: str, fields: Mapping[str, Any], subject: str = "") -> HookVerdict:
        """Run the event's hooks and wait for them."""

    def announce(self, event: str, fields: Mapping[str, Any], subject: str = "") -> None:
        """Run the event's hooks without waiting for them."""

    def absorb_queue(self) -> None:
        """Prompts that were typed during it become part of the running turn."""

    def give_back(self, prompts: Sequence[str]) -> None:
        """Interrupted prompts return to the text box."""

    def die(self, code: int) -> None:
        """End the process at once."""
