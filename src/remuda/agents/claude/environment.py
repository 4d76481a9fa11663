"""The environment that Claude Code is started with: the user's, less what is another agent's. Pure."""

from __future__ import annotations

from collections.abc import Mapping

IDENTITY_VARIABLES = (
    "CLAUDECODE",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_SESSION_KIND",
    "CLAUDE_CODE_CHILD_SESSION",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_EXECPATH",
    "CLAUDE_CODE_SKIP_PROMPT_HISTORY",
    "CLAUDE_CODE_MESSAGING_SOCKET",
    "CLAUDE_CODE_MESSAGING_TOKEN",
    "CLAUDE_PID",
    "CLAUDE_PROJECT_DIR",
    "CLAUDE_ENV_FILE",
    "AI_AGENT",
)

BLOCK_CAP_VARIABLE = "CLAUDE_CODE_STOP_HOOK_BLOCK_CAP"
"""How many stops in a row a hook may block: 8 unless set, 0 for any number. The next one is passed over."""

_LOOPBACK = ("127.0.0.1", "localhost")


def own_environment(env: Mapping[str, str]) -> dict[str, str]:
    """All of it but what tells an agent that it is somebody else, and with the block cap lifted."""
    kept = {name: value for name, value in env.items() if name not in IDENTITY_VARIABLES}
    kept.setdefault(BLOCK_CAP_VARIABLE, "0")
    return kept


def clean_environment(env: Mapping[str, str]) -> dict[str, str]:
    cleaned = own_environment(env)
    for name in ("NO_PROXY", "no_proxy"):
        cleaned[name] = _exclude_loopback(cleaned.get(name, ""))
    return cleaned


def _exclude_loopback(value: str) -> str:
    hosts = [host.strip() for host in value.split(",") if host.strip()]
    if "*" in hosts:
        return value
    return ",".join([*hosts, *(host for host in _LOOPBACK if host not in hosts)])
