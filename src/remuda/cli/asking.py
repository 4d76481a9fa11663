"""The boss's queue as the commands see it: over its socket."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from remuda.boss.client import BossClient
from remuda.boss.navigator import Item, QueueNavigator, label, labels, reason
from remuda.errors import InvalidOptions, NotInQueue, RemudaError

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


def make_guide(client: str | None = None, *, elsewhere: bool = False) -> QueueNavigator:
    """For the user's own tmux client, or the one named."""
    return QueueNavigator(AskedQueue(), os.environ, client, elsewhere=elsewhere)


def elsewhere_option(function: F) -> F:
    return click.option("--elsewhere", is_flag=True, help="Also move a client of another tmux server.")(
        function
    )


def find_session(boss: BossClient, word: str) -> dict[str, Any]:
    """The session and its item: by what the boss knows it by, or by the beginning of its name.

    Only for commands that neither answer nor type: for those, `work` must not mean `work2`.
    Raises `NotInQueue` and `InvalidOptions`.
    """
    try:
        found: dict[str, Any] = boss.get("sessions", word)
    except NotInQueue:
        sessions = boss.get("sessions")["sessions"]
        names = {one["id"]: label({"session_id": one["id"], "session": one}) for one in sessions}
        begins = [number for number, name in names.items() if name.startswith(word)]
        if not begins:
            raise
        if len(begins) > 1:
            several = ", ".join(sorted(names[number] for number in begins)[:5])
            raise InvalidOptions(
                f"several sessions begin with '{word}'", hint=f"write more: {several}"
            ) from None
        found = boss.get("sessions", begins[0])
    return found


def item_of(boss: BossClient, word: str) -> Item:
    """The waiting item of that session, also a hidden one. Raises `NotInQueue` and `InvalidOptions`."""
    item: Item | None = find_session(boss, word)["item"]
    if item is None:
        raise NotInQueue(f"{word} is not waiting", hint="'remuda queue --all' lists the agents that are")
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
