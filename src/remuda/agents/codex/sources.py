"""What codex's files say to the boss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from remuda.agents.attention import Event, attention_events
from remuda.agents.sources import (
    BackgroundJob,
    ConversationReader,
    PermissionReader,
    ReadFile,
    RegistryEntry,
)

from .asking import CodexPermissions
from .files import find_rollout
from .hooks import read_hook
from .rollout import CodexConversations, read_record


class CodexSources:
    agent = "codex"
    permissions: PermissionReader = CodexPermissions()
    conversations: ConversationReader | None = CodexConversations()

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
            read_hook(payload), at, agent=self.agent, describe=self.permissions.facts, id=id
        )

    def registry_folder(self, env: Mapping[str, str], transcript: str | None = None) -> Path | None:
        """Return None: codex keeps no list of its processes."""
        return None

    def read_registry(self, document: Mapping[str, Any]) -> RegistryEntry | None:
        return None

    def find_transcript(self, env: Mapping[str, str], session_id: str) -> Path | None:
        return find_rollout(env, session_id)

    def transcript_folders(self, env: Mapping[str, str], cwd: Path) -> Iterable[Path]:
        return []

    def record_events(self, record: Mapping[str, Any], session_id: str) -> list[Event]:
        return attention_events(read_record(record, session_id), 0.0, agent=self.agent)

    def job_files(self, registry: Path) -> Iterable[Path]:
        return []

    def read_job(self, document: Mapping[str, Any]) -> BackgroundJob | None:
        return None

    def attach_command(self, session_id: str) -> str:
        return f"codex resume {session_id}"

    def paste_text(self, data: bytes) -> bytes:
        return data
