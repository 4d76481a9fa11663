"""What an agent asks leave for, and what it is answered. Pure: data, and one protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Question:
    """A tool that the agent may not use by itself. A question to the user and a plan come the same way."""

    tool: str
    input: Mapping[str, Any]
    suggestions: Sequence[Mapping[str, Any]] = ()
    """Ways to be asked less, in the agent's own words."""
    tool_use_id: str | None = None
    reason: str = "permission"
    """Or "question", or "plan"."""
    cwd: str | None = None
    """Where it would be used."""


@dataclass(frozen=True, slots=True)
class Ruling:
    allow: bool
    input: Mapping[str, Any] | None = None
    """To be used in place of what was asked."""
    message: str = ""
    """For the agent, with a no."""
    interrupt: bool = False
    """With a no: end the turn too."""
    always: bool = False
    """With a yes: do not ask again in this conversation."""


@dataclass(frozen=True, slots=True)
class Over:
    """These calls are over, or all of them: nobody waits for an answer any more."""

    ids: frozenset[str] = field(default_factory=frozenset)
    all: bool = False


class Asking(Protocol):
    """One agent's way of asking. Fed with all that is told of it, in order."""

    def hook(self, payload: Mapping[str, Any]) -> Question | Over | None: ...

    def record(self, record: Mapping[str, Any]) -> Over | None: ...

    def registry(self, document: Mapping[str, Any]) -> bool | None:
        """Whether a dialog is open; None for no word of it."""

    def answer(self, question: Question, ruling: Ruling) -> dict[str, Any]:
        """What the hook is to say."""
