"""What codex's files say to the boss."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remuda.agents.attention import Event, agent_pid, attention_events, pane_facts
from remuda.agents.sources import (
    ConversationReader,
    NoSources,
    PermissionReader,
    ReadFile,
    SharedTerminals,
)
from remuda.proctree import command_of

from .asking import CodexPermissions
from .files import find_rollout
from .hooks import read_hook
from .launch import split_words
from .rollout import CodexConversations, read_record

_SERVER = "app-server"


class CodexTerminals:
    """`codex` starts one server that all its terminals share, and that runs the hooks (0.166.0)."""

    entrypoint = _SERVER

    def conversation_of(self, words: Sequence[str]) -> str | None:
        if not words or Path(words[0]).name != "codex":
            return None
        found = split_words([word for word in words[1:] if word])
        if found.command not in ("", "resume", "fork") or found.values("--no-daemon"):
            return None  # one without the shared server runs its hooks itself
        return found.rest[0] if found.command == "resume" and found.rest else ""

    def folder_of(self, words: Sequence[str]) -> str | None:
        return next(iter(split_words(words[1:]).values("-C", "--cd")), None)

    def began(self, session_id: str) -> float | None:
        """Return the time in an id: codex makes ids of version 7."""
        try:
            made = uuid.UUID(session_id)
        except ValueError:
            return None
        return (made.int >> 80) / 1000 if made.version == 7 else None


def _place(env: Mapping[str, str]) -> tuple[int | None, dict[str, Any]]:
    """Return the terminal's process, and its pane. The shared server has those of its first terminal."""
    pid = agent_pid(env)
    words = command_of(pid) if pid is not None else []
    if not words:
        return None, {}
    if split_words(words[1:]).command == _SERVER:
        return None, {"entrypoint": _SERVER}
    return pid, pane_facts(env)


class CodexSources(NoSources):
    agent = "codex"
    permissions: PermissionReader = CodexPermissions()
    conversations: ConversationReader | None = CodexConversations()
    terminals: SharedTerminals = CodexTerminals()

    def hook_events(
        self,
        payload: Mapping[str, Any],
        at: float,
        *,
        id: str = "",  # noqa: A002  # it is the event's
        env: Mapping[str, str] | None = None,
        read: ReadFile | None = None,
    ) -> list[Event]:
        return attention_events(
            read_hook(payload, *_place(env or {})), at, agent=self.agent, describe=self._describe, id=id
        )

    def _describe(self, tool: str, given: object) -> dict[str, Any]:
        """Describe a request of a hook, which does not wait: codex shows no dialog while a hook runs."""
        return self.permissions.facts(tool, given) | {"at_terminal": True}

    def find_transcript(self, env: Mapping[str, str], session_id: str) -> Path | None:
        return find_rollout(env, session_id)

    def record_events(self, record: Mapping[str, Any], session_id: str) -> list[Event]:
        return attention_events(read_record(record, session_id), 0.0, agent=self.agent)

    def attach_command(self, session_id: str) -> str:
        return f"codex resume {session_id}"
