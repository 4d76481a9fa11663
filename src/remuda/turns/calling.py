"""Hands a prompt to an agent by a call, and searches for it when the answer is lost.

A call can be lost before its answer comes: with the keeper, or with the agent's server. Then the agent's
conversation is searched for the message first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace

from remuda.agents.events import AgentEvent, Failure, PromptSubmitted
from remuda.agents.prompting import CallRefused, ChannelLost, Past, PromptCall
from remuda.inbox.consumer import Leased

from .following import InFlight
from .turn import End, Outcome, past_outcome
from .turn_terminal import SessionChannel

log = logging.getLogger("remuda.turns")

# After this many seconds the answer to a call counts as lost. Users' keys are held back until then.
_CALL_TIMEOUT = 20.0
_SEARCH_INTERVAL = 1.0
_KNOWN_TURNS = 64


class Calling:
    """The calls of one session.

    `hear` gets the events that came before an answer, `release_typing` lets users type, and `hold` shows for
    some seconds why delivery waits.
    """

    def __init__(
        self,
        channel: SessionChannel,
        hear: Callable[[AgentEvent], None],
        release_typing: Callable[[], None],
        hold: Callable[[str, float], Awaitable[None]],
    ) -> None:
        self.channel = channel
        self._hear = hear
        self._release_typing = release_typing
        self._hold = hold
        self._unheard: list[AgentEvent] | None = None
        """Events that came while a call waited for its answer: only the answer says which turn is ours."""
        self._known_turns: deque[str] = deque(maxlen=_KNOWN_TURNS)

    @property
    def is_waiting(self) -> bool:
        """Whether a call waits for its answer."""
        return self._unheard is not None

    def keeps(self, event: AgentEvent) -> bool:
        """Take note of an event. Returns whether it is kept until the answer to a call has come."""
        if self._unheard is not None:
            self._unheard.append(event)
            return True
        if isinstance(event, PromptSubmitted) and event.prompt_id is not None:
            self._known_turns.append(event.prompt_id)
        return False

    async def call(self, flight: InFlight) -> None:
        """Hand over a prompt. Returns when it is proven whether the agent took it."""
        self._unheard = []
        try:
            async with asyncio.timeout(_CALL_TIMEOUT):
                turn_id = await self.channel.submit(_call_of(flight.leased))
            began_before = turn_id in self._known_turns or self._began_with_another(turn_id, flight)
            flight.called(turn_id, merged=began_before)
        except CallRefused as error:
            text = f"the agent refused the call: {error}"
            flight.turn.end(Outcome(End.FAILED, text, Failure.OTHER, submitted=False))
        except (ChannelLost, TimeoutError) as error:
            why = error if str(error) else f"none came within {_CALL_TIMEOUT:g} s"
            log.warning("the answer to the call of message %s was lost: %s", flight.leased.id, why)
            self._release_typing()
            self._take_past(flight, await self.search(flight.leased))
        finally:
            unheard, self._unheard = self._unheard, None
            for event in unheard:
                self._hear(event)

    def _began_with_another(self, turn_id: str, flight: InFlight) -> bool:
        """Return whether a turn began with the prompt of a user, who was faster than our call."""
        begun = [one for one in self._unheard or () if isinstance(one, PromptSubmitted)]
        first = next((one.prompt for one in begun if one.prompt_id == turn_id), None)
        return first is not None and not flight.turn.is_ours(first)

    def _take_past(self, flight: InFlight, past: Past) -> None:
        if past.submitted and past.prompt_id is not None and not (past.answered or past.interrupted):
            flight.called(past.prompt_id, merged=past.prompt_id in self._known_turns)
            return
        outcome = past_outcome(past, flight.leased, "the call was lost")
        lost = outcome.end is End.DIED and not outcome.submitted
        flight.turn.end(replace(outcome, end=End.LOST) if lost else outcome)

    async def search(self, leased: Leased) -> Past:
        """Search the agent's conversation for a prompt, as soon as the agent can be reached."""
        while True:
            try:
                async with asyncio.timeout(_CALL_TIMEOUT):
                    return await self.channel.find(_call_of(leased))
            except (ChannelLost, TimeoutError) as error:
                log.debug("no search for message %s: %s", leased.id, error)
                why = f"it is not known yet whether the agent runs message {leased.id}: {error}"
                await self._hold(why, _SEARCH_INTERVAL)


def _call_of(leased: Leased) -> PromptCall:
    conversation = leased.facts.get("session_id")
    return PromptCall(
        leased.id,
        leased.text,
        leased.command,
        conversation if isinstance(conversation, str) else None,
        leased.leased_at,
    )
