"""Read and check decisions on permission requests. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from remuda.agents import find_permissions
from remuda.agents.permission import PermissionDecision, PermissionRequest, check_refusals
from remuda.agents.sources import find_refusals
from remuda.errors import InvalidOptions, NotSafe

from ..attention.display import why_hidden
from ..attention.model import Approval, Reason

Answer = Mapping[str, Any]
"""behavior ("allow", "deny"); with allow: updated_input, answers, always; with deny: message, interrupt."""

LINK_FIELDS = ("behavior", "message", "answers")
"""What a link takes. It decides the request it was made for, and never changes what runs."""

_MEANT_FOR = {"allow": ("updated_input", "answers", "always"), "deny": ("message", "interrupt")}


def read_decision(approval: Approval, answer: Answer, agent: str) -> PermissionDecision:
    """Read a decision on a request of `agent`. Raises `InvalidOptions` if it does not fit the request."""
    behavior = answer.get("behavior")
    if behavior not in _MEANT_FOR:
        raise InvalidOptions(f"behavior must be allow or deny, not {behavior!r}")
    other = _MEANT_FOR["deny" if behavior == "allow" else "allow"]
    if wrong := [name for name in other if answer.get(name)]:
        raise InvalidOptions(f"{wrong[0]} cannot be combined with {behavior}")
    if behavior == "deny":
        return PermissionDecision(
            False, message=str(answer.get("message") or ""), interrupt=bool(answer.get("interrupt"))
        )
    made = PermissionDecision(True, _input(approval, answer, agent), always=bool(answer.get("always")))
    if approval.reason is Reason.BUDGET:  # no agent asks this
        return made
    permissions, asked = find_permissions(agent), as_question(approval)
    check_refusals(partial(find_refusals, permissions), asked, made)
    # Agents of other packages may not know such a name.
    if (check := getattr(permissions, "check_decision", None)) is not None:
        check(asked, made)
    return made


def check_link(approval: Approval, answer: Answer) -> None:
    """Raise `InvalidOptions` for a field that links do not take, `NotSafe` to allow what cannot be shown."""
    if unknown := sorted(answer.keys() - set(LINK_FIELDS)):
        raise InvalidOptions(
            f"a link does not take '{unknown[0][:40]}'", hint=f"it takes {', '.join(LINK_FIELDS)}"
        )
    unseen = why_hidden(approval.reason, approval.tool, approval.input)
    if unseen and answer.get("behavior") == "allow":
        raise NotSafe(f"a link cannot allow this: {unseen}", hint="decide in the agent's terminal")


def _input(approval: Approval, answer: Answer, agent: str) -> Mapping[str, Any] | None:
    """Return the input that replaces the requested one; None to keep that."""
    edited, answers = answer.get("updated_input"), answer.get("answers")
    if edited is not None and not isinstance(edited, Mapping):
        raise InvalidOptions("updated_input must be a JSON object")
    if approval.reason is not Reason.QUESTION:
        if answers:
            raise InvalidOptions("answers need a question; this request is not one")
        if edited is not None and not edited and approval.input:
            # Claude Code 2.1.325 takes an empty input for none, and runs the original one.
            raise InvalidOptions(
                "the edited input is empty", hint="deny the request, or pass the complete input of the tool"
            )
        return edited
    edited_input = {**approval.input, **(edited or {})}
    if not answers and (edited or {}).get("answers"):
        return edited_input
    if not answers:
        raise InvalidOptions("a question needs answers", hint="pass --answer 'QUESTION=ANSWER'")
    return find_permissions(agent).with_answers(edited_input, answers)


def as_question(approval: Approval) -> PermissionRequest:
    """Return the request in the form that its agent takes."""
    return PermissionRequest(
        approval.tool,
        approval.input,
        tuple(one for one in approval.suggestions if isinstance(one, Mapping)),
        approval.tool_use_id,
        str(approval.reason),
    )
