"""When to notify about a waiting item, and with which words. Pure.

An item is due when it has waited longer than the threshold, and its session was quiet for the cooldown. In
quiet hours nothing is due; what still waits at their end is due then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from remuda.untrusted import one_line, printable

from ..attention.display import label
from ..attention.model import BossSession, Item, Reason
from .buttons import question_text, short
from .notify_file import NotifySettings

LINK_LIFE = 3600.0
_SHORT = 300
_NAME = 120
_FIELD = re.compile(r"{([a-z_]+)}")
FIELDS = ("title", "message", "reason", "session", "cwd", "tool", "id", "link", "page")
"""Names that a template may have in braces."""


@dataclass(frozen=True, slots=True)
class NoticeButton:
    """A button of a notice: a tap posts `body` to a link of its own."""

    label: str
    url: str
    body: str


@dataclass(frozen=True, slots=True)
class Notice:
    """What one receiver gets."""

    fields: Mapping[str, str]
    tag: str = ""
    """The same for all notices about the same item."""
    text: str = ""
    """What is asked, for a receiver without a template; empty for `message`."""
    open: str = ""
    """What a tap on the notice opens."""
    actions: tuple[NoticeButton, ...] = ()


# ── when ──


@dataclass(slots=True)
class Schedule:
    """Which items and sessions were notified about, and when."""

    notified: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)

    def due(self, items: Sequence[Item], settings: NotifySettings, now: float) -> list[Item]:
        """Return the items to notify about now, and count them as notified.

        An item that no receiver wants delays no other.
        """
        waiting = {item.id for item in items}
        self.notified = {item_id: at for item_id, at in self.notified.items() if item_id in waiting}
        last = {one: min(at, now) for one, at in self.last.items()}  # the clock may have been set back
        self.last = {one: at for one, at in last.items() if now - at < settings.cooldown}
        if is_quiet(settings, now) or len(items) < settings.least:
            return []
        wanted = frozenset[Reason]().union(*(receiver.reasons for receiver in settings.receivers))
        due = []
        for item in items:
            if item.reason not in wanted:
                continue
            fresh = item.id not in self.notified and item.session_id not in self.last
            if fresh and now - item.since >= settings.threshold:
                self.notified[item.id] = self.last[item.session_id] = now
                due.append(item)
        return due

    def put_back(self, item: Item) -> None:
        """The notice failed: the item is due again."""
        self.notified.pop(item.id, None)
        self.last.pop(item.session_id, None)


def is_quiet(settings: NotifySettings, now: float) -> bool:
    """By the local time of the machine of the boss."""
    local = datetime.fromtimestamp(now)
    minute = local.hour * 60 + local.minute
    return any(
        begin <= minute < end if begin <= end else minute >= begin or minute < end
        for begin, end in settings.quiet
    )


# ── what ──


def words(item: Item, session: BossSession | None, link: str = "", page: str = "") -> dict[str, str]:
    """Return the fields of a notice: each is bounded and printable, and all but `message` are one line."""
    session = session or BossSession(item.session_id)
    name = short(label(session.name, session.repo or session.cwd, session.id), _NAME)
    asked = item.detail.get("options") if item.reason is Reason.QUESTION else None
    message = question_text(asked) if isinstance(asked, list) and asked else short(item.message, _SHORT)
    over = ", over budget" if item.detail.get("over_budget") else ""
    return {
        "title": f"{name}: {item.reason}{over}",
        "message": printable(message) or short(str(item.detail.get("waiting_for") or item.reason), _SHORT),
        "reason": str(item.reason),
        "session": name,
        "cwd": short(one_line(session.cwd or ""), _SHORT),
        "tool": short(one_line(str(item.detail.get("tool", ""))), _NAME),
        "id": str(item.detail.get("ask") or item.id),
        "link": link,
        "page": page,
    }


def fill(template: str, fields: Mapping[str, str]) -> str:
    """Fill in the known names in braces. Braces in the values are left alone."""
    return _FIELD.sub(lambda found: fields.get(found[1], found[0]), template)


def fill_all(template: Any, fields: Mapping[str, str]) -> Any:
    """Do the same in every string of a JSON document."""
    if isinstance(template, str):
        return fill(template, fields)
    if isinstance(template, list):
        return [fill_all(one, fields) for one in template]
    if isinstance(template, Mapping):
        return {key: fill_all(value, fields) for key, value in template.items()}
    return template
