"""Why a call has not ended yet, told from what its session shows. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from remuda.agents.claude.screen import has_composer, read_trust_choice

_RETRY = re.compile(r"Retrying in .*?attempt (\d+)/(\d+)")
_MARKED = re.compile(r"^\s*[│|]?\s*❯\s+\S")
_DIALOG_LINES = 8
_DIALOG_CHARACTERS = 500
_FRAME = " │|╭╮╰╯─▔╌━═"


def diagnose(document: Mapping[str, Any] | None, lines: Sequence[str], dialog: str | None, stage: str) -> str:
    """One line. `document` is the session's status, None when its keeper does not answer any more."""
    if document is None or not document.get("alive", True):
        return "the agent is gone"
    state = document.get("state")
    if dialog is not None or state in ("waiting_permission", "waiting_answer"):
        return f"a dialog is open: {shown(lines) or dialog or state}"
    if found := retrying(lines):
        return found
    if document.get("silent_since_start"):
        return "the agent has printed nothing at all"
    if state == "tool_use":
        return f"a tool is running: {document.get('detail', '')}"
    if stage in ("accepted", "written"):
        if is_question(lines):
            return f"the agent asks something: {shown(lines)}"
        return f"the prompt was not taken yet; the session is {state}"
    if state in ("idle", "interrupted", "error", "limited"):
        return "the turn is over, and no Stop hook came"
    return f"the agent is {state}"


def retrying(lines: Sequence[str]) -> str | None:
    for line in reversed(lines):
        if found := _RETRY.search(line):
            return (
                f"the API is being tried again, attempt {found[1]} of {found[2]}: {line.strip(_FRAME)[:200]}"
            )
    return None


def is_question(lines: Sequence[str]) -> bool:
    """Whether a row is marked where there is no composer: a question, though of words that nobody knows."""
    return any(_MARKED.match(line) for line in lines) and not has_composer(lines)


def unanswerable(lines: Sequence[str], dialog: str | None, *, begun: bool) -> str | None:
    """The text of a question that nobody here may answer. The one for trust is answered by the keeper.

    Before the prompt was taken the agent may ask in words that we do not know; later only what is known to be
    a dialog counts.
    """
    if read_trust_choice(lines) is not None:
        return None
    if dialog is not None or (not begun and is_question(lines)):
        return shown(lines)
    return None


def shown(lines: Sequence[str]) -> str:
    """The last of what is on the screen, on one line."""
    plain = [line.strip(_FRAME) for line in lines]
    return " / ".join([line for line in plain if line][-_DIALOG_LINES:])[:_DIALOG_CHARACTERS]


def diagnose_stream(last: Mapping[str, Any] | None) -> str:
    """As `diagnose`, from the last message of the CLI's own stream."""
    if last is None:
        return "the agent has printed nothing at all"
    if last.get("subtype") == "api_retry":
        return f"the API is being tried again, attempt {last.get('attempt')} of {last.get('max_retries')}"
    if last.get("type") == "result":
        return "the agent has answered and does not end"
    message = last.get("message")
    content = message.get("content") if isinstance(message, Mapping) else None
    for block in reversed(content if isinstance(content, list) else []):
        if isinstance(block, Mapping) and block.get("type") == "tool_use":
            return f"a tool is running: {block.get('name')}"
    return "the agent is at work"
