"""The real Claude Code under test: benches to run it on, and keepers around it."""

from __future__ import annotations

import json
from typing import Any, Protocol

from remuda.keeper.environment import session_environment
from remuda.testing.loopback_model import LoopbackModel
from remuda.testing.real_cli import RealCli
from support.keeper import Kept, Start, until

QUESTION = {
    "name": "AskUserQuestion",
    "input": {
        "questions": [
            {
                "question": "Which colour?",
                "header": "Colour",
                "multiSelect": False,
                "options": [{"label": "Red", "description": "r"}, {"label": "Blue", "description": "b"}],
            }
        ]
    },
}
"""A call of the tool that asks the user, for the loopback model to make."""


PLAN = {"name": "ExitPlanMode", "input": {"plan": "first this, then that"}}
"""A call of the tool that asks whether a plan is agreed to."""


class MakeCli(Protocol):
    """Makes further benches, each with a home of its own."""

    def __call__(self, *, trust: bool = True) -> RealCli: ...


def keep(start: Start, cli: RealCli, *flags: str, **more: Any) -> Kept:
    """The CLI in a session named `c`; `env` is laid over the bench's own, the rest is the spec's."""
    env = session_environment({**cli.env, **more.pop("env", {})}, "c", "HEIMDALL_SESSION_ID", {})
    given: dict[str, Any] = {"agent": "claude", "classifier": "claude", "cols": 120, "rows": 40, **more}
    return start("c", cli.argv(*flags), cwd=str(cli.project), env=env, **given)


def hurried(cli: RealCli) -> RealCli:
    """One that has waited for its user long enough after a second, and not after a minute."""
    path = cli.home / ".claude.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "messageIdleNotifThresholdMs": 1000}))
    return cli


def tool(name: str, /, **given: object) -> str:
    """A prompt that lets the agent use a tool."""
    return f"TOOL {json.dumps({'name': name, 'input': given})}"


def outcomes(model: LoopbackModel) -> set[str]:
    """How all requests ended. The client may be gone before the model has noted it."""

    def ended() -> set[str]:
        found: set[str] = {request.outcome for request in model.main_requests}
        return set() if "open" in found else found

    return until(ended, "the end of every request")
