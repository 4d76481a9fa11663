"""Why a call has not ended yet, told from what its session shows. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from remuda.agents.claude.screen import has_composer, read_trust_choice

_RETRY = re.compile(r"Retrying in .*?attempt (\d+)/(\d+)")
_MARKED = re.compile(r"^\s*[│|]?\s*❯\s+\S")
_WAITING = ("waiting_permission", "waiting_answer")
_DIALOG_LINES = 8
_DIALOG_CHARACTERS = 500
_PICKER = "Resume session"
_RULE = "────────"
_FRAME = " │|╭╮╰╯─▔╌━═"


def diagnose(document: Mapping[str, Any] | None, lines: Sequence[str], dialog: str | None, stage: str) -> str:
    """One line. `document` is the session's status, None when its keeper does not answer any more."""
    if document is None or not document.get("alive", True):
        return "the agent has exited"
    state = document.get("state")
    if dialog is not None or waited(document) is not None:
        return f"a dialog is open: {shown(lines) or dialog or state}"
    if found := retrying(lines):
        return found
    if is_silent(document, lines):
        return "the agent has printed nothing"
    if state == "tool_use":
        return f"a tool is running: {document.get('detail', '')}"
    if stage in ("accepted", "written"):
        if is_question(lines):
            return f"the agent asks a question: {shown(lines)}"
        return f"the agent has not accepted the prompt; the session is {state}"
    if state in ("idle", "interrupted", "error", "limited"):
        return "the turn has ended, but no Stop hook reported it"
    return f"the agent is {state}"


def is_silent(document: Mapping[str, Any] | None, lines: Sequence[str]) -> bool:
    """Whether nothing has come since its start."""
    return (
        document is not None and not document.get("printed", True) and not any(line.strip() for line in lines)
    )


def waited(document: Mapping[str, Any]) -> float | None:
    """For how many seconds the agent has said itself that it waits for an answer; None if it does not.

    Its own file says so for as long as that is true. A hook which tells of the time before it may come late,
    and then the session's state does not show it.
    """
    own = [vote for vote in document.get("votes", []) if vote["source"] == "registry"]
    ages = [float(told.get("age", 0.0)) for told in (document, *own) if told.get("state") in _WAITING]
    return max(ages, default=None)


def asked(document: Mapping[str, Any], lines: Sequence[str]) -> str | None:
    """What a human is asked, in one line. None for the question for trust, which the keeper answers."""
    if read_trust_choice(lines) is not None:
        return None
    event, _, tool = str(document.get("detail") or "").partition(" ")
    what = tool if event == "PermissionRequest" and tool else shown(lines)
    kind = "permission" if document.get("state") == "waiting_permission" else "an answer"
    return f"waiting for {kind}: {what}" if what else f"waiting for {kind}"


def is_unheard(document: Mapping[str, Any]) -> bool:
    """Whether the agent waits for an answer, and no hook, which would have refused, has come from it."""
    heard = any(vote["source"] == "hook" for vote in document.get("votes", []))
    return waited(document) is not None and not heard


def retrying(lines: Sequence[str]) -> str | None:
    for line in reversed(lines):
        if found := _RETRY.search(line):
            return (
                f"the agent is retrying the API, attempt {found[1]} of {found[2]}: {line.strip(_FRAME)[:200]}"
            )
    return None


def is_question(lines: Sequence[str]) -> bool:
    """Whether a row is marked where there is no composer: a question, though of words that nobody knows."""
    return any(_MARKED.match(line) for line in lines) and not has_composer(lines)


def is_picker(lines: Sequence[str]) -> bool:
    """Whether the CLI lists its conversations: what it was told to resume is none of them."""
    return any(line.strip(_FRAME) == _PICKER for line in lines) and any("⌕" in line for line in lines)


def unanswerable(lines: Sequence[str], dialog: str | None, *, begun: bool) -> str | None:
    """The text of a question that nobody here may answer. The one for trust is answered by the keeper.

    `begun`: the prompt was taken, and the agent says itself that it waits for an answer. Before that it may
    ask in words that we do not know.
    """
    if read_trust_choice(lines) is not None:
        return None
    return shown(lines) if begun or dialog is not None or is_question(lines) else None


def shown(lines: Sequence[str]) -> str:
    """The last of what is on the screen, on one line; of a question, what is below the rule above it."""
    marked = [y for y, line in enumerate(lines) if _MARKED.match(line)]
    rules = [y for y, line in enumerate(lines) if line.startswith(_RULE) and marked and y < marked[-1]]
    plain = [line.strip(_FRAME) for line in lines[rules[-1] if rules else 0 :]]
    return " / ".join([line for line in plain if line][-_DIALOG_LINES:])[:_DIALOG_CHARACTERS]


class StreamState:
    """As `diagnose`, from the messages of the CLI's own stream."""

    def __init__(self) -> None:
        self._heard = False
        self._retry: Mapping[str, Any] | None = None
        self._tools: dict[str, str] = {}

    def take(self, message: Mapping[str, Any]) -> None:
        self._heard = True
        if message.get("subtype") == "api_retry":
            self._retry = message
        elif message.get("type") in ("assistant", "user"):
            self._retry = None
            for block in _blocks(message):
                if block.get("type") == "tool_use":
                    self._tools[str(block.get("id"))] = str(block.get("name"))
                elif block.get("type") == "tool_result":
                    self._tools.pop(str(block.get("tool_use_id")), None)

    def why(self) -> str:
        if not self._heard:
            return "the agent has printed nothing"
        if self._retry is not None:
            attempt, most = self._retry.get("attempt"), self._retry.get("max_retries")
            return f"the agent is retrying the API, attempt {attempt} of {most}"
        if self._tools:
            return f"a tool is running: {', '.join(self._tools.values())}"
        return "the agent is working"


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    inner = message.get("message")
    content = inner.get("content") if isinstance(inner, Mapping) else None
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []
