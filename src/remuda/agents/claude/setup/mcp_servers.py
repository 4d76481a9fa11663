"""Our MCP server in the CLI's own configuration, `.claude.json`: make, recognise, add and remove it. Pure.

`claude mcp add --scope user` writes the same (2.1.325). The CLI starts it for every session of the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.agents.mcp_server import NAME, is_ours, server_command
from remuda.errors import InvalidOptions


def make_server() -> dict[str, Any]:
    """Return the entry."""
    program, *arguments = server_command()
    return {"type": "stdio", "command": program, "args": arguments, "env": {}}


def find_server(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return our entry; None if there is none."""
    servers = document.get("mcpServers")
    server = servers.get(NAME) if isinstance(servers, dict) else None
    return server if isinstance(server, dict) and is_ours(server.get("command"), server.get("args")) else None


def put_server(document: dict[str, Any], server: Mapping[str, Any]) -> None:
    """Add the entry, in place of an older one of ours. Raises `InvalidOptions` if its place is taken."""
    servers = document.get("mcpServers", {})
    if not isinstance(servers, dict):
        raise InvalidOptions("'mcpServers' must be an object", hint="fix it first")
    if NAME in servers and find_server(document) is None:
        raise InvalidOptions(
            f"'mcpServers.{NAME}' is another server",
            hint=f"remove it first: claude mcp remove {NAME} -s user",
        )
    document.setdefault("mcpServers", {})[NAME] = dict(server)


def take_server(document: dict[str, Any]) -> bool:
    """Remove our entry. Return whether there was one."""
    if find_server(document) is None:
        return False
    del document["mcpServers"][NAME]
    if not document["mcpServers"]:
        del document["mcpServers"]
    return True
