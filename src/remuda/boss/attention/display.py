"""How sessions and requests are shown to people. Pure, and quick to import: every command needs it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from remuda.untrusted import one_line

_BEGINNING = 8
_PLAN = "the plan is shown only in the agent's terminal"
_DIALOG = "the request is shown only in the agent's terminal"


def label(name: str | None, folder: str | None, session_id: str) -> str:
    """Return the name of a kept session, else its folder, else the beginning of its id.

    The text is safe to print on a terminal.
    """
    text = name or (folder or "").rstrip("/").rpartition("/")[2] or session_id[:_BEGINNING]
    return one_line(text) or session_id[:_BEGINNING]


def beginnings(ids: Sequence[str]) -> dict[str, str]:
    """Return for each id a beginning that no other has."""
    size = _BEGINNING
    while len({one[:size] for one in ids}) < len(set(ids)):
        size += 1
    return {one: one[:size] for one in ids}


def distinct(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels by id.

    A label that several have is followed by the beginning of the id, which commands accept.
    """
    often = Counter(labels.values())
    begin = beginnings(list(labels))
    return {
        one: label if often[label] == 1 or begin[one] == label else f"{label} {begin[one]}"
        for one, label in labels.items()
    }


def why_hidden(reason: str, tool: str, tool_input: Mapping[str, object]) -> str:
    """Return why a request cannot be shown, so that no one can allow it from elsewhere; "" if it can.

    An agent that planned without a plan file reports no plan; `evidence.plans` looks for it elsewhere.
    """
    if not tool:
        return _DIALOG
    plan = tool_input.get("plan")
    return _PLAN if reason == "plan" and not (isinstance(plan, str) and plan.strip()) else ""
