"""What it takes to hand an agent a prompt, and what it says about a turn. Pure: data, and one protocol.

`turns/` drives this; what is true of one CLI stands behind `Speech`.
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


class Failure(StrEnum):
    """Why the agent's own service did not answer."""

    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    AUTHENTICATION = "authentication"
    INVALID = "invalid_request"
    OTHER = "api_error"


# ── what is told of a turn ──


@frozen
class Submitted:
    """The agent took this prompt."""

    prompt: str
    prompt_id: str | None = None
    notice: bool = False
    """The agent tells itself that something in the background is done: no prompt of anybody's."""
    ends: frozenset[str] = frozenset()
    """What that was, as `Launched` named it."""
    continues: bool = False
    """After a limit of its account it goes on by itself, with what it was at: no prompt of anybody's."""


@frozen
class Recorded:
    """It is in the transcript."""

    prompt: str
    prompt_id: str | None = None
    conversation: str | None = None


@frozen
class CommandRun:
    """A command of the agent's own ran."""

    name: str
    finished: bool = True
    confirmed: bool = False
    """The agent itself said that it is done: nothing more will be told of it."""
    conversation: str | None = None
    """The one that it began."""


@frozen
class Task:
    """What the agent has left running. A shell may be meant to run for ever; others end, and wake it."""

    id: str
    kind: str
    is_shell: bool = False


@frozen
class Launched:
    """It began something in the background that will wake it when it is done, with a notice."""

    id: str


@frozen
class Stopped:
    """It stopped and has said `text`. What it started in the background may go on and wake it again."""

    text: str
    prompt_id: str | None = None
    background: tuple[Task, ...] = ()
    conversation: str | None = None


@frozen
class Failed:
    kind: Failure
    text: str
    prompt_id: str | None = None
    retry_after: float | None = None


@frozen
class CommandUnknown:
    """The agent has no command of that name, and did nothing."""

    name: str


@frozen
class Refused:
    """A hook of the user's did not let the prompt pass; it is back in the composer."""

    reason: str = ""


@frozen
class Interrupted:
    """The turn was interrupted."""

    prompt_id: str | None = None


@frozen
class Halted:
    """We told it to stop before its next request, and why."""

    reason: str
    prompt_id: None = None


@frozen
class Said:
    """A message of the agent's, as the transcript has it, and what it cost."""

    message_id: str
    usage: Mapping[str, Any]
    text: str = ""
    final: bool = False
    """Whether it ends a turn."""


@frozen
class WrittenDown:
    """All of the turn that just ended is in the transcript."""


Signal = (
    Submitted
    | Recorded
    | CommandRun
    | CommandUnknown
    | Launched
    | Stopped
    | Failed
    | Refused
    | Interrupted
    | Halted
    | Said
    | WrittenDown
)


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

    def hook_signal(self, payload: Mapping[str, Any]) -> Signal | None: ...

    def record_signal(self, record: Mapping[str, Any]) -> Signal | None: ...

    def past(self, records: Iterable[Mapping[str, Any]], prompt: str, since: float) -> Past:
        """What became of `prompt`, handed over at `since` (seconds since the epoch) or later."""

    def limited_for(self, text: str, now: float) -> float | None:
        """How long a limit lasts by these words of the agent's; None where they do not say."""

    def account(self, env: Mapping[str, str]) -> str:
        """What the limits of the agent's service belong to; the same text for the same account."""
