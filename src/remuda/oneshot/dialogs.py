"""Why a call has not ended yet, and what the agent asks. Pure.

`document` is the status of the call's session; `dialogs` reads the agent's screen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from remuda.agents.headless import Dialogs, Lines

Document = Mapping[str, Any]
_WAITING = ("waiting_permission", "waiting_answer")


def diagnose(document: Document | None, lines: Lines, dialogs: Dialogs, stage: str) -> str:
    """Return the reason in one line. `document` is None when the keeper no longer answers."""
    if document is None or not document.get("alive", True):
        return "the agent has exited"
    state = document.get("state")
    dialog = dialogs.open_dialog(lines)
    if dialog is not None or waited(document) is not None:
        return f"a dialog is open: {dialogs.shown(lines) or dialog or state}"
    if retry := dialogs.retrying(lines):
        return retry
    if is_silent(document, lines):
        return "the agent has printed nothing"
    if state == "tool_use":
        return f"a tool is running: {document.get('detail', '')}"
    if stage in ("accepted", "written"):
        if dialogs.is_question(lines):
            return f"the agent asks a question: {dialogs.shown(lines)}"
        return f"the agent has not accepted the prompt; the session is {state}"
    if state in ("idle", "interrupted", "error", "limited"):
        return "the turn has ended, but no Stop hook reported it"
    return f"the agent is {state}"


def is_silent(document: Document | None, lines: Lines) -> bool:
    """Whether the agent has printed nothing since its start."""
    return (
        document is not None and not document.get("printed", True) and not any(line.strip() for line in lines)
    )


def waited(document: Document) -> float | None:
    """Return for how many seconds the agent has reported that it waits for an answer; None if it does not.

    The agent's own file says so for as long as it is true. A hook about an earlier moment may come late, and
    then the session's state does not show it.
    """
    own = [vote for vote in document.get("votes", []) if vote["source"] == "registry"]
    ages = [float(vote.get("age", 0.0)) for vote in (document, *own) if vote.get("state") in _WAITING]
    return max(ages, default=None)


def is_unreported(document: Document) -> bool:
    """Whether the agent waits for an answer and no hook, which would have denied it, has come from it."""
    has_hooks = any(vote["source"] == "hook" for vote in document.get("votes", []))
    return waited(document) is not None and not has_hooks


def question_for_person(document: Document, lines: Lines, dialogs: Dialogs) -> str | None:
    """Return what a person is asked, in one line. None for the trust dialog, which the keeper answers."""
    if dialogs.asks_for_trust(lines):
        return None
    event, _, tool = str(document.get("detail") or "").partition(" ")
    what = tool if event == "PermissionRequest" and tool else dialogs.shown(lines)
    kind = "permission" if document.get("state") == "waiting_permission" else "an answer"
    return f"waiting for {kind}: {what}" if what else f"waiting for {kind}"


def unanswerable(lines: Lines, dialogs: Dialogs, *, begun: bool) -> str | None:
    """Return a question that no one can answer here, or None. The keeper answers the trust dialog.

    `begun`: the agent has taken the prompt, and reports itself that it waits for an answer. Before that it
    may ask in words that we do not know.
    """
    if dialogs.asks_for_trust(lines):
        return None
    is_asked = begun or dialogs.open_dialog(lines) is not None or dialogs.is_question(lines)
    return dialogs.shown(lines) if is_asked else None
