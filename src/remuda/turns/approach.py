"""Before a prompt is typed: is the session ready for it, and what may be done to make it so.

A draft is laid aside, and the question whether a folder is trusted is answered where the user allowed it.
Nothing else is ever pressed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from remuda.agents.speech import Choice, Composer, ComposerKind, Speech

from .account import Account
from .policy import Rules
from .readiness import Look, Readiness, readiness
from .terminal import Terminal

log = logging.getLogger("remuda.turns")

_STASH_TIMEOUT = 3.0
_TRUST_PAUSE = 0.3
# The dialog goes back to its default row once, 0.13 s after it was drawn.
_TRUST_SETTLE = 1.0


class Approach:
    """`wait` returns when something may have changed, or after so many seconds."""

    def __init__(
        self,
        terminal: Terminal,
        speech: Speech,
        account: Account,
        rules: Rules,
        wait: Callable[[float], Awaitable[None]],
    ) -> None:
        self._terminal = terminal
        self._speech = speech
        self._account = account
        self._rules = rules
        self._wait = wait
        self._trust_seen = False
        self._trust_marked = False
        self.begun = False
        """Whether the agent has told anything yet."""

    def readiness(self) -> Readiness:
        terminal, lines = self._terminal, self._terminal.lines()
        composer: Composer | None = None
        dialog = None
        if lines is not None:
            composer = self._speech.composer(lines, terminal.styled)
            dialog = self._speech.dialog(lines)
        return readiness(
            Look(
                state=terminal.state,
                agreed=terminal.agreed,
                composer=composer,
                dialog=dialog,
                since_typed=terminal.now() - terminal.typed_at,
                draft_patience=self._rules.draft_patience,
                limited_for=0.0 if self._rules.once else self._account.limited_for(time.time()),
            )
        )

    async def stash(self) -> bool:
        """Lay a draft aside; the agent brings it back when the next prompt was taken. Whether it is gone."""
        self._terminal.hold_typing()
        try:
            self._terminal.type(self._speech.stash)
            deadline = self._terminal.now() + _STASH_TIMEOUT
            while self._terminal.now() < deadline:
                await self._wait(0.1)
                lines = self._terminal.lines()
                if lines and self._speech.composer(lines, self._terminal.styled).kind is ComposerKind.EMPTY:
                    log.info("stashed a draft")
                    return True
        finally:
            self._terminal.release_typing()
        return False

    def trust_choice(self) -> Choice | None:
        lines = self._terminal.lines()
        return self._speech.trust_choice(lines) if lines is not None else None

    async def trusted(self) -> bool:
        """Whether the dialog that asks for trust was open, and was answered a step further."""
        # It is asked before all else: rows that say so later are somebody's words.
        choice = self.trust_choice() if self._rules.trust and not self.begun else None
        if choice is not None and not self._trust_seen:
            self._trust_seen = True
            await asyncio.sleep(_TRUST_SETTLE)
        elif choice is not None:
            await self._trust(choice)
        return choice is not None

    async def _trust(self, choice: Choice) -> None:
        """Move to the row that says yes, see that it is highlighted and stays so, and only then confirm.

        The dialog goes back to its first row once, a moment after it is drawn: on a busy machine that may be
        behind our key.
        """
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
        self._terminal.type(self._speech.enter)
        self._terminal.trusted()
        await asyncio.sleep(_TRUST_PAUSE)

    def has_stash(self) -> bool:
        lines = self._terminal.lines()
        return lines is not None and self._speech.composer(lines, self._terminal.styled).stash_taken

    def has_draft(self) -> bool:
        lines = self._terminal.lines()
        return (
            lines is not None
            and self._speech.composer(lines, self._terminal.styled).kind is ComposerKind.DRAFT
        )
