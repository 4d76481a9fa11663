"""What opencode's requests, our transcript and our plugin tell the boss. It has no registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.agents.attention import Event, attention_events
from remuda.agents.sources import ConversationReader, NoSources, PermissionReader, ReadFile

from .asking import OpencodePermissions
from .conversation import OpencodeConversations
from .hooks import read_hook


class OpencodeSources(NoSources):
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

    def attach_command(self, session_id: str) -> str:
        return f"opencode --session {session_id}"
