"""What an agent offers to `remuda doctor --agent`: a bench to try it on, prompts and hazards.

`remuda/self_test` does the rest, and is the same for every agent. It starts the installed program with a
made-up home and key on the loopback model. An agent that can be tried so has a method `self_test`.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, runtime_checkable

from remuda.frozen import frozen

MADE_UP_KEY = "sk-remuda-bench-made-up-key-000000000000"
"""A key for agents that take any. It is only ever sent to loopback."""


@frozen
class BenchPlace:
    """Where the agent is tried."""

    home: Path
    temporary: Path
    model_url: str
    """The address of the loopback model."""
    trusted: Sequence[Path] = ()
    """The folders that the user of the made-up home trusts."""
    scratch: Sequence[Path] = ()
    """The folders that keepers made for their sessions there."""
    sockets: Sequence[Path] = ()
    """Where its servers listened besides."""


@frozen
class Hazard:
    """A prompt that the agent's terminal could take for something else than text."""

    prompt: str
    arrives: bool
    """Whether it has to reach the model as text; otherwise, it has to be refused."""


class SelfTest(Protocol):
    """How one agent is tried. Return an empty value for what the agent does not have: it is left out."""

    program: str
    """The name of the agent, as users know it."""
    time_limit: float
    """Seconds that the test may take."""
    variables: Mapping[str, str]
    """Variables of a session, besides `environment`."""
    arguments: Sequence[str]
    """Arguments of the session. They allow `allowed_command` and `failing_command`, and nothing else."""
    allowed_command: str
    """A shell command that prints `remuda-tool`."""
    failing_command: str
    """A shell command that fails."""
    sources: Sequence[str]
    """The sources that report the state of a session, as `status --explain` names them."""
    hooks: Sequence[str]
    """The hook events that have to come while all promises are tried."""
    dismiss: bytes
    """The key that answers no to a permission dialog."""
    bang: Sequence[Hazard]
    """Prompts that the terminal could run as shell commands. They may make a file named `PWNED`."""
    slash: Sequence[Hazard]
    """Prompts that the terminal could run as commands of the agent."""
    compact: str
    clear: str
    refused_commands: Sequence[str]
    """Those of both that exist at its terminal, and that a message cannot run: it has to be refused."""
    describes_calls: bool
    """Whether it can describe the calls that its server takes."""
    asks_trust: bool
    """Whether it asks if a folder is trusted."""
    backends: Sequence[str]
    """The backends of a pool that it can serve."""

    def environment(self, place: BenchPlace) -> dict[str, str]:
        """Return its own variables: address and key of the model, and what keeps it from the network."""

    def files(self, place: BenchPlace) -> Mapping[Path, bytes]:
        """Return the files of the made-up home."""

    def leftovers(self, place: BenchPlace) -> Sequence[Path]:
        """Return files and folders outside the bench that it makes, to be removed after the test."""

    def missing_calls(self, binary: Path, folder: Path) -> Sequence[str]:
        """Return what the program's own description of its server lacks of what we use.

        `folder` is empty, and may be filled.
        """

    def tool_prompt(self, command: str) -> str:
        """Return a prompt that makes the loopback model call the agent's shell tool with a command."""


def remove_leftovers(plan: SelfTest, place: BenchPlace) -> None:
    for path in plan.leftovers(place):
        shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):  # it is not a file, or was not made
            path.unlink()


@runtime_checkable
class OffersSelfTest(Protocol):
    """An agent that can be tried."""

    def self_test(self) -> SelfTest | None: ...
