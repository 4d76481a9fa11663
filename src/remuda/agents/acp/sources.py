"""What the requests and records of an ACP session tell the boss. It has no registry and no hooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from remuda.agents.attention import Event
from remuda.agents.sources import BackgroundJob, ConversationReader, PermissionReader, ReadFile, RegistryEntry

from .asking import AcpPermissions
from .records import AcpConversations


class AcpSources:
    agent = "acp"
    permissions: PermissionReader = AcpPermissions()
    conversations: ConversationReader | None = AcpConversations()

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
        return []

    def record_events(self, record: Mapping[str, Any], session_id: str) -> list[Event]:
        return []

    def job_files(self, registry: Path) -> Iterable[Path]:
        return []

    def read_job(self, document: Mapping[str, Any]) -> BackgroundJob | None:
        return None

    def attach_command(self, session_id: str) -> str:
        return ""

    def paste_text(self, data: bytes) -> bytes:
        return data
