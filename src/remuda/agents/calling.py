"""Calls to an agent's own server: prompts, decisions and interrupts go in, reports come out.

An agent implements `CallChannel` in its folder, with the parsing of what comes apart from the connection.
The keeper keeps one channel for each session (`keeper/call`), and `turns/driver` hands prompts to it. A call
can be lost at any moment: after that the agent's conversation is searched before anything is called again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from remuda.frozen import frozen

if TYPE_CHECKING:
    from .events import Report
    from .permission import PermissionDecision, PermissionRequest
    from .prompting import Past


@frozen
class CallAddress:
    """The address of an agent's server, and its secret."""

    url: str
    secret: str


@frozen
class PromptCall:
    """One prompt to hand over, or to search for."""

    id: str
    """The id of the message. Where the agent keeps ids of clients, this is the one."""
    prompt: str
    command: bool = False
    """It is a command of the agent, not text for the model."""
    conversation: str | None = None
    """For a search: the conversation that it was handed to; None means the current one."""
    since: float = 0.0
    """For a search: it was not handed over before this time (seconds since the epoch)."""


class ChannelLost(Exception):
    """The connection ended, or no answer came. What was called may have been taken."""


class CallRefused(Exception):
    """The agent refused the call. Nothing of it will run."""


class CallChannel(Protocol):
    """A connection to one agent's server. After a loss a new channel is made; none is used again."""

    async def connect(self, conversation: Mapping[str, Any]) -> None:
        """Connect, and join the conversation that the terminal shows. Raises `ChannelLost`.

        `conversation` is what was last known of it; empty before the first report.
        """

    def reports(self) -> AsyncIterator[Report]:
        """Yield what the agent reports, up to the loss of the connection, which raises `ChannelLost`.

        The first reports say what the agent is doing now, and how the turns ended that ran when the last
        channel was lost. Reports of turns that others started come too.
        """

    async def submit(self, call: PromptCall) -> str:
        """Hand over a prompt. Return the id of its turn, which is the `prompt_id` of the turn's events.

        Return only when the agent has started a turn for it. The id of a turn that was running before means
        that the prompt was added to that turn. Raises `CallRefused` or `ChannelLost`.
        """

    async def find(self, call: PromptCall) -> Past:
        """Search the conversation for a prompt that was handed over. Raises `ChannelLost`."""

    async def decide(self, request: PermissionRequest, decision: PermissionDecision) -> None:
        """Decide a permission request. One that is decided already is left as it is. Raises `ChannelLost`."""

    async def interrupt(self, turn_id: str | None) -> None:
        """Stop a turn; None for the one that runs. Does nothing for one that has ended."""

    async def aclose(self) -> None:
        """Close the connection. Calls under way raise `ChannelLost`. May be called repeatedly."""
