"""What any agent can report, as one typed stream of events. Pure: data.

Each agent has one parser for each of its sources: hooks or call channel, transcript, registry. A parser turns
what the source says into a `Report`: who it is about, and the events in it. State (`Observer`), turns
(`turns/turn`), permissions (`agents/permission`), progress (`agents/progress`), unattended answers
(`agents/unattended`) and the attention queue (`agents/attention`) are reducers over these events, and read
nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType

from remuda.frozen import frozen

from .state import Source

TYPE_CHECKING = False  # as type checkers read it; importing `typing` takes 2 ms
if TYPE_CHECKING:
    from typing import Any

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Failure(StrEnum):
    """Why the agent's own service did not answer."""

    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    AUTHENTICATION = "authentication"
    INVALID = "invalid_request"
    OTHER = "api_error"


@frozen
class Task:
    """Work that the agent left running. A shell may never end; other work ends, and wakes the agent."""

    id: str
    kind: str
    is_shell: bool = False
    description: str | None = None
    running: bool = True


# ── the conversation ──


@frozen
class ConversationStarted:
    """A conversation starts, or goes on in this process. `how`: startup, resume, clear, compact, fork."""

    how: str


@frozen
class ConversationEnded:
    why: str


# ── a prompt and its turn ──


@frozen
class PromptSubmitted:
    """The agent took this prompt."""

    prompt: str
    prompt_id: str | None = None
    notice: bool = False
    """The agent notifies itself that work in its background is done: no one's prompt."""
    ends: frozenset[str] = frozenset()
    """The work that is done, as `BackgroundStarted` named it."""
    continues: bool = False
    """After a rate limit the agent goes on by itself with its last prompt: no one's prompt."""


@frozen
class PromptRecorded:
    """The prompt is in the transcript."""

    prompt: str
    prompt_id: str | None = None
    conversation: str | None = None
    notice: bool = False


@frozen
class PromptRefused:
    """A hook of the user refused the prompt; it is back in the composer."""

    reason: str = ""


@frozen
class CommandRun:
    """A command of the agent's own (`/clear`) ran."""

    name: str
    finished: bool = True
    confirmed: bool = False
    """The agent itself reported that it is done: nothing more will be reported of it."""
    conversation: str | None = None
    """The conversation that it started."""
    arguments: str = ""
    output: str = ""
    """What it printed. Where this is reported apart from the command, `name` is empty."""


@frozen
class CommandUnknown:
    """The agent has no command of that name, and did nothing."""

    name: str


@frozen
class TextShown:
    """A piece of an answer appeared on the terminal. `index` counts the pieces of one message from 0."""

    message_id: object
    index: int | None
    text: str
    final: bool = False


@frozen
class MessageRecorded:
    """A message of the agent is in the transcript, with its usage. `final`: it ends a turn."""

    message_id: str
    usage: Mapping[str, Any]
    text: str = ""
    final: bool = False


@frozen
class TurnContinued:
    """A hook did not let the agent stop."""


@frozen
class TurnStopped:
    """The agent stopped; `text` is its answer. Its background work may wake it again."""

    text: str
    prompt_id: str | None = None
    background: tuple[Task, ...] = ()
    conversation: str | None = None
    doubt: str = ""
    """Why the text may not be an answer. The receipt has it in `degraded`."""


@frozen
class TurnFailed:
    kind: Failure
    text: str
    prompt_id: str | None = None
    retry_after: float | None = None
    resets_at: float | None = None
    """When a rate limit ends, in seconds since the epoch."""


@frozen
class TurnInterrupted:
    """The turn was interrupted."""

    prompt_id: str | None = None
    died: bool = False
    """It ended with the agent's server: no one asked for it."""


@frozen
class TurnHalted:
    """We stopped the agent before its next request, for `reason`."""

    reason: str
    prompt_id: None = None


@frozen
class TurnRecorded:
    """The transcript has the complete turn that has just ended."""


# ── tools and permissions ──


@frozen
class ToolStarted:
    tool: str
    input: object
    id: str = ""
    """Empty if the agent did not name the call."""
    asks: bool = False
    """The call opens a dialog for the user, and no hook may be there to report that."""


@frozen
class ToolFinished:
    """A tool ran, failed, or was `denied` and did not run."""

    id: str
    ok: bool
    denied: bool = False
    tool: str | None = None
    """None where only the id is known."""
    input: object = None


@frozen
class ToolOutput:
    id: str
    tool: str
    content: Any


@frozen
class ToolsFinished:
    """All calls of one message are done; `results` is what the model gets for them."""

    results: tuple[ToolOutput, ...]


@frozen
class BackgroundStarted:
    """The agent started background work that will wake it with a notice."""

    id: str


@frozen
class PermissionRequested:
    """The agent may not use a tool by itself. A question to the user and a plan come the same way."""

    tool: str
    input: object
    reason: str = "permission"
    """Or "question", or "plan"."""
    suggestions: Sequence[Mapping[str, Any]] = ()
    """Ways to be asked less, in the agent's own words."""
    prompt_id: str | None = None
    id: str = ""
    """Of the call; empty if the agent did not say."""


@frozen
class PermissionDecided:
    """A permission request was decided, by a client or at the terminal. `id` is that of the call.

    Empty: it was the dialog of a `DialogReported`.
    """

    id: str


@frozen
class DialogReported:
    """The agent notifies its user that a dialog is open. `kind` is its own word for it."""

    reason: str
    message: str
    kind: str
    reminder: bool = False
    """It comes some seconds after the dialog was opened, which may have been closed since."""


@frozen
class RestReported:
    """The agent notifies its user that it has been idle."""


@frozen
class StatusReported:
    """What the agent's registry file says. `status`: busy, idle, shell, waiting, or a word of its own."""

    status: str
    waiting_for: str = ""
    changed_ms: object = None
    process_started: object = None


AgentEvent = (
    ConversationStarted
    | ConversationEnded
    | PromptSubmitted
    | PromptRecorded
    | PromptRefused
    | CommandRun
    | CommandUnknown
    | TextShown
    | MessageRecorded
    | TurnContinued
    | TurnStopped
    | TurnFailed
    | TurnInterrupted
    | TurnHalted
    | TurnRecorded
    | ToolStarted
    | ToolFinished
    | ToolsFinished
    | BackgroundStarted
    | PermissionRequested
    | PermissionDecided
    | DialogReported
    | RestReported
    | StatusReported
)


@frozen
class Report:
    """What one source reported at one moment, and about which agent."""

    source: Source
    name: str
    """The agent's own word for it: the name of a hook, the type of a record."""
    events: tuple[AgentEvent, ...] = ()
    at: float | None = None
    """Seconds since the epoch, where the source dates what it says."""
    id: str = ""
    """The same for the same report, however often it is read; empty where the source has no id."""
    session_id: str | None = None
    pid: int | None = None
    subagent: str = ""
    """The id of a subagent; empty for the agent itself."""
    conversation: Mapping[str, str] = _NOTHING
    """session_id, transcript_path, cwd and model, as far as it says."""
    permission_mode: str | None = None
    carry_over: tuple[str, ...] = ()
    """Effects that would outlive the conversation."""
    facts: Mapping[str, Any] = _NOTHING
    """Facts that identify the session in the attention queue: entrypoint, title, origin."""
