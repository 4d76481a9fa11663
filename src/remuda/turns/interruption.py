"""Stopping a turn on request: the agent's own key for it, pressed only while the agent is at that turn.

One press too many is not harmless: at rest a second one opens a menu. So it is pressed again only when the
agent still shows work a good while later (a dialog drops the keys of its first moments), and not for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from remuda.agents.speech import Composer, ComposerKind, Speech
from remuda.agents.state import RESTING

from .terminal import Terminal

AGAIN_INTERVAL = 1.0
_MOST_PRESSES = 5
# What is drawn behind a press: the prompt may come back into the composer.
SETTLE = 0.15
_WIPE_TIMEOUT = 6.0

Wait = Callable[[float | None], Awaitable[None]]


class Interruption:
    """Asked for at any time; `press` does what can be done now."""

    def __init__(self, terminal: Terminal, speech: Speech) -> None:
        self._terminal = terminal
        self._speech = speech
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
        """When it is wanted and the agent is at work, or waits for leave in the middle of it."""
        now = self._terminal.now()
        if not self.wanted or self._terminal.state in RESTING or self.exhausted:
            return
        if self._pressed_at is None or now - self._pressed_at >= AGAIN_INTERVAL:
            self._terminal.type(self._speech.interrupt)
            self._pressed_at, self._presses = now, self._presses + 1

    @property
    def patience(self) -> float | None:
        """How long to wait before the next look; None when only events matter."""
        if not self.wanted:
            return None
        return SETTLE if self._terminal.state in RESTING else AGAIN_INTERVAL

    @property
    def proven(self) -> bool:
        """The agent shows since the press that it rests, and all that it drew of that is on the screen."""
        terminal, pressed = self._terminal, self._pressed_at
        return (
            pressed is not None
            and terminal.state in RESTING
            and terminal.agreed
            and terminal.shows_rest_since(pressed)
            and terminal.now() - terminal.output_at >= SETTLE
        )


class Presses:
    """When to press a key of which only two in a row count, and not two that come at once. Pure.

    The second follows when the agent has drawn what the first did, or when it must not be later. They are
    pressed again when nothing came of them and the agent has forgotten the last; never on one that has drawn
    nothing since, as it may read all of them later, when they mean something else.
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
    terminal: Terminal, speech: Speech, prompt: str, since: float, wait: Wait, *, alone: bool
) -> None:
    """Take a prompt of ours away that came back into the composer; one that somebody touched is theirs.

    `alone`: no draft was laid aside when it was typed. Else the agent brings that back in front of it, and
    nothing is taken away.
    """
    deadline = terminal.now() + _WIPE_TIMEOUT
    presses = Presses()
    terminal.hold_typing()
    while terminal.now() < deadline and terminal.typed_at < since and terminal.state in RESTING:
        lines = terminal.lines()
        if lines is None or not _is_ours(
            speech.composer(lines, terminal.styled), speech, prompt, alone=alone
        ):
            return
        if presses.is_due(terminal.now(), terminal.output_at):
            terminal.type(speech.wipe)
            presses.press(terminal.now())
        await wait(0.1)


def _is_ours(composer: Composer, speech: Speech, prompt: str, *, alone: bool) -> bool:
    """Whether our prompt is all that stands there. Of a long one only the end is shown."""
    if composer.kind is not ComposerKind.DRAFT:
        return False
    return speech.same(composer.text, prompt) or (alone and speech.holds(prompt, composer.text))
