"""List the messages of an inbox that are still known: those that wait, and those that have receipts.

Receipts of messages that ended are kept for a week (`compaction`), which limits the list.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from remuda.errors import FolderUnusable, InvalidOptions, MessageNotFound

from .compaction import json_lines
from .journal import Inbox, translated_errors
from .receipts import FINAL, Trace, lines_with, raw_lines_with, trace
from .stop_hook import Entry, Files, InboxKey, number

_NAMED = 5


@dataclass(frozen=True, slots=True)
class Listed:
    """A message and its last step. `prompt` is empty if the inbox no longer has it."""

    id: str
    folder: Path
    stage: str
    at: float
    """When its last step was; 0 if unknown. The same for `sent_at`."""
    sent_at: float
    attempt: int = 1
    reason: str = ""
    prompt: str = ""
    due: float = 0.0
    """When a waiting message with a delay is handed out; 0 for one without."""

    @property
    def ended(self) -> bool:
        return self.stage in FINAL

    def document(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "inbox": str(self.folder),
            "stage": self.stage,
            "ended": self.ended,
            "at": self.at or None,
            "sent_at": self.sent_at or None,
            "attempt": self.attempt,
            "reason": self.reason,
            "prompt": self.prompt,
        }


def list_messages(folder: Path) -> list[Listed]:
    """Return the messages of an inbox in the order of sending, without prompts: see `with_prompts`."""
    listed: dict[str, Listed] = {}
    with translated_errors():
        receipts = list(json_lines(str(folder / "receipts.jsonl")))
    for one in receipts:
        message, at = str(one.get("id")), number(one.get("at"))
        first = listed[message].sent_at if message in listed else (_sent_at(message) or at)
        attempt, reason = int(number(one.get("attempt"))) or 1, str(one.get("reason") or "")
        listed[message] = Listed(message, folder, str(one.get("stage")), at, first, attempt, reason)
    for entry in _waiting(folder):
        known, at = listed.get(entry.id), number(entry.fields.get("at")) or _sent_at(entry.id)
        if known is None or known.ended:  # a plain line may have the id of an earlier one
            due = number(entry.fields.get("not_before"))
            listed[entry.id] = Listed(entry.id, folder, "accepted", at, at, due=due)
    return sorted(listed.values(), key=lambda one: one.sent_at)


def _waiting(folder: Path) -> list[Entry]:
    try:
        return Inbox(folder).waiting()
    except FolderUnusable:  # we may not lock it
        return []


def _sent_at(message: str) -> float:
    """Return when a message was sent, by the id that `message.new_id` gave it."""
    head, _, tail = message.partition("-")
    try:
        return int(head[1:], 16) / 1000 if head[:1] == "m" and len(head) <= 12 and len(tail) == 10 else 0.0
    except ValueError:
        return 0.0


def with_prompts(messages: Iterable[Listed]) -> list[Listed]:
    """Return the same messages with their prompts. Each inbox is read once."""
    messages = list(messages)
    texts: dict[tuple[Path, str], str] = {}
    for folder in {one.folder for one in messages}:
        ids = {one.id for one in messages if one.folder == folder}
        texts |= {(folder, name): text for name, text in _prompts(folder, ids).items()}
    return [replace(one, prompt=texts.get((one.folder, one.id), one.prompt)) for one in messages]


def _prompts(folder: Path, ids: set[str]) -> dict[str, str]:
    has_lines = any(one.startswith("line-") for one in ids)
    named = [one.encode() for one in ids]
    key = InboxKey(Files(str(folder / "inbox.jsonl")).key)
    prompts: dict[str, str] = {}
    for start, line in raw_lines_with(folder / "inbox.jsonl", ""):
        if has_lines or any(one in line for one in named):
            entry = Entry(start, start + len(line), line.decode("utf-8", "replace").strip(), key)
            if entry.id in ids:
                prompts[entry.id] = entry.text
    return prompts


def find_by_prefix(prefix: str, folders: list[Path]) -> Trace:
    """Return the message with this id, or the only one whose id begins with it.

    Raises `MessageNotFound`, and `InvalidOptions` if several ids begin with it.
    """
    for folder in folders:
        if (exact := trace(folder, prefix)) is not None:
            return exact
    near = sorted((name, folder) for folder in folders for name in _ids_with(folder, prefix))
    if len(near) > 1:
        names = ", ".join(name for name, _ in near[:_NAMED]) + (", …" if len(near) > _NAMED else "")
        raise InvalidOptions(f"'{prefix}' matches {len(near)} messages", hint=f"give more of the id: {names}")
    receipt = trace(near[0][1], near[0][0]) if near else None
    if receipt is None:
        raise MessageNotFound(f"message '{prefix}' not found", hint="'remuda messages' lists them")
    return receipt


def _ids_with(folder: Path, beginning: str) -> set[str]:
    if not beginning:
        return set()
    named = {str(one.get("id")) for one in lines_with(folder / "receipts.jsonl", beginning)}
    waiting = {entry.id for entry in _waiting(folder)}
    return {one for one in named | waiting if one.startswith(beginning)}


def find_last(folders: list[Path]) -> Trace:
    """Return the message that was sent last. Raises `MessageNotFound`."""
    newest = max(
        (messages[-1] for folder in folders if (messages := list_messages(folder))),
        key=lambda one: one.sent_at,
        default=None,
    )
    receipt = trace(newest.folder, newest.id) if newest is not None else None
    if receipt is None:
        raise MessageNotFound("no messages yet", hint="'remuda send NAME TEXT' sends one")
    return receipt
