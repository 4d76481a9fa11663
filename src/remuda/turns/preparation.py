"""Before a prompt is typed: check that the session is ready, and make it ready where that is allowed.

A draft is stashed, and the trust dialog is answered if the user allowed it. No other key is ever pressed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from remuda.agents.prompting import Choice, Composer, ComposerKind, PromptProtocol

from .account import Account
from .holds import Holds
from .message_policy import Rules
from .readiness import DRAW_TIMEOUT, Readiness, SessionSnapshot, readiness
from .turn_terminal import SessionChannel, TurnTerminal

log = logging.getLogger("remuda.turns")

_STASH_TIMEOUT = 3.0
_TRUST_PAUSE = 0.3


class Preparation:
    """`wait` returns when something may have changed, or after that many seconds."""

    def __init__(
        self,
        terminal: TurnTerminal,
        prompts: PromptProtocol,
        account: Account,
        rules: Rules,
        wait: Callable[[float], Awaitable[None]],
        caller: SessionChannel | None = None,
        holds: Holds | None = None,
    ) -> None:
        self._terminal = terminal
        self._prompts = prompts
        self._account = account
        self._rules = rules
        self._wait = wait
        self._caller = caller
        self._holds = holds
        self.restarted()

    def restarted(self) -> None:
        """Begin again: the agent runs in a new process."""
        self._trust_seen = False
        self._trust_marked = False
        self.begun = False
        """Whether the agent has reported anything yet."""

    def readiness(self) -> Readiness:
        terminal, lines = self._terminal, self._terminal.lines()
        since_typed = terminal.now() - terminal.typed_at
        composer: Composer | None = None
        dialog = None
        if lines is not None:
            composer = self._prompts.composer(lines, terminal.styled)
            dialog = self._prompts.dialog(lines)
        return readiness(
            SessionSnapshot(
                state=terminal.state,
                agreed=terminal.agreed,
                is_guess=terminal.is_guess,
                composer=composer,
                dialog=dialog,
                since_typed=since_typed,
                drawn_keys=since_typed >= DRAW_TIMEOUT or self._has_drawn_keys(),
                draft_patience=self._rules.draft_patience,
                limited_for=0.0 if self._rules.once else self._account.limited_for(time.time()),
                hold=self._hold(),
                by_call=self._caller is not None,
                connected=self._caller is None or self._caller.connected,
            )
        )

    def _hold(self) -> str:
        if self._holds is None or self._rules.once:  # of a program, which has limits of its own
            return ""
        session_id = self._terminal.conversation.get("session_id")
        return self._holds.reason(session_id if isinstance(session_id, str) else None, time.time())

    def _has_drawn_keys(self) -> bool:
        """Return whether an empty composer proves that the last keys of a user are not on their way to it."""
        terminal = self._terminal
        has_printed = terminal.output_at > terminal.typed_at
        return has_printed and not terminal.typed_text and terminal.has_read_all()

    async def stash(self, key: bytes) -> bool:
        """Stash a draft; the agent restores it after the next prompt. Returns whether it is stashed."""
        self._terminal.hold_typing()
        try:
            self._terminal.type(key)
            deadline = self._terminal.now() + _STASH_TIMEOUT
            while self._terminal.now() < deadline:
                await self._wait(0.1)
                lines = self._terminal.lines()
                if lines and self._prompts.composer(lines, self._terminal.styled).kind is ComposerKind.EMPTY:
                    log.info("stashed a draft")
                    return True
        finally:
            self._terminal.release_typing()
        return False

    def trust_choice(self) -> Choice | None:
        lines = self._terminal.lines()
        return self._prompts.trust_choice(lines) if lines is not None else None

    async def trusted(self) -> bool:
        """Take one step to answer the trust dialog. Returns whether it was open."""
        # It is the first dialog. Such rows on a later screen are other text.
        choice = self.trust_choice() if self._rules.trust and not self.begun else None
        if choice is not None and not self._trust_seen:
            self._trust_seen = True
            await asyncio.sleep(self._prompts.trust_settle)
        elif choice is not None:
            await self._trust(choice)
        return choice is not None

    async def _trust(self, choice: Choice) -> None:
        """Move to the row that says yes, and confirm only when it is seen to stay highlighted."""
        if choice.highlighted != choice.wanted:
            self._trust_marked = False
            step = b"\x1b[B" if choice.wanted > choice.highlighted else b"\x1b[A"
            self._terminal.type(step * abs(choice.wanted - choice.highlighted))
            await asyncio.sleep(_TRUST_PAUSE)
            return
        if not self._trust_marked:
            self._trust_marked = await self._terminal.may_trust()
            await asyncio.sleep(_TRUST_PAUSE)
            return
        log.info("answered the trust dialog with yes, as the start options allow")
        self._terminal.type(self._prompts.enter)
        self._terminal.trusted()
        await asyncio.sleep(_TRUST_PAUSE)

    def has_stash(self) -> bool:
        lines = self._terminal.lines()
        return lines is not None and self._prompts.composer(lines, self._terminal.styled).stash_taken

    def has_draft(self) -> bool:
        lines = self._terminal.lines()
        return (
            lines is not None
            and self._prompts.composer(lines, self._terminal.styled).kind is ComposerKind.DRAFT
        )
