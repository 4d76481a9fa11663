"""Notices for ntfy, published as JSON: text of others never becomes a header. Pure.

A button is an `http` action: the phone posts to a link of its own, and ntfy removes the notice when the boss
accepted it. With `sequence_id` the notice can be cleared later, by servers from 2.16 on; others ignore it.
"""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import urlsplit

from .buttons import MOST
from .notification import Notice
from .notify_file import Receiver


def server_of(receiver: Receiver) -> str:
    """Return the address that takes notices as JSON."""
    parts = urlsplit(receiver.url)
    return f"{parts.scheme}://{parts.netloc}/"


def document(receiver: Receiver, notice: Notice) -> dict[str, Any]:
    fields = notice.fields
    if receiver.details:
        title, message = fields["title"], notice.text or fields["message"]
    else:
        title, message = f"An agent waits: {fields['reason']}", "Open it to see who asks, and what."
    actions: list[dict[str, Any]] = [
        {
            "action": "http",
            "label": one.label,
            "url": one.url,
            "method": "POST",
            "headers": {"Content-Type": "application/json"},
            "body": one.body,
            "clear": True,
        }
        for one in notice.actions
    ]
    if notice.open and len(actions) < MOST:
        actions.append({"action": "view", "label": "Open", "url": notice.open})
    found = {"topic": _topic(receiver), "title": title, "message": message, "actions": actions}
    found |= {"click": notice.open} if notice.open else {}
    return found | ({"sequence_id": sequence_of(notice.tag)} if notice.tag else {})


def clear_address(receiver: Receiver, tag: str) -> str:
    """Return the address at which a PUT clears the notice."""
    return f"{server_of(receiver)}{_topic(receiver)}/{sequence_of(tag)}/clear"


def sequence_of(tag: str) -> str:
    return hashlib.sha256(tag.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _topic(receiver: Receiver) -> str:
    return urlsplit(receiver.url).path.lstrip("/")
