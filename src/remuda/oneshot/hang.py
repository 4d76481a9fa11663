"""Why a call has not ended yet, told from what its session shows. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_RETRY = re.compile(r"Retrying in .*?attempt (\d+)/(\d+)")
_DIALOG_LINES = 6


def diagnose(document: Mapping[str, Any] | None, lines: Sequence[str], dialog: str | None, stage: str) -> str:
    """One line. `document` is the session's status, None when its keeper does not answer any more."""
    if document is None or not document.get("alive", True):
        return "the agent is gone"
    state = document.get("state")
    if dialog is not None or state in ("waiting_permission", "waiting_answer"):
        return f"a dialog is open: {_dialog_text(lines) or dialog or state}"
    for line in reversed(lines):
        if found := _RETRY.search(line):
            return f"the API is being tried again, attempt {found[1]} of {found[2]}: {line.strip()[:200]}"
    if document.get("silent_since_start"):
        return "the agent has printed nothing at all"
    if state == "tool_use":
        return f"a tool is running: {document.get('detail', '')}"
    if stage in ("accepted", "written"):
        return f"the prompt was not taken yet; the session is {state}"
    if state in ("idle", "interrupted", "error", "limited"):
        return "the turn is over, and no Stop hook came"
    return f"the agent is {state}"


def _dialog_text(lines: Sequence[str]) -> str:
    shown = [line.strip(" │╭╮╰╯─▔") for line in lines]
    return " / ".join([line for line in shown if line][-_DIALOG_LINES:])[:500]
