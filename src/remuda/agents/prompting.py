"""How one agent takes prompts: which ones, by which transport, and how its screen and records are read. Pure.

`turns/` uses this. Each agent implements `PromptProtocol`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from remuda.frozen import frozen, replaced

from .events import MessageRecorded, PromptRecorded, TurnInterrupted

if TYPE_CHECKING:
    from .base import SessionTransport
    from .events import Report
    from .permission import PermissionDecision, PermissionRequest


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


@frozen
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
    usages: tuple[Mapping[str, Any], ...] = ()
    """What each message of the turn used, if the source has that."""
    doubt: str = ""
    """Why the text may not be an answer."""


_CLOCK_SLACK = 2.0
"""Seconds: a record may be dated a moment before we wrote that the prompt was handed over."""


def past_of_reports(
    reports: Iterable[Report], prompt: str, since: float, same: Callable[[str, str], bool]
) -> Past:
    """Return what a transcript says of `prompt`, handed over at `since` or later. `same` compares prompts."""
    past, usages = Past(), dict[str, Mapping[str, Any]]()
    for report in reports:
        for event in () if report.subagent else report.events:
            if not past.submitted:
                is_new = (report.at or 0.0) >= since - _CLOCK_SLACK
                if isinstance(event, PromptRecorded) and same(event.prompt, prompt) and is_new:
                    past = Past(submitted=True, prompt_id=event.prompt_id)
            elif isinstance(event, PromptRecorded) and not event.notice:
                return past  # what follows answers the next prompt
            elif isinstance(event, MessageRecorded):
                usages[event.message_id] = event.usage
                past = replaced(past, usages=tuple(usages.values()))
                if event.final:
                    past = replaced(past, answered=True, text=event.text)
            elif isinstance(event, TurnInterrupted) and not past.answered:
                past = replaced(past, interrupted=True)
    return past


class PromptProtocol(Protocol):
    @property
    def transport(self) -> SessionTransport:
        """How a prompt reaches the agent of a session."""

    enter: bytes
    """The key that confirms: a prompt in the composer, or the highlighted row of a dialog."""
    trust_settle: float
    """Seconds after the trust dialog appears until its highlighted row is reliable."""
    keeps_unanswered: bool
    """Whether a prompt without an answer stays in the conversation: the model sees it with the next one."""

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


# ── calls to an agent's own server ──

# Prompts, decisions and interrupts go in, reports come out. An agent implements `CallChannel` in its folder,
# with the parsing of what comes apart from the connection. The keeper keeps one channel for each session
# (`keeper/call`), and `turns/driver` hands prompts to it. A call can be lost at any moment: after that the
# agent's conversation is searched before anything is called again.


@frozen
class CallAddress:
    """The address of an agent's server, and its secret."""

    url: str
    secret: str


@frozen
class PromptCall:
    """One prompt to hand over, or to search for."""

    id: str
    """The id of the message. Where the agent keeps ids of clients, this is the one."""
    prompt: str
    command: bool = False
    """It is a command of the agent, not text for the model."""
    conversation: str | None = None
    """For a search: the conversation that it was handed to; None means the current one."""
    since: float = 0.0
    """For a search: it was not handed over before this time (seconds since the epoch)."""


class ChannelLost(Exception):
    """The connection ended, or no answer came. What was called may have been taken."""


class CallRefused(Exception):
    """The agent refused the call. Nothing of it will run."""


class CallChannel(Protocol):
    """A connection to one agent's server. After a loss a new channel is made; none is used again."""

    async def connect(self, conversation: Mapping[str, Any]) -> None:
        """Connect, and join the conversation that the terminal shows. Raises `ChannelLost`.

        `conversation` is what was last known of it; empty before the first report.
        """

    def reports(self) -> AsyncIterator[Report]:
        """Yield what the agent reports, up to the loss of the connection, which raises `ChannelLost`.

        The first reports say what the agent is doing now, and how the turns ended that ran when the last
        channel was lost. Reports of turns that others started come too.
        """

    async def submit(self, call: PromptCall) -> str:
        """Hand over a prompt. Return the id of its turn, which is the `prompt_id` of the turn's events.

        Return only when the agent has started a turn for it. The id of a turn that was running before means
        that the prompt was added to that turn. Raises `CallRefused` or `ChannelLost`.
        """

    async def find(self, call: PromptCall) -> Past:
        """Search the conversation for a prompt that was handed over. Raises `ChannelLost`."""

    async def decide(self, request: PermissionRequest, decision: PermissionDecision) -> None:
        """Decide a permission request. One that is decided already is left as it is. Raises `ChannelLost`."""

    async def interrupt(self, turn_id: str | None) -> None:
        """Stop a turn; None for the one that runs. Does nothing for one that has ended."""

    async def aclose(self) -> None:
        """Close the connection. Calls under way raise `ChannelLost`. May be called repeatedly."""
