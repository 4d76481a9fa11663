"""Copilot's hooks and files, as the boss reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from remuda.agents.attention import Event, attention_events
from remuda.agents.sources import (
    ConversationReader,
    NoSources,
    PermissionReader,
    ReadFile,
)

from .asking import CopilotPermissions
from .conversation import CopilotConversations
from .files import events_file, sessions_folder
from .hooks import read_hook
from .prompting import ENTER, PASTE_BEGIN, PASTE_END
from .records import read_record

_PERMISSIONS = CopilotPermissions()


class CopilotSources(NoSources):
    agent = "copilot"
    permissions: PermissionReader = _PERMISSIONS
    conversations: ConversationReader | None = CopilotConversations()

    def hook_events(
        self,
        payload: Mapping[str, Any],
        at: float,
        *,
        id: str = "",  # noqa: A002  # the id of the event
        env: Mapping[str, str] | None = None,
        read: ReadFile | None = None,
    ) -> list[Event]:
        describe = partial(_PERMISSIONS.facts, read=read)
        return attention_events(read_hook(payload, env), at, agent=self.agent, describe=describe, id=id)

    def find_transcript(self, env: Mapping[str, str], session_id: str) -> Path | None:
        path = events_file(env, session_id)
        return path if path is not None and path.exists() else None

    def transcript_folders(self, env: Mapping[str, str], cwd: Path) -> Iterable[Path]:
        return [sessions_folder(env)]

    def record_events(self, record: Mapping[str, Any], session_id: str) -> list[Event]:
        return attention_events(
            read_record(record, session_id), 0.0, agent=self.agent, describe=_PERMISSIONS.facts
        )

    def attach_command(self, session_id: str) -> str:
        return f"copilot --resume={session_id}"

    def paste_text(self, data: bytes) -> bytes:
        return data.removeprefix(PASTE_BEGIN).removesuffix(PASTE_END + ENTER)
