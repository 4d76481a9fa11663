"""What an agent is. Each agent implements these protocols; no other room knows its details.

An `Agent` says how it is started; its `Observer` turns what is seen of it into votes. Neither does I/O:
the keeper writes the files, serves the hooks, watches the paths, and hands over what came.

A prompt goes to an agent by one of three transports:

- `paste`: it is typed into the agent's composer, and hooks or files report what became of it.
- `call`: it is a call to a local server of the agent, which also reports events and takes decisions.
- `stream`: it is a message on the standard input of an agent without a terminal (`agents/headless`).

`turns/driver` uses the first two. It is the only code that hands a prompt to a session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from remuda.frozen import frozen

if TYPE_CHECKING:  # an agent is started before its reports must be read
    from .events import Report
    from .headless import Headless, MessageReader
    from .permission import PermissionDecision, PermissionRequest
    from .prompting import CallAddress, CallChannel, Carried, PromptProtocol
    from .setup import AgentSetup
    from .sources import AgentSources
    from .state import Vote
    from .warm import PoolWorker, WarmAgent, WorkerProfile


_NOTHING: Mapping[Any, Any] = MappingProxyType({})


@frozen
class LaunchContext:
    """What an agent may use to prepare its start."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    scratch: Path
    hook_url: str
    hook_token: str
    emit_command: str
    """A shell command that passes its standard input to the keeper, for hooks that cannot be http.

    Empty for a call of `print`, which waits for the first answer and not for the start.
    """
    conversation: Mapping[str, Any] = _NOTHING
    """What to resume; empty for a new conversation."""
    woken: bool = False
    """Whether its session was asleep: it goes on as if its process had never ended."""
    is_known: bool = False
    """Whether nothing waits for a report of its start: its process and its conversation are known."""
    permission_mode: str = ""
    """The mode to go on in, in the agent's own words; empty for that of the arguments and settings."""
    model: str = ""
    """The same for the model."""
    permissions: Sequence[Mapping[str, Any]] = ()
    """What was allowed for this conversation, in the agent's own words."""
    prompt: str | None = None
    """The first prompt, to pass as an argument."""
    limits_turns: bool = False
    """Whether to report the end of each batch of tools too."""
    asks: bool = False
    """Whether clients may decide permission requests: the hook for these then waits."""
    tools: bool = False
    """Whether to report the output of the agent's tools too."""
    call_secret: str = ""
    """The secret of the agent's server. Only the server and the agent get it."""
    call: CallAddress | None = None
    """Where the agent's server listens; None before it runs, and for an agent that has none."""


@frozen
class Launch:
    """How to start: arguments, environment, files to write first. `degraded`: what cannot be observed."""

    argv: list[str]
    env: dict[str, str]
    files: Mapping[Path, bytes] = _NOTHING
    degraded: Sequence[str] = ()


# ── prompt transports ──


class PasteTransport(Protocol):
    """Prompts are typed into the composer of the agent."""

    kind: Literal["paste"]
    stash: bytes
    """The key that stashes a draft until the next prompt was taken."""
    interrupt: bytes
    wipe: bytes
    """The key that, pressed twice, clears the composer of an idle agent."""

    def paste(self, prompt: str, *, command: bool) -> Carried:
        """Return what to type, with the Enter at its end."""


@frozen
class Companion:
    """A process that serves an agent's calls. The keeper starts it before the agent, and ends it after."""

    argv: list[str]
    env: dict[str, str]
    files: Mapping[Path, bytes] = _NOTHING


class CallTransport(Protocol):
    """Prompts are calls to a server of the agent. The terminal shows the same conversation."""

    kind: Literal["call"]
    start_timeout: float
    """Seconds that the companion may take until it listens."""

    def companion(self, context: LaunchContext) -> Companion | None:
        """Return the process to start; None if the agent serves calls itself.

        `context.call` is the address of one that died. The new one has to listen at the same address, where
        the agent looks for it.
        """

    def find_address(self, context: LaunchContext, output: str) -> str | None:
        """Return where it listens, once it does. `output` is what the companion has printed so far."""

    def may_start_again(self, output: str) -> bool:
        """Return whether to start a companion again that ended while it started, with this output."""

    def channel(self, address: CallAddress) -> CallChannel:
        """Return a channel that is not connected yet."""


class StreamTransport(Protocol):
    """Prompts are messages on the standard input of an agent without a terminal."""

    kind: Literal["stream"]

    def arguments(self, passed: Sequence[str], *, inherit_hooks: bool, partial: bool) -> list[str]:
        """Return the arguments of one call of `remuda print`."""

    def environment(self, env: Mapping[str, str]) -> dict[str, str]: ...

    def message_reader(self) -> MessageReader: ...

    def worker(self, session_id: str, profile: WorkerProfile) -> PoolWorker:
        """Return a worker of a pool that serves many requests in one process."""

    def print_worker(self, session_id: str, profile: WorkerProfile) -> PoolWorker:
        """Return a worker of a pool that runs a new process for each request."""


SessionTransport = PasteTransport | CallTransport
"""What a session with a terminal can have."""


# ── what is seen of a running agent ──


class RecordOrder(Protocol):
    """Sorts the records of a transcript: each after the record that it follows."""

    hold_seconds: float
    """Seconds to wait for a missing record that others follow."""

    @property
    def holds(self) -> bool:
        """Whether records are held back for one that they follow."""

    def take(self, record: dict[str, Any]) -> list[dict[str, Any]]:
        """Take a record. Return those that may be read now."""

    def flush(self) -> list[dict[str, Any]]:
        """Return the records that were held back."""


