"""What it takes to hand an agent a prompt: composer, keys, limits. Pure: data, and one protocol.

`turns/` drives this; what is true of one agent is behind `Speech`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from remuda.frozen import frozen


@frozen
class Carried:
    """A prompt as one way of handing it over carries it."""

    data: bytes
    """What is typed, or the argument."""
    reported: str
    """What the agent is expected to say that it got."""
    normalised: bool = False
    """Whether that is not what the sender wrote."""


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
    """Whether a draft was laid aside already: there is room for one."""


@frozen
class Choice:
    """Rows of an open dialog: which is highlighted, and which one is wanted."""

    highlighted: int
    wanted: int


@frozen
class Past:
    """What a transcript proves of a turn that nobody watched to its end."""

    submitted: bool = False
    answered: bool = False
    text: str = ""
    prompt_id: str | None = None
    interrupted: bool = False


class Speech(Protocol):
    stash: bytes
    """The key that lays a draft aside until the next prompt was taken."""
    enter: bytes
    interrupt: bytes
    wipe: bytes
    """The key that, pressed twice, takes away what stands in the composer of an agent at rest."""
    max_argument_bytes: int

    def check(self, prompt: str, *, command: bool, literal: bool) -> None:
        """Raises `InputError` for a prompt that no way of ours can carry as what it is."""

    def paste(self, prompt: str, *, command: bool) -> Carried: ...

    def argument(self, prompt: str, *, command: bool) -> Carried | None:
        """None when it has to be pasted."""

    def same(self, reported: str, prompt: str) -> bool:
        """Whether what the agent says it got is this prompt, as far as its transport changes prompts."""

    def holds(self, reported: str, prompt: str) -> bool:
        """Whether it is this prompt and something else beside it."""

    def composer(self, lines: Sequence[str], styled: Callable[[int], bytes]) -> Composer: ...

    def dialog(self, lines: Sequence[str]) -> str | None:
        """A name for the dialog on the screen, if one is open."""

    def trust_choice(self, lines: Sequence[str]) -> Choice | None:
        """The rows of the dialog that asks whether a folder is trusted; None when it is not open."""

    def past(self, records: Iterable[Mapping[str, Any]], prompt: str, since: float) -> Past:
        """What became of `prompt`, handed over at `since` (seconds since the epoch) or later."""

    def limited_for(self, text: str, now: float) -> float | None:
        """How long a limit lasts by these words of the agent's; None where they do not say."""

    def account(self, env: Mapping[str, str]) -> str:
        """What the limits of the agent's service belong to; the same text for the same account."""
