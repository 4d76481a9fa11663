"""How Claude Code's hook for permissions is answered (2.1.325). Pure.

A plan is in the request's input when the agent has written its plan file; else that is empty.
"""

from __future__ import annotations

from typing import Any

from remuda.agents.permission import PermissionDecision, PermissionRequest

from .hooks import permission_decision
from .stream.protocol import for_conversation

_DENIED = "The user does not want this. Go on without it, or say what you would need."


def answer_permission(request: PermissionRequest, decision: PermissionDecision) -> dict[str, Any]:
    if not decision.allow:
        deny: dict[str, Any] = {"behavior": "deny", "message": decision.message or _DENIED}
        return permission_decision(deny | ({"interrupt": True} if decision.interrupt else {}))
    allow: dict[str, Any] = {"behavior": "allow"}
    if decision.input is not None:
        allow["updatedInput"] = dict(decision.input)
    elif request.tool == "ExitPlanMode":
        allow["updatedInput"] = {}  # without one the answer is ignored
    if decision.always:
        edited = decision.input is not None
        given = request.input if decision.input is None else decision.input
        lasting = for_conversation(request.tool, given, request.suggestions, edited=edited)
        allow |= {"updatedPermissions": lasting} if lasting else {}
    return permission_decision(allow)
