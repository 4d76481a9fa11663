"""How far a message got: read the receipts of an inbox, and wait for their end.

`receipts.jsonl` has one line per step. A message that has not been handed out yet is only in the inbox;
`trace` combines the two, so that a chain always begins with `accepted`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remuda.duration import show_duration
from remuda.errors import FolderUnusable, MessageNotFound, WaitTimeout
from remuda.inotify import CREATE, MODIFY, MOVED_TO, Inotify
from remuda.readable import is_readable

from . import stop_hook
from .journal import Inbox
from .stop_hook import Entry, Files, InboxKey, decode_json, number

FINAL = frozenset({"acked", "dead", "expired", "dropped"})
_LOOK_INTERVAL = 0.5
_LONGEST_WAIT = 60.0
_ATTENDED_WAIT = 2.0


@dataclass(frozen=True, slots=True)
class Trace:
    """The receipt of a message: every step it went through so far."""

    id: str
    folder: Path
    steps: tuple[dict[str, Any], ...]
    answer: dict[str, Any] | None = None
    before: dict[str, Any] | None = None
    """The last step of an earlier message with the same id; plain lines can share one."""

    @property
    def stage(self) -> str:
        """The last stage: "accepted", "written", "submitted", "recorded", "nacked", or a final one."""
        return str(self.steps[-1]["stage"])

    @property
    def ended(self) -> bool:
        """True if the stage is final: "acked", "dead", "expired" or "dropped"."""
        return self.stage in FINAL

    @property
    def reason(self) -> str:
        """Why the message is in this stage; may be empty."""
        return str(self.steps[-1].get("reason") or "")

    def document(self) -> dict[str, Any]:
        """Return the JSON of `remuda receipt ID`."""
        return {
            "id": self.id,
            "inbox": str(self.folder),
            "stage": self.stage,
            "ended": self.ended,
            "steps": list(self.steps),
            "answer": self.answer,
        }


def read_receipts(folder: Path, message: str) -> list[dict[str, Any]]:
    return [one for one in lines_with(folder / "receipts.jsonl", message) if one.get("id") == message]


def trace(folder: Path, message: str, seen: Trace | None = None) -> Trace | None:
    """Return the receipt; None if this inbox does not know the message. `seen` is the previous result."""
    first = seen.steps[0] if seen is not None else _accepted(folder, message)
    receipts = read_receipts(folder, message)  # after the inbox: a message that no longer waits has receipts
    if first is None and not receipts:
        return None
    before = seen.before if seen is not None else _before(folder, message, receipts)
    own = _after(receipts, before)
    if own and own[0].get("stage") == "accepted" and first in (None, own[0]):
        steps = tuple(own)  # it was submitted without the inbox file
    else:
        # A message that was handed out was accepted, also when its line is gone from the inbox.
        steps = (first or {"id": message, "stage": "accepted"}, *own)
    answers = [
        one
        for one in lines_with(folder / "outbox.jsonl", message)
        if one.get("id") == message and "bounced" not in one
    ]
    if before is not None and steps[-1]["stage"] != "acked":
        answers = []
    return Trace(message, folder, steps, answers[-1] if answers else None, before)


def _before(folder: Path, message: str, receipts: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the end of an earlier plain line with this id.

    The id of a plain line is made of its place and its text: in an inbox that was replaced it may come again.
    """
    ends = [one for one in receipts if one.get("stage") in FINAL]
    if not ends or not message.startswith("line-"):
        return None
    if receipts[-1] is not ends[-1] or _accepted(folder, message) is not None:
        return ends[-1]  # it waits or is in flight: that end is not its own
    return ends[-2] if len(ends) > 1 else None


