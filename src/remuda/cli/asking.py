"""The boss's queue as the commands see it: over its socket."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from remuda.boss.client import BossClient
from remuda.boss.guide import Guide, Item, labels, reason
from remuda.errors import NotInQueue, RemudaError

F = TypeVar("F", bound=Callable[..., Any])

_COMPLETION_TIMEOUT = 0.5


class AskedQueue:
    def __init__(self, boss: BossClient | None = None) -> None:
        self.boss = boss or BossClient()

    def waiting(self) -> list[Item]:
        found: list[Item] = self.boss.get("queue")["items"]
        return found

    def skip(self, number: str, cooldown: float | None) -> Item:
        body = {} if cooldown is None else {"cooldown": cooldown}
        found: Item = self.boss.post("queue", number, "skip", body=body)
        return found


def make_guide(client: str | None = None) -> Guide:
    """For the user's own tmux client, or the one named."""
    return Guide(AskedQueue(), os.environ, client)


def item_of(boss: BossClient, session: str) -> Item:
    """What that session waits for, also when it was put off. Raises `NotInQueue` and `InvalidOptions`."""
    item: Item | None = boss.get("sessions", session)["item"]
    if item is None:
        raise NotInQueue(f"{session} does not wait", hint="'remuda queue --all' lists who does")
    return item


def complete_waiting(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Who waits, by the words that mean him and nobody else."""
    try:
        items = BossClient(timeout=_COMPLETION_TIMEOUT).get("queue", hidden=True)["items"]
    except (RemudaError, OSError):
        return []
    words = [(who.rpartition(" ")[2], item) for who, item in zip(labels(items), items, strict=True)]
    return [CompletionItem(word, help=reason(item)) for word, item in words if word.startswith(incomplete)]


def waiting_argument(name: str = "session", **more: Any) -> Callable[[F], F]:
    """A session that the boss knows, completed by those who wait."""
    return click.argument(name, shell_complete=complete_waiting, **more)