class Observer(Protocol):
    """Reads one running agent. Every method returns votes, most often none or one.

    `at` is now on the monotonic clock of the votes; `wall` is now in seconds since the epoch.
    """

    conversation: dict[str, Any]
    """The agent's conversation, as far as it is known."""

    def read_record(self, record: Mapping[str, Any]) -> Report:
        """Parse a line of the transcript."""

    def read_registry(self, document: Mapping[str, Any]) -> Report:
        """Parse the agent's registry file."""

    def take(self, report: Report, at: float, wall: float) -> list[Vote]:
        """Return the votes of a report from a hook, the transcript or the registry."""

    permission_mode: str | None
    """The agent's permission mode in its own words; None if unknown."""

    def title(self, title: str, at: float) -> list[Vote]: ...

    def screen(self, lines: Sequence[str], at: float) -> list[Vote]: ...

    def suspended(self, lines: Sequence[str]) -> bool:
        """Return whether the screen says that the agent is suspended: it waits for `fg` of a shell."""

    def order(self) -> RecordOrder:
        """Return what sorts the records of one transcript."""

    def registry_path(self) -> Path | None: ...

    def transcript_path(self) -> Path | None: ...


class Resumption(Protocol):
    """What a new process of an agent would bring back of the one that runs, whose reports it takes."""

    model: str
    """What the model was changed to since the start, in the agent's own words; empty if it was not."""

    def take(self, report: Report) -> None: ...

    def decided(self, request: PermissionRequest, answer: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Take the answer to a permission request. Return what it allows for the conversation."""

    def losses(self, lines: Sequence[str]) -> list[str]:
        """Return what would be lost, in words; empty if nothing would. `lines` is the screen."""

    def permission_mode(self, lines: Sequence[str]) -> str | None:
        """Return the mode that a new process must be started in; None if it is not known."""

    def check(self, conversation: Mapping[str, Any]) -> None:
        """Raise `NotSafe` unless it is proven that the conversation can be resumed. Reads files."""


class HookChannel(Protocol):
    """An agent's hooks: what they say, and how they are answered."""

    def read(self, payload: Mapping[str, Any], at: float) -> Report:
        """Parse a payload that came at `at` (seconds since the epoch)."""

    def read_emitted(self, arguments: Mapping[str, Any]) -> Report | None:
        """Parse what `keeper/emit` passed on; None if that is not a payload."""

    def decide(self, request: PermissionRequest, decision: PermissionDecision) -> dict[str, Any]:
        """Return the answer that decides a permission request."""

    def refuse_prompt(self, reason: str) -> dict[str, Any]:
        """Return the answer that keeps the agent from taking a prompt."""

    def halt(self, reason: str) -> dict[str, Any]:
        """Return the answer that stops the agent before its next request."""


class TrustRecord(Protocol):
    """Where an agent saves that a session's folder is trusted. Every method may wait for the disk."""

    def has_loans(self) -> bool:
        """Return whether any session has lent trust that was not withdrawn yet."""

    def lend(self, session: str) -> None:
        """Note that the trust which the agent is about to save is for this session only."""

    def take_back(self, session: str | None = None, *, accepted: bool = False) -> None:
        """Withdraw the trust of this session, unless a human `accepted` it, and that of dead sessions."""


class Agent(Protocol):
    name: str
    classifier: str
    """The byte-timing classifier, used until a better source has reported."""
    default_argv: tuple[str, ...]
    """The command if the user gives none; empty if one is required."""

    @property
    def prompts(self) -> PromptProtocol | None:
        """How prompts are handed over; None for a program that never confirms one."""

    @property
    def warm(self) -> WarmAgent | None:
        """How a pool keeps it ready for many requests; None if it cannot."""

    @property
    def headless(self) -> Headless | None:
        """How it runs without a person; None for a program that cannot."""

    @property
    def sources(self) -> AgentSources | None:
        """How the boss reads its hooks and files; None if it has neither."""

    screen_setup: bytes
    """What the screen model is fed first, so that it counts columns as this program does."""

    def launch(self, context: LaunchContext) -> Launch: ...

    @property
    def hooks(self) -> HookChannel | None:
        """How its hooks are read and answered; None if it has no hooks."""

    def last_word(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> Callable[[], bool]:
        """Return a check whether a stop is final: no hook but ours can make the agent continue."""

    def trust_record(self, env: Mapping[str, str], cwd: str) -> TrustRecord | None:
        """Return where trust is saved; None if it does not ask whether a folder is trusted."""

    def resumption(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> Resumption | None:
        """Return what can be brought back by a new process; None if its sessions cannot sleep."""

    def setup(self) -> AgentSetup | None:
        """How Remuda is installed in the agent's own settings; None for a program without such settings."""

    def takes_argument(self, argv: Sequence[str]) -> bool:
        """Return whether a prompt may be added to this command: it has none yet."""

    def fits_argument(self, prompt: str) -> bool:
        """Return whether this prompt can be passed as an argument unchanged."""

    def observer(self, pid: int, env: Mapping[str, str], *, has_screen: bool) -> Observer | None:
        """Return the observer; None for a program that only prints."""