def _after(receipts: list[dict[str, Any]], one: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the receipts after that one; all, if that one was removed by its age."""
    if one not in receipts:
        return receipts
    return receipts[len(receipts) - receipts[::-1].index(one) :]


def find(message: str, folders: list[Path]) -> Trace:
    """Return the receipt of a message in one of these folders. Raises `MessageNotFound`."""
    for folder in folders:
        receipt = trace(folder, message)
        if receipt is not None:
            return receipt
    raise MessageNotFound(f"message '{message}' not found", hint="'remuda messages' lists recent messages")


def follow(
    folder: Path,
    message: str,
    timeout: float | None = None,
    attend: Callable[[Trace], None] | None = None,
) -> Iterator[Trace]:
    """Yield the chain now, and again whenever it grew, up to its end. Raises `WaitTimeout`.

    It reads after it has begun to watch, so it finds an earlier end at once. Until the end, `attend` is
    called at each change of the inbox, and every two seconds.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    seen: Trace | None = None
    with _Watch(folder) as watch:
        while True:
            # The search for the first step reads the inbox, which may be long: once is enough.
            current = trace(folder, message, seen)
            if current is None:
                raise MessageNotFound(f"message '{message}' not found in {folder}")
            # Not by their number: old receipts may have been removed since.
            if seen is None or current.steps[-1] != seen.steps[-1]:
                yield current
            seen = current
            if current.ended:
                return
            longest = _LONGEST_WAIT
            if attend is not None:
                attend(current)
                longest = _ATTENDED_WAIT
            left = longest if deadline is None else deadline - time.monotonic()
            if left <= 0:
                within = show_duration(timeout or 0.0, precise=True)
                raise WaitTimeout(
                    f"message {message} has not ended within {within}; its last step is `{current.stage}`"
                )
            watch.wait(min(left, longest))


class _Watch:
    """Wakes when a file of a folder is written; without inotify, it polls twice a second."""

    def __init__(self, folder: Path) -> None:
        self._inotify: Inotify | None = None
        with contextlib.suppress(OSError):
            self._inotify = Inotify()
            if self._inotify.add(folder, MODIFY | CREATE | MOVED_TO) is not None:
                return
        self._close()

    def __enter__(self) -> _Watch:
        return self

    def wait(self, seconds: float) -> None:
        if self._inotify is None:
            time.sleep(min(seconds, _LOOK_INTERVAL))
        elif is_readable(self._inotify.fd, seconds):
            self._inotify.drain()

    def __exit__(self, *exc: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None


def _accepted(folder: Path, message: str) -> dict[str, Any] | None:
    """Return the first step from the inbox itself: what is written there is accepted."""
    if message.startswith("line-"):
        try:
            is_waiting = any(entry.id == message for entry in Inbox(folder).waiting())
        except FolderUnusable:  # we may not lock it
            is_waiting = False
        return {"id": message, "stage": "accepted"} if is_waiting else None
    key = InboxKey(Files(str(folder / "inbox.jsonl")).key)
    for start, line in raw_lines_with(folder / "inbox.jsonl", message):
        entry = Entry(start, start + len(line), line.decode("utf-8", "replace").strip(), key)
        if entry.id == message:
            step = {"id": message, "stage": "accepted", "at": number(entry.fields.get("at"))}
            return step | {key: entry.fields[key] for key in ("from", "expires") if key in entry.fields}
    return None


def sender_of(folder: Path, message: str) -> str | None:
    """Return who sent a message, as its sender named itself. None if that is not known (any more).

    Only a line that our own writer marked has a sender.
    """
    key = InboxKey(Files(str(folder / "inbox.jsonl")).key)
    for start, line in raw_lines_with(folder / "inbox.jsonl", message):
        entry = Entry(start, start + len(line), line.decode("utf-8", "replace").strip(), key)
        if entry.id == message and isinstance(sender := entry.fields.get("from"), str):
            return sender
    return None


def lines_with(path: Path, needle: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file whose line contains this text. Skips torn lines."""
    for _, line in raw_lines_with(path, needle):
        with contextlib.suppress(ValueError):
            document = decode_json(line)
            if isinstance(document, dict):
                yield document


def raw_lines_with(path: Path, needle: str) -> Iterator[tuple[int, bytes]]:
    """Yield where each line begins, and its bytes. Skips the holes of `compaction`."""
    wanted = needle.encode()
    try:
        fd = stop_hook.open_file(str(path), os.O_RDONLY)
    except stop_hook.NotOurFile as error:
        raise FolderUnusable(str(error)) from error
    except OSError:
        return
    with contextlib.suppress(OSError), open(fd, "rb") as file:
        try:
            start = file.seek(os.lseek(file.fileno(), 0, os.SEEK_DATA))
        except (OSError, AttributeError):
            start = file.seek(0)
        for line in file:
            if wanted in line:
                text = line.lstrip(b"\0")
                yield start + len(line) - len(text), text
            start += len(line)
