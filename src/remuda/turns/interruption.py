"""Stop a turn on request, with the agent's own key or call, and only while the agent works on that turn.

One press too many does harm: at rest, a second one opens a menu. So the key is pressed again only if the
agent still shows work after a while (a dialog drops keys in its first moments), and only a few times.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from remuda.agents.base import PasteTransport
from remuda.agents.prompting import Composer, ComposerKind, PromptProtocol
from remuda.agents.state import RESTING

from .turn_terminal import TurnTerminal

AGAIN_INTERVAL = 1.0
_MOST_PRESSES = 5
# Seconds in which the agent draws what a press did: the prompt may come back into the composer.
SETTLE = 0.15
_WIPE_TIMEOUT = 6.0

Wait = Callable[[float | None], Awaitable[None]]


class Interruption:
    """Can be requested at any time; `press` does what is possible now."""

    def __init__(self, terminal: TurnTerminal, interrupt: Callable[[], None]) -> None:
        self._terminal = terminal
        self._interrupt = interrupt
        self._pressed_at: float | None = None
        self._presses = 0
        self.wanted = False

    @property
    def pressed(self) -> bool:
        return self._pressed_at is not None

    @property
    def exhausted(self) -> bool:
        return self._presses >= _MOST_PRESSES

    def press(self) -> None:
        """Press the key if that is wanted and the agent works, or waits for a permission during its turn."""
        now = self._terminal.now()
        if not self.wanted or self._terminal.state in RESTING or self.exhausted:
            return
        if self._pressed_at is None or now - self._pressed_at >= AGAIN_INTERVAL:
            self._interrupt()
            self._pressed_at, self._presses = now, self._presses + 1

    @property
    def patience(self) -> float | None:
        """Seconds until the next check; None if only events matter."""
        if not self.wanted:
            return None
        return SETTLE if self._terminal.state in RESTING else AGAIN_INTERVAL

    @property
    def proven(self) -> bool:
        """Whether the agent has shown since the press that it rests, and has finished drawing."""
        terminal, pressed = self._terminal, self._pressed_at
        return (
            pressed is not None
            and terminal.state in RESTING
            and terminal.agreed
            and terminal.shows_rest_since(pressed)
            and terminal.now() - terminal.output_at >= SETTLE
        )


class Presses:
    """Decides when to press a key that works only if pressed twice, with a pause between. Pure.

    The second press follows when the agent has drawn the effect of the first, or at the latest moment that
    still counts. Both are repeated if they had no effect. They are never repeated if the agent has drawn
    nothing since: it may read all of them later, when they mean something else.
    """

    GAP = 0.25
    BLIND_GAP = 0.55
    AGAIN = 1.5
    MOST = 6

    def __init__(self) -> None:
        self._at = 0.0
        self._count = 0

    def is_due(self, now: float, drawn_at: float) -> bool:
        since, has_drawn = now - self._at, drawn_at > self._at
        if self._count == 0:
            return True
        if self._count >= self.MOST:
            return False
        if self._count % 2:
            return since >= (self.GAP if has_drawn else self.BLIND_GAP)
        return has_drawn and since >= self.AGAIN

    def press(self, now: float) -> None:
        self._at = now
        self._count += 1


async def wipe(
    terminal: TurnTerminal,
    prompts: PromptProtocol,
    paste: PasteTransport,
    prompt: str,
    since: float,
    wait: Wait,
    *,
    alone: bool,
) -> None:
    """Remove our prompt if it came back into the composer. A prompt that a user edited stays.

    `alone`: no draft was stashed when it was typed. Else the agent puts that draft before our prompt, and
    nothing is removed.
    """
    deadline = terminal.now() + _WIPE_TIMEOUT
    presses = Presses()
    terminal.hold_typing()
    while terminal.now() < deadline and terminal.typed_at < since and terminal.state in RESTING:
        lines = terminal.lines()
        if lines is None or not _is_ours(
            prompts.composer(lines, terminal.styled), prompts, prompt, alone=alone
        ):
            return
        if presses.is_due(terminal.now(), terminal.output_at):
            terminal.type(paste.wipe)
            presses.press(terminal.now())
        await wait(0.1)


def _is_ours(composer: Composer, prompts: PromptProtocol, prompt: str, *, alone: bool) -> bool:
    """Return whether the composer has our prompt and nothing else. Of a long one only the end is shown."""
    if composer.kind is not ComposerKind.DRAFT:
        return False
    return prompts.same(composer.text, prompt) or (alone and prompts.holds(prompt, composer.text))
