"""The real copilot under test: a made home, and keepers around it."""

from __future__ import annotations

from typing import Any, Protocol

from remuda.keeper.environment import session_environment
from remuda.testing.real_cli.copilot import RealCopilot
from support.keeper import Start
from support.messages import Post
from support.real_sessions import tool

QUESTION = tool(
    "ask_user",
    message="Which color?",
    requestedSchema={
        "type": "object",
        "properties": {"color": {"type": "string", "enum": ["Red", "Blue"]}},
        "required": ["color"],
    },
)


class MakeCopilot(Protocol):
    """Makes benches, each with a home of its own."""

    def __call__(self, *, trust: bool = True) -> RealCopilot: ...


def keep_copilot(start: Start, cli: RealCopilot, *flags: str, **more: Any) -> Post:
    """Copilot in a session, `p` by default; `env` is laid over the bench's own, the rest is the spec's."""
    name = more.pop("name", "p")
    env = session_environment({**cli.env, **more.pop("env", {})}, name, "HEIMDALL_SESSION_ID", {})
    given: dict[str, Any] = {"agent": "copilot", "cols": 120, "rows": 40, "asks": True, **more}
    return Post(start(name, cli.argv(*flags), cwd=str(cli.project), env=env, **given))


def shell(command: str) -> str:
    """A prompt that lets the agent run a command."""
    return RealCopilot.plan.tool_prompt(command)
