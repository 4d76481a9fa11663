"""What nobody can agree to from elsewhere, because nothing of it is known. Pure."""

from __future__ import annotations

from collections.abc import Mapping

_PLAN = "the plan is shown only in the agent's terminal"
_DIALOG = "the request is shown only in the agent's terminal"


def why_unseen(reason: str, tool: str, given: Mapping[str, object]) -> str:
    """Empty for a request that can be shown. An agent that planned without a plan file tells of no plan."""
    if not tool:
        return _DIALOG
    plan = given.get("plan")
    return _PLAN if reason == "plan" and not (isinstance(plan, str) and plan.strip()) else ""
