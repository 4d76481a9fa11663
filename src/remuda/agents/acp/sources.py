"""What the requests and records of an ACP session tell the boss. It has no registry and no hooks."""

from __future__ import annotations

from remuda.agents.sources import ConversationReader, NoSources, PermissionReader

from .asking import AcpPermissions
from .records import AcpConversations


class AcpSources(NoSources):
    agent = "acp"
    permissions: PermissionReader = AcpPermissions()
    conversations: ConversationReader | None = AcpConversations()
