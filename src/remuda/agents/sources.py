"""What an agent's hooks, files and pane tell the boss, also of agents that no keeper started.

The boss finds the files, watches and reads them; an agent says where they are and what they mean. An agent
without one of the parts below returns None for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .attention import Event
from .base import RecordOrder
from .conversation import Entry, MessageUsage, TurnBegun
from .permission import PermissionRequest, Refusals

ReadFile = Callable[[str], str | None]
"""Return the text of a file, or None: a write is shown as what it changes."""


@dataclass(frozen=True, slots=True)
class RegistryEntry:
    """What a running agent writes about itself."""

    pid: int
    event: Event
    """Its status, dated when that began."""
    status: str
    """The status in the agent's own words."""
    status_since: object = None
    """Changes when the status does."""
    is_idle: bool = False
    """The agent waits for a prompt and for nothing else."""
    outlives_process: bool = False
    """A background agent: it goes on when its process ends."""
    process_start: str | None = None
    """The start of the process in clock ticks: a pid may come to mean another process."""

    @property
    def session_id(self) -> str:
        return self.event.session_id


@dataclass(frozen=True, slots=True)
class BackgroundJob:
    """An agent that runs under a service of its own and outlives its processes."""

    agent: str
    session_id: str
    state: str
    """working, blocked, done, failed or stopped."""
    rests: bool
    """Its turn has ended, whether or not its process is running."""
    at: float
    """When this was written, in seconds since the epoch."""
    cwd: str | None = None
    title: str | None = None
    transcript: str | None = None
    needs: str = ""
    """What it waits for, in the words of its service."""


