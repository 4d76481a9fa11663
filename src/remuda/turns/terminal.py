"""What handing over a prompt needs of a session; the keeper's sessions are such."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from remuda.agents.speech import Past
from remuda.agents.state import State


class Terminal(Protocol):
    """One session. Everything but `past` answers at once."""

    def now(self) -> float: ...

    def type(self, data: bytes) -> None: ...

    def hold_typing(self) -> None:
        """Others' keys wait from here on."""

    def release_typing(self) -> None: ...

    def lines(self) -> list[str] | None:
        """The screen; None when there is no model of it."""

    def styled(self, y: int) -> bytes: ...

    @property
    def state(self) -> State: ...

    @property
    def agreed(self) -> bool: ...

    def shows_rest_since(self, at: float) -> bool:
        """Whether the agent itself has shown that it rests, at that time or later."""

    @property
    def typed_at(self) -> float:
        """When somebody last typed."""

    def has_read_all(self) -> bool:
        """Whether the agent is known to have read all that was typed."""

    @property
    def output_at(self) -> float:
        """When the agent last printed anything."""

    def tell(self, document: dict[str, Any]) -> None:
        """To those who watch the session: where delivery stands."""

    def announce(self, event: str, document: dict[str, Any]) -> None:
        """To the same, what happened to a message."""

    async def may_trust(self) -> bool:
        """Whether the question for trust may be answered with yes now."""

    def trusted(self) -> None:
        """It was answered with yes in this moment."""

    def handed_over(self) -> None:
        """A prompt was typed in this moment."""

    def last_word(self) -> bool:
        """Whether a stop of the agent is its end: no hook but ours can send it on."""

    @property
    def conversation(self) -> Mapping[str, Any]: ...

    def past(self, prompt: str, since: float, facts: Mapping[str, Any]) -> Past:
        """What the transcript of the conversation proves; reads files."""
