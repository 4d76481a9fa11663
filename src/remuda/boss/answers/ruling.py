"""What somebody says to a request for leave, read and made whole. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.agents.claude.asking import with_answers
from remuda.agents.permission import Question, Ruling
from remuda.errors import InvalidOptions

from ..attention.model import Approval, Reason

Answer = Mapping[str, Any]
"""behavior ("allow", "deny"); with allow: updated_input, answers, always; with deny: message, interrupt."""

_MEANT_FOR = {"allow": ("updated_input", "answers", "always"), "deny": ("message", "interrupt")}


def read_ruling(approval: Approval, answer: Answer) -> Ruling:
    """Raises `InvalidOptions` for what is no answer to this."""
    behavior = answer.get("behavior")
    if behavior not in _MEANT_FOR:
        raise InvalidOptions(f"behavior is allow or deny, not {behavior!r}")
    other = _MEANT_FOR["deny" if behavior == "allow" else "allow"]
    if wrong := [name for name in other if answer.get(name)]:
        raise InvalidOptions(f"{wrong[0]} makes no sense with {behavior}")
    if behavior == "deny":
        return Ruling(
            False, message=str(answer.get("message") or ""), interrupt=bool(answer.get("interrupt"))
        )
    return Ruling(True, _input(approval, answer), always=bool(answer.get("always")))


def _input(approval: Approval, answer: Answer) -> Mapping[str, Any] | None:
    """What is to be used in place of what was asked; None for that itself."""
    edited, answers = answer.get("updated_input"), answer.get("answers")
    if edited is not None and not isinstance(edited, Mapping):
        raise InvalidOptions("updated_input must be an object")
    if approval.reason is not Reason.QUESTION:
        if answers:
            raise InvalidOptions("answers are for questions, and this is none")
        if edited is not None and not edited and approval.input:
            # Claude Code 2.1.325 takes an empty one for none, and runs what it asked for.
            raise InvalidOptions("the edited input is empty", hint="deny it, or give all that the tool needs")
        return edited
    given = {**approval.input, **(edited or {})}
    if not answers and given.get("answers"):
        return given
    if not answers:
        raise InvalidOptions("a question is allowed with its answers", hint="--answer 'QUESTION=ANSWER'")
    return with_answers(given, answers)


def question(approval: Approval) -> Question:
    """What was asked, as its agent understands it."""
    return Question(
        approval.tool,
        approval.input,
        tuple(one for one in approval.suggestions if isinstance(one, Mapping)),
        approval.tool_use_id,
        str(approval.reason),
    )
