"""How one agent takes prompts: which ones, by which transport, and how its screen and records are read. Pure.

`turns/` uses this. Each agent implements `PromptProtocol`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from remuda.frozen import frozen

if TYPE_CHECKING:
    from .base import SessionTransport


@frozen
class Carried:
    """A prompt as it is typed or passed as an argument."""

    data: bytes
    """What is typed, or the argument."""
    reported: str
    """The prompt as the agent is expected to report it."""


class ComposerKind(StrEnum):
    ABSENT = "absent"
    EMPTY = "empty"
    DRAFT = "draft"


@dataclass(frozen=True, slots=True)
class Composer:
    """The box for prompts as the screen shows it."""

    kind: ComposerKind
    text: str = ""
    stash_taken: bool = False
    """Whether a draft is stashed already: there is room for one."""


@frozen
class Choice:
    """Rows of an open dialog: which is highlighted, and which one is wanted."""

    highlighted: int
    wanted: int


@frozen
class Past:
    """What a transcript or a server proves of a turn whose end was not observed."""

    submitted: bool = False
    answered: bool = False
    text: str = ""
    prompt_id: str | None = None
    interrupted: bool = False
    stored: bool = False
    """The agent has the prompt and started no turn for it. It may add it to the next one."""


class PromptProtocol(Protocol):
    @property
    def transport(self) -> SessionTransport:
        """How a prompt reaches the agent of a session."""

    enter: bytes
    """The key that confirms: a prompt in the composer, or the highlighted row of a dialog."""
    trust_settle: float
    """Seconds after the trust dialog appears until its highlighted row is reliable."""

    def check(self, prompt: str, *, command: bool, literal: bool) -> None:
        """Raise `InputError` for a prompt that cannot reach the agent unchanged."""

    def argument(self, prompt: str, *, command: bool) -> Carried | None:
        """Return the prompt as an argument; None if it must go by the transport."""

    def same(self, reported: str, prompt: str) -> bool:
        """Return whether the agent reported this prompt, except for what the transport changes."""

    def holds(self, reported: str, prompt: str) -> bool:
        """Return whether it is this prompt together with other text."""

    def composer(self, lines: Sequence[str], styled: Callable[[int], bytes]) -> Composer: ...

    def dialog(self, lines: Sequence[str]) -> str | None:
        """Return a name for the dialog on the screen; None if none is open."""

    def trust_choice(self, lines: Sequence[str]) -> Choice | None:
        """Return the rows of the trust dialog; None if it is not open."""

    def past(self, records: Iterable[Mapping[str, Any]], prompt: str, since: float) -> Past:
        """Return what happened to `prompt`, handed over at `since` (seconds since the epoch) or later."""

    def limited_for(self, text: str, now: float) -> float | None:
        """Return how long a limit lasts by this text of the agent; None if it does not say."""

    def account(self, env: Mapping[str, str]) -> str:
        """Return a name for the account that limits apply to: the same for the same account."""
