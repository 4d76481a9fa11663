"""What `remuda print` and the pool ask of an agent that runs without a person at its terminal.

`find_agent(name).headless` is an agent's implementation. It answers three questions: what the words of a
`print` command line mean, how the agent is started on each backend, and what its transcript says as print's
messages. `stream` is its mode without a terminal, if it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from remuda.frozen import frozen

TYPE_CHECKING = False  # as type checkers read it; importing `typing` takes 2 ms
if TYPE_CHECKING:
    from typing import Any, Protocol

    from .base import StreamTransport

    Message = dict[str, Any]
else:
    Message, Protocol = dict, object
"""A message as `remuda print --output-format stream-json` prints it."""
Lines = Sequence[str]
"""The rows of a screen."""


# ── the words of a command line ──


class Handling(StrEnum):
    """What `remuda print` does with a flag of the agent."""

    PASSED = "passed on"
    OURS = "carried out by us"
    STREAM = "stream backend only"
    REFUSED = "refused"


@frozen
class PrintFlags:
    """The flags of one agent, as `remuda print` reads them."""

    terminal: Mapping[str, Handling]
    """Every flag, with what happens to it on the terminal backend."""
    aliases: Mapping[str, str]
    ours: frozenset[str]
    """Flags that `print` carries out itself on every backend."""
    needs_value: frozenset[str]
    takes: Callable[[str, int, str], bool]
    """Whether a word is a value of this flag, which has that many values already."""

    def handling(self, flag: str, backend: str) -> Handling | None:
        """Return what happens to a flag, or None for one that the agent does not have."""
        known = self.terminal.get(flag)
        if known is None or backend == "terminal" or known is Handling.REFUSED:
            return known
        return Handling.OURS if flag in self.ours else Handling.PASSED


# ── one turn as print's messages ──


@frozen
class TurnEnd:
    """How a call ended: `reason` as the agent names it, `errors` for an end without a text."""

    reason: str = "completed"
    subtype: str = "success"
    is_error: bool = False
    text: str | None = None
    errors: tuple[str, ...] = ()
    usage_known: bool = True
    """Whether the transcript has all messages of the turn. Without them the usage is not known."""


class TurnFacts(Protocol):
    """What the transcript says of a turn so far."""

    @property
    def version(self) -> str | None:
        """Return the agent's version."""

    @property
    def model(self) -> str | None: ...

    @property
    def text(self) -> str:
        """Return the answer so far."""

    @property
    def woken(self) -> bool:
        """Whether the agent went on after its answer, because a background task ended."""

    @property
    def goes_on(self) -> bool:
        """Whether the agent will go on by itself, so that its last text is not the answer yet."""

    @property
    def is_api_error(self) -> bool: ...

    @property
    def said_all(self) -> bool:
        """Whether the last message so far ends a turn."""

    def has(self, answer: str) -> bool:
        """Whether the transcript has everything up to this answer."""


class PrintedTurn(Protocol):
    """Follows the transcript of one turn and translates it into print's messages."""

    @property
    def facts(self) -> TurnFacts: ...

    def follow(self, path: Path, prompt_id: str | None) -> None:
        """Set the transcript, and the prompt that starts the turn."""

    def read(self) -> bool:
        """Read what was appended. Return whether there was anything new."""

    def shown(self, text: str) -> None:
        """Take text that has just appeared on the terminal."""

    def result(self, ended: TurnEnd, duration_ms: int, backend: str) -> Message:
        """Return the result message. Messages that must precede it are emitted first."""


class MessageReader(Protocol):
    """Reads the output of the agent's own headless mode."""

    def feed(self, data: bytes) -> Iterator[Message]: ...

    def close(self) -> Iterator[Message]:
        """Return what is left when the output has ended."""

    def why(self) -> str:
        """Return what the agent is doing, for the message of a timeout."""


class Dialogs(Protocol):
    """Reads questions and notices from the agent's screen."""

    def open_dialog(self, lines: Lines) -> str | None:
        """Return the name of a dialog of a known form, or None."""

    def asks_for_trust(self, lines: Lines) -> bool:
        """Whether the agent asks if it may trust the folder. The keeper answers that."""

    def is_question(self, lines: Lines) -> bool:
        """Whether the agent asks something, in whatever words."""

    def refusal(self, lines: Lines) -> str | None:
        """Return why the agent cannot start with its arguments, or None."""

    def retrying(self, lines: Lines) -> str | None:
        """Return a sentence about a retry of the API that is shown, or None."""

    def shown(self, lines: Lines) -> str:
        """Return the end of the screen, or the question on it, as one line."""


class NoDialogs:
    """Dialogs of an agent whose screen shows none. A subclass adds what it shows."""

    def open_dialog(self, lines: Lines) -> str | None:
        return None

    def asks_for_trust(self, lines: Lines) -> bool:
        return False

    def is_question(self, lines: Lines) -> bool:
        return self.open_dialog(lines) is not None

    def refusal(self, lines: Lines) -> str | None:
        return None

    def retrying(self, lines: Lines) -> str | None:
        return None

    def shown(self, lines: Lines) -> str:
        return ""


# ── the protocol ──


class Headless(Protocol):
    program: str
    """The command that is looked up in PATH."""
    install_hint: str

    @property
    def stream(self) -> StreamTransport | None:
        """How it is run without a terminal, for the backends stream and print; None if it cannot be."""

    @property
    def print_flags(self) -> PrintFlags: ...

    def terminal_arguments(
        self, passed: Sequence[str], env: Mapping[str, str], cwd: Path, *, inherit_hooks: bool, asks: bool
    ) -> list[str]:
        """Return the arguments of a call on the terminal backend. Raises `AgentRefused`.

        `asks`: a person can answer questions.
        """

    def print_turn(self, emit: Callable[[Message], None] | None, *, partial: bool) -> PrintedTurn:
        """Follow one turn. `emit` gets its messages, pieces of text too if `partial`."""

    @property
    def dialogs(self) -> Dialogs: ...

    def max_turns_reason(self, limit: int) -> str: ...

    def check_typed(self, prompt: str) -> None:
        """Raise `InputError` for a prompt that cannot be typed into the agent's terminal as it is."""

    def find_control(self, prompt: str) -> tuple[int, str] | None:
        """Return the first character that a terminal cannot take, with its position."""

    def pretrust(self, env: Mapping[str, str], cwd: str, warn: Callable[[str], None]) -> bool:
        """Trust a folder for good. Return whether that changed anything."""

    def text_message(self, text: str, session_id: str | None) -> Message:
        """Return the message for a piece of the answer."""

    def turn_messages(
        self,
        path: Path,
        prompt_id: str | None,
        answer: str,
        *,
        failed: bool,
        model: str | None,
        seconds: float,
    ) -> list[Message]:
        """Read a finished turn from its transcript, as the messages that `print` would have printed."""
