"""What opencode's requests, our transcript and our plugin tell the boss. It has no registry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from remuda.agents.attention import Event, attention_events
from remuda.agents.sources import BackgroundJob, ConversationReader, PermissionReader, ReadFile, RegistryEntry

from .asking import OpencodePermissions
from .conversation import OpencodeConversations
from .hooks import read_hook


class OpencodeSources:
    agent = "opencode"
    permissions: PermissionReader = OpencodePermissions()
    conversations: ConversationReader | None = OpencodeConversations()

    def hook_events(
        self,
        payload: Mapping[str, Any],
        at: float,
        *,
        id: str = "",  # noqa: A002
        env: Mapping[str, str] | None = None,
        read: ReadFile | None = None,
    ) -> list[Event]:
        report = read_hook(payload, at, env or {})
        return attention_events(report, at, agent=self.agent, describe=self._describe, id=id)

    def _describe(self, tool: str, given: object) -> dict[str, Any]:
        """Describe a request of the plugin, which cannot decide it."""
        return self.permissions.facts(tool, given) | {"at_terminal": True}

    def registry_folder(self, env: Mapping[str, str], transcript: str | None = None) -> Path | None:
        return None

    def read_registry(self, document: Mapping[str, Any]) -> RegistryEntry | None:
        return None

    def find_transcript(self, env: Mapping[str, str], session_id: str) -> Path | None:
        return None

    def transcript_folders(self, env: Mapping[str, str], cwd: Path) -> Iterable[Path]:
        return []

    def record_events(self, record: Mapping[str, Any], session_id: str) -> list[Event]:
        return []

    def job_files(self, registry: Path) -> Iterable[Path]:
        return []

    def read_job(self, document: Mapping[str, Any]) -> BackgroundJob | None:
        return None

    def attach_command(self, session_id: str) -> str:
        return f"opencode --session {session_id}"

    def paste_text(self, data: bytes) -> bytes:
        return data
