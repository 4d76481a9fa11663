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
    from .permission import Asking
    from .speech import Speech
    from .state import Vote
    from .tools import ToolBegan, ToolEnded
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
    events: Sequence[str] = ()
    """Hooks that are wanted beside those that tell the state."""
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

    def hook(self, payload: Mapping[str, Any], at: float) -> list[Vote]: ...

    def shown(self, payload: Mapping[str, Any]) -> str:
        """What a hook tells of the answer as it appears on the terminal: text that follows the last."""

    @property
    def last_shown(self) -> str | None:
        """The text that appeared last, exactly; None while not all of it has come."""

    def tools(self, payload: Mapping[str, Any]) -> list[ToolBegan | ToolEnded]:
        """What a hook tells of the tools that the agent uses."""

    @property
    def residue(self) -> Sequence[str]:
        """What the agent has begun that will outlive its conversation."""

    permission_mode: str | None
    """What it may do without being asked, in its own words, as far as it has said."""

    def title(self, title: str, at: float) -> list[Vote]: ...

    def screen(self, lines: Sequence[str], at: float) -> list[Vote]: ...

    def suspended(self, lines: Sequence[str]) -> bool:
        """Whether the screen says that it waits to be sent on by a shell, of which there is none here."""

    def registry(self, document: Mapping[str, Any], at: float, wall: float) -> list[Vote]: ...

    def transcript(self, record: Mapping[str, Any], at: float, wall: float) -> list[Vote]: ...

    def order(self) -> RecordOrder:
        """For the records of one transcript, from where it is read on."""

    def registry_path(self) -> Path | None: ...

    def transcript_path(self) -> Path | None: ...


class Answers(Protocol):
    """What the agent's hooks are told in place of a human."""

    @property
    def events(self) -> Sequence[str]: ...

    def answer(self, payload: Mapping[str, Any]) -> dict[str, Any] | None:
        """None for no opinion."""


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

    screen_setup: bytes
    """What the screen model is fed before all else, so that it counts columns as this program does."""

    def launch(self, context: LaunchContext) -> Launch: ...

    def answers(self, *, deny_permissions: bool, max_turns: int, first_only: bool = True) -> Answers | None:
        """None for a program that asks nobody. `first_only`: they hold for the first prompt."""

    def asking(self) -> Asking | None:
        """How it asks leave; None for a program that asks nobody."""

    def last_word(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> Callable[[], bool]:
        """Whether a stop of it is its end, whenever that is asked: nobody but us can send it on."""

    def trust_record(self, env: Mapping[str, str], cwd: str) -> TrustRecord | None:
        """None for a program that does not ask whether a folder is trusted."""

    def takes_argument(self, argv: Sequence[str]) -> bool:
        """Whether a first prompt may be added to this command: it has none of its own."""

    def fits_argument(self, prompt: str) -> bool:
        """Whether this prompt can be added to a command as what it is."""

    def observer(self, pid: int, env: Mapping[str, str], *, has_screen: bool) -> Observer | None:
        """None for a program of which nothing is known but its bytes."""
