"""What the keeper asks of an agent. Everything that is true of one CLI and of no other stands behind this.

An `Agent` says how it is started; its `Observer` turns what is seen of it into votes. Neither does I/O:
the keeper writes the files, serves the hooks, watches the paths, and hands over what came.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from remuda.frozen import frozen

if TYPE_CHECKING:  # an agent is started before anybody has to understand it
    from .events import Report
    from .headless import Headless
    from .permission import PermissionDecision, PermissionRequest
    from .setup import AgentSetup
    from .sources import AgentSources
    from .speech import Speech
    from .state import Vote
    from .warm import WarmAgent


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
    """A shell command that hands its standard input to the keeper, for hooks that cannot be http. Empty where
    nobody waits for the agent's start, only for its first answer."""
    conversation: Mapping[str, Any] = _NOTHING
    """What to resume; empty for a new conversation."""
    prompt: str | None = None
    """The first prompt, to be given as an argument."""
    limits_turns: bool = False
    """The end of each batch of tools has to be reported as well."""
    asks: bool = False
    """Permissions may be given from elsewhere: the hook for that waits as long as it takes."""
    tools: bool = False
    """What the agent's tools say is wanted as well."""


@frozen
class Launch:
    """How to start: arguments, environment, files to write first, and what will not be known of it."""

    argv: list[str]
    env: dict[str, str]
    files: Mapping[Path, bytes] = _NOTHING
    degraded: Sequence[str] = ()


class RecordOrder(Protocol):
    """Puts the records of a transcript into the order in which they follow from each other."""

    hold_seconds: float
    """A record that others follow is waited for no longer than this."""

    @property
    def holds(self) -> bool:
        """Whether there are records that wait for one that they follow."""

    def take(self, record: dict[str, Any]) -> list[dict[str, Any]]:
        """What may be read now."""

    def flush(self) -> list[dict[str, Any]]:
        """What was held: it is no longer waited for what comes before it."""


class Observer(Protocol):
    """Reads one running agent. Every method returns votes, most often none or one.

    `at` is now, on the clock of the votes; `wall` is now as files date things.
    """

    conversation: dict[str, Any]
    """Which conversation the agent is in, as far as it has said."""

    def read_record(self, record: Mapping[str, Any]) -> Report:
        """Parse a line of the transcript."""

    def read_registry(self, document: Mapping[str, Any]) -> Report:
        """Parse the agent's registry file."""

    def take(self, report: Report, at: float, wall: float) -> list[Vote]:
        """What a report of a hook, the transcript or the registry says about the state."""

    permission_mode: str | None
    """What it may do without being asked, in its own words, as far as it has said."""

    def title(self, title: str, at: float) -> list[Vote]: ...

    def screen(self, lines: Sequence[str], at: float) -> list[Vote]: ...

    def suspended(self, lines: Sequence[str]) -> bool:
        """Whether the screen says that it waits to be sent on by a shell, of which there is none here."""

    def order(self) -> RecordOrder:
        """For the records of one transcript, from where it is read on."""

    def registry_path(self) -> Path | None: ...

    def transcript_path(self) -> Path | None: ...


class HookChannel(Protocol):
    """An agent's hooks: what they say, and how they are answered."""

    def read(self, payload: Mapping[str, Any], at: float) -> Report:
        """Parse a payload that came at `at` (seconds since the epoch)."""

    def read_emitted(self, arguments: Mapping[str, Any]) -> Report | None:
        """Parse what `keeper/emit` passed on; None if that is not a payload."""

    def decide(self, request: PermissionRequest, decision: PermissionDecision) -> dict[str, Any]:
        """The answer that decides a permission request."""

    def refuse_prompt(self, reason: str) -> dict[str, Any]:
        """The answer that keeps the agent from taking a prompt."""

    def halt(self, reason: str) -> dict[str, Any]:
        """The answer that stops the agent before its next request."""


class TrustRecord(Protocol):
    """Where an agent writes down that a session's folder is trusted. All of it may wait for the disk."""

    def has_loans(self) -> bool:
        """Whether any session was lent trust that was not taken back yet."""

    def lend(self, session: str) -> None:
        """Note that what the agent is about to write down is for this session only."""

    def take_back(self, session: str | None = None, *, accepted: bool = False) -> None:
        """Take back what the session was lent, unless a human `accepted` it, and what dead ones were."""


class Agent(Protocol):
    name: str
    classifier: str
    """The byte-timing classifier that is used while nothing better has spoken."""
    default_argv: tuple[str, ...]
    """What runs when the user named no command; empty when one is needed."""

    @property
    def speech(self) -> Speech | None:
        """How it is handed prompts; None for a program that never says what it took."""

    @property
    def warm(self) -> WarmAgent | None:
        """How a pool keeps it ready for many requests; None for a program that cannot be."""

    @property
    def headless(self) -> Headless | None:
        """How it runs without a person; None for a program that cannot."""

    @property
    def sources(self) -> AgentSources | None:
        """What its hooks and files tell the boss; None for a program that has neither."""

    screen_setup: bytes
    """What the screen model is fed before all else, so that it counts columns as this program does."""

    def launch(self, context: LaunchContext) -> Launch: ...

    @property
    def hooks(self) -> HookChannel | None:
        """None for a program that has no hooks."""

    def last_word(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> Callable[[], bool]:
        """Whether a stop of it is its end, whenever that is asked: nobody but us can send it on."""

    def trust_record(self, env: Mapping[str, str], cwd: str) -> TrustRecord | None:
        """None for a program that does not ask whether a folder is trusted."""

    def setup(self) -> AgentSetup | None:
        """How Remuda is installed in the agent's own settings; None for a program without such settings."""

    def takes_argument(self, argv: Sequence[str]) -> bool:
        """Whether a first prompt may be added to this command: it has none of its own."""

    def fits_argument(self, prompt: str) -> bool:
        """Whether this prompt can be added to a command as what it is."""

    def observer(self, pid: int, env: Mapping[str, str], *, has_screen: bool) -> Observer | None:
        """None for a program of which nothing is known but its bytes."""
