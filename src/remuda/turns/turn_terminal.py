"""What the driver needs of a session. `keeper/delivery` implements it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from remuda.agents.prompting import Past, PromptCall
from remuda.agents.state import State


class SessionChannel(Protocol):
    """The call channel of a session, whichever connection serves it now."""

    @property
    def connected(self) -> bool: ...

    async def submit(self, call: PromptCall) -> str:
        """Return the id of the prompt's turn. Raises `CallRefused` or `ChannelLost`."""

    async def find(self, call: PromptCall) -> Past:
        """Search the agent's conversation for a prompt. Raises `ChannelLost`."""

    def interrupt(self, turn_id: str | None) -> None:
        """Ask the agent to stop this turn, or the one that runs. Its reports say whether it did."""


class Waker(Protocol):
    """Starts the agent of a session that is asleep."""

    def pause(self) -> float | None:
        """Return how many seconds to wait before the next try; None after too many that failed."""

    @property
    def error(self) -> str:
        """Why the last try failed; empty if it did not."""

    @property
    def takes_argument(self) -> bool:
        """Whether the agent can be started with a prompt."""

    async def wake(self, prompt: str | None = None) -> bool:
        """Start the agent with its conversation, and with `prompt` as an argument.

        Returns when its process runs: False if others woke it first. Then, and if it raises why the agent
        cannot run, nothing has got the prompt.
        """


class TurnTerminal(Protocol):
    """One session. Everything but `past` answers at once."""

    def now(self) -> float: ...

    def type(self, data: bytes) -> None: ...

    def hold_typing(self) -> None:
        """Hold back the keys of users from now on."""

    def release_typing(self) -> None: ...

    def lines(self) -> list[str] | None:
        """Return the screen; None without a screen model."""

    def styled(self, y: int) -> bytes: ...

    @property
    def state(self) -> State: ...

    @property
    def agreed(self) -> bool: ...

    @property
    def is_guess(self) -> bool:
        """Whether the state is guessed from the timing of the output."""

    def shows_rest_since(self, at: float) -> bool:
        """Return whether the agent itself has shown at that time or later that it rests."""

    @property
    def typed_at(self) -> float:
        """When a user last typed."""

    @property
    def typed_text(self) -> bool:
        """Whether the last keys of a user were text, which an agent draws in its composer."""

    def has_read_all(self) -> bool:
        """Return whether the agent is known to have read everything that was typed."""

    @property
    def output_at(self) -> float:
        """When the agent last printed anything."""

    def tell(self, document: dict[str, Any]) -> None:
        """Report the state of delivery to watching clients."""

    def announce(self, event: str, document: dict[str, Any]) -> None:
        """Report to watching clients what happened to a message."""

    async def may_trust(self) -> bool:
        """Return whether the trust dialog may be answered with yes now."""

    def trusted(self) -> None:
        """Note that the trust dialog was answered with yes."""

    def handed_over(self) -> None:
        """Note that a prompt was handed over."""

    def turn_ended(self) -> None:
        """Note that a turn is over, and that everything that reports on it has been waited for."""

    def last_word(self) -> bool:
        """Return whether a stop is the end of a turn: no hook but ours can make the agent continue."""

    @property
    def conversation(self) -> Mapping[str, Any]: ...

    def past(self, prompt: str, since: float, facts: Mapping[str, Any]) -> Past:
        """Return what the transcript of the conversation proves. Reads files."""