class PermissionReader(Protocol):
    """Reads the permission requests of one agent, for people and for the rules of the policy."""

    command_fields: Mapping[str, str]
    """Tools that run shell commands, and the field of the input with the command."""
    quiet_tools: frozenset[str]
    """Tools that run no commands."""

    def reason(self, tool: str) -> str:
        """Return "permission", "question" or "plan"."""

    def facts(self, tool: str, given: object, read: ReadFile | None = None) -> dict[str, Any]:
        """Return what there is to decide on: reason, tool, input and message; options, and a diff."""

    def is_plain(self, given: Mapping[str, Any], field: str) -> bool:
        """Whether the command in `field` is the complete request: not a way around a sandbox as well."""

    def path_fields(self, given: object) -> Iterator[object]:
        """Yield the value of each field that holds a path, at any depth, also one of a wrong type."""

    def search_pattern(self, tool: str, given: Mapping[str, Any]) -> object:
        """Return the pattern of paths that a search tool looks for; None for any other tool."""

    def with_answers(self, given: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[str, Any]:
        """Return the input of a question with the user's answers. Raises `InvalidOptions`."""

    def refusals(self, request: PermissionRequest) -> Refusals:
        """Return which decisions on a request the agent cannot take.

        "always" allows the same for the rest of the conversation. Refuse it if it would allow more than that.
        """


def find_refusals(permissions: PermissionReader | None, request: PermissionRequest) -> Refusals:
    """Return which decisions on a request its agent cannot take; nothing if the agent does not say."""
    # Agents of other packages may not know such a name.
    refusals = getattr(permissions, "refusals", None)
    return Refusals() if refusals is None else refusals(request)


def fields_like(name: re.Pattern[str], given: object) -> Iterator[object]:
    """Yield the values of all fields with such a name, at any depth. Each value of a list counts."""
    if isinstance(given, list):
        for one in given:
            yield from fields_like(name, one)
    elif isinstance(given, dict):
        for key, one in given.items():
            if not name.search(str(key)):
                yield from fields_like(name, one)
            elif one not in (None, ""):
                yield from one if isinstance(one, list) else [one]


class ConversationReader(Protocol):
    """Reads the records of one agent's conversations, for people and for accounts."""

    usage_marks: tuple[bytes, ...]
    """A line without any of these bytes says nothing about usage: it need not be parsed."""

    def entries(self, record: Mapping[str, Any], session_id: str) -> list[Entry]:
        """Return what a record says. An entry of usage has the id of its message, and may come again."""

    def usage(self, record: Mapping[str, Any], session_id: str) -> MessageUsage | TurnBegun | None:
        """Return what a message used, or that a turn began; None of a record of another conversation."""

    def usage_files(self, transcript: Path) -> Iterable[Path]:
        """Return the files with more messages of this conversation: those of its subagents."""

    def order(self, among: Iterable[Mapping[str, Any]]) -> RecordOrder:
        """Return what puts these records in order: an answer can be written before its prompt.

        Others that they follow may be missing: they were not parsed.
        """


class SharedTerminals(Protocol):
    """The terminals of an agent that has one server for all of them.

    The server runs the hooks. So these say which conversation it is, but not in which terminal it is shown.
    Sources without such terminals have no attribute `terminals`.
    """

    entrypoint: str
    """The fact `entrypoint` of a session that the server runs."""

    def conversation_of(self, words: Sequence[str]) -> str | None:
        """Return the conversation that a command names, else ""; None if it runs no such terminal."""

    def folder_of(self, words: Sequence[str]) -> str | None:
        """Return the folder that a command names; None for that of its process."""

    def began(self, session_id: str) -> float | None:
        """Return when a conversation began, in seconds since the epoch."""


class AgentSources(Protocol):
    """A class can begin with `NoSources`, and override what its agent has."""

    agent: str
    """The name in events. Agents of one name share their sources."""
    permissions: PermissionReader
    conversations: ConversationReader | None
    """None for an agent that keeps no records of what was said."""

    def hook_events(
        self,
        payload: Mapping[str, Any],
        at: float,
        *,
        id: str = "",  # noqa: A002  # the id of the event
        env: Mapping[str, str] | None = None,
        read: ReadFile | None = None,
    ) -> list[Event]:
        """Read a hook's payload. `env` is the environment of the hook, as far as it was passed on.

        The boss calls this in a thread, with `read`. An agent with many hooks also has `is_quick(payload)`: a
        hook for which that is true makes no diff, and is read at once, without `read`.
        """

    # ── running agents ──

    def registry_folder(self, env: Mapping[str, str], transcript: str | None = None) -> Path | None:
        """Return the folder with a file `PID.json` for each running agent.

        `transcript`: the folder that belongs to this transcript, which may not be that of `env`.
        """

    def read_registry(self, document: Mapping[str, Any]) -> RegistryEntry | None:
        """Read a file of the registry; None if it names no conversation."""

    # ── conversations ──

    def find_transcript(self, env: Mapping[str, str], session_id: str) -> Path | None:
        """Return the transcript of a conversation; None while it has none."""

    def transcript_folders(self, env: Mapping[str, str], cwd: Path) -> Iterable[Path]:
        """Return where a transcript of an agent in `cwd` will appear: its folder, then those above it."""

    def record_events(self, record: Mapping[str, Any], session_id: str) -> list[Event]:
        """Read a record of a transcript; nothing of a record of another conversation."""

    # ── background jobs ──

    def job_files(self, registry: Path) -> Iterable[Path]:
        """List the state files of the background jobs that belong to a registry.

        Each is in a folder of its own, which is removed with the job.
        """

    def read_job(self, document: Mapping[str, Any]) -> BackgroundJob | None:
        """Read a state file; None if it is not one."""

    def attach_command(self, session_id: str) -> str:
        """Return the command that shows a background job in a terminal."""

    # ── typing into a pane ──

    def paste_text(self, data: bytes) -> bytes:
        """Return what `PromptProtocol.paste` made without the marks of a paste and the Enter at its end.

        tmux adds the marks by itself.
        """


class NoSources:
    """What an agent without hooks, registry, transcripts and background jobs says to the boss."""

    conversations: ConversationReader | None = None

    def hook_events(
        self,
        payload: Mapping[str, Any],
        at: float,
        *,
        id: str = "",  # noqa: A002
        env: Mapping[str, str] | None = None,
        read: ReadFile | None = None,
    ) -> list[Event]:
        return []

    def registry_folder(self, env: Mapping[str, str], transcript: str | None = None) -> Path | None:
        return None

    def read_registry(self, document: Mapping[str, Any]) -> RegistryEntry | None:
        return None

    def find_transcript(self, env: Mapping[str, str], session_id: str) -> Path | None:
        return None

    def transcript_folders(self, env: Mapping[str, str], cwd: Path) -> Iterable[Path]:
        return ()

    def record_events(self, record: Mapping[str, Any], session_id: str) -> list[Event]:
        return []

    def job_files(self, registry: Path) -> Iterable[Path]:
        return ()

    def read_job(self, document: Mapping[str, Any]) -> BackgroundJob | None:
        return None

    def attach_command(self, session_id: str) -> str:
        return ""

    def paste_text(self, data: bytes) -> bytes:
        return data
