"""A session for the driver of `turns/` whose agent does nothing by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from remuda.agents.prompting import Past
from remuda.agents.state import State


class StillSession:
    """Implements `remuda.turns.turn_terminal.Terminal`: an idle session that no one types into."""

    state = State.IDLE
    agreed = True
    is_guess = False
    output_at = 0.0
    typed_at = float("-inf")
    typed_text = False
    conversation: Mapping[str, Any] = {}
    screen: Sequence[str] = ()
    rests = True
    """Whether it shows that it rests, has read everything, and no hook can make it continue."""

    def __init__(self) -> None:
        self.typed = b""
        self.held = 0

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def type(self, data: bytes) -> None:
        self.typed += data

    def hold_typing(self) -> None:
        self.held += 1

    def release_typing(self) -> None:
        self.held = 0

    def lines(self) -> list[str]:
        return list(self.screen)

    def styled(self, y: int) -> bytes:
        return b""

    def shows_rest_since(self, at: float) -> bool:
        return self.rests

    def has_read_all(self) -> bool:
        return self.rests

    def tell(self, document: dict[str, Any]) -> None:
        pass

    def announce(self, event: str, document: dict[str, Any]) -> None:
        pass

    async def may_trust(self) -> bool:
        return True

    def trusted(self) -> None:
        pass

    def turn_ended(self) -> None:
        pass

    def handed_over(self) -> None:
        pass

    def last_word(self) -> bool:
        return self.rests

    def past(self, prompt: str, since: float, facts: Mapping[str, Any]) -> Past:
        return Past()
