"""Who decided a permission request first, and what happened then. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remuda.untrusted import finite

from ..attention.model import Approval, ApprovalState

_OURS = ("command line", "popup", "dashboard")


def decision_document(approval: Approval) -> dict[str, Any] | None:
    """Return the decision as a document; None while the request is open."""
    if approval.state is ApprovalState.OPEN:
        return None
    proof = approval.proof or {}
    by, name = who_decided(str(approval.state), approval.by, approval.expires_at, approval.at, proof)
    behavior = (approval.answer or {}).get("behavior")
    if behavior is None and by == "terminal" and "ran" in proof:
        behavior = "allow" if proof["ran"] else "deny"
    outcome = outcome_of(proof)
    has_outcome = outcome != "unknown"
    return {
        "by": by,
        "name": name,
        "behavior": None if behavior is None else str(behavior),
        "at": approval.at,
        "outcome": outcome,
        "outcome_at": (finite(proof.get("at")) or None) if has_outcome else None,
        "outcome_source": str(proof["by"]) if has_outcome and proof.get("by") else None,
    }


def who_decided(
    state: str, by: str | None, expires_at: float | None, at: float | None, proof: Mapping[str, Any]
) -> tuple[str, str | None]:
    """Return a word for who decided, and a name if there is one."""
    if by:
        channel, _, name = by.partition(": ")
        if channel == "api" and name in _OURS:
            return "cli", name
        known = channel in ("policy", "link", "notice", "page", "api")
        return (channel, name or None) if known else ("unknown", by)
    if state == str(ApprovalState.OPEN):
        return "open", None
    if "ran" in proof or str(proof.get("end", "")).startswith("answered"):
        return "terminal", None
    if expires_at is not None and at is not None and at >= expires_at:
        return "timeout", None
    return "unknown", None


def outcome_of(proof: Mapping[str, Any]) -> str:
    if "ran" in proof:
        return ("failed" if proof.get("failed") else "ran") if proof["ran"] else "denied"
    end = str(proof.get("end") or "")
    return "ended" if end and not end.startswith("answered") else "unknown"
